"""Example inputs of a transformers model, from its forward signature and its configuration.

What an input looks like follows from its *name*, which is part of the library's interface (``input_ids``,
``pixel_values``, ...), and from sizes that configurations name alike. Where several shapes are possible, candidates are
tried on the module, without computing anything, and the first that it accepts is taken.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

from symgraph.errors import ModelError
from symgraph.frontend.meta import as_fake

BATCH, LENGTH, DECODER_LENGTH, SEED = 2, 8, 6, 0

# Where nothing is said: the sides of an image, the samples of a sound, its frames, the number of tokens.
IMAGE_SIZES, SAMPLES, FRAMES, VOCABULARY = (64, 224), 4000, 32, 100

# Inputs that take the place of others, so that they count only where they are the main one.
ALONE = frozenset({"inputs_embeds", "past_values"})


class Sizes:
    """Attributes of a configuration or, where it has none of that name, of the configurations inside it."""

    def __init__(self, config: Any) -> None:
        self._levels = [config]
        for level in self._levels:
            inner = [value for value in vars(level).values() if hasattr(value, "to_dict") and value not in self._levels]
            self._levels.extend(inner)

    def find(self, *names: str, default: Any = None) -> Any:
        """The first value that is set, outer configurations before inner ones."""
        for level, name in product(self._levels, names):
            value = getattr(level, name, None)
            if value is not None and not callable(value):
                return value
        return default

    def special_tokens(self) -> set[int]:
        """Token ids with a meaning of their own."""
        values = (
            value
            for level in self._levels
            for name, value in vars(level).items()
            if name.endswith(("token_id", "token_index"))
        )
        return {value for value in values if isinstance(value, int)}


def example_inputs(module: nn.Module, config: Any) -> dict[str, Tensor]:
    """Keyword arguments of one call of the module: seeded, on the CPU, batch size 2."""
    candidates = list(_candidates(module, Sizes(config)))
    if not candidates:
        name = getattr(module, "main_input_name", type(module).__name__)
        raise ModelError(f"no example input for {name!r} is known: pass file.py:factory that returns (module, kwargs)")
    if len(candidates) == 1:
        return candidates[0]
    for candidate in candidates:
        if _accepts(module, candidate):
            return candidate
    raise ModelError(
        f"{type(module).__name__} accepts none of the example inputs tried ({', '.join(candidates[0])}): "
        "pass file.py:factory that returns (module, kwargs)"
    )


def _accepts(module: nn.Module, kwargs: dict[str, Tensor]) -> bool:
    """Whether a call runs; on tensors without values, where the module has none."""
    was_training = module.training
    module.eval()
    try:
        with torch.no_grad(), as_fake(module, (), kwargs) as (_, inputs):
            module(**inputs)
    except (DataDependentOutputException, DynamicOutputShapeException):
        return True  # it came as far as a question about values
    except Exception:
        return False
    finally:
        module.train(was_training)
    return True


def _candidates(module: nn.Module, sizes: Sizes) -> Iterator[dict[str, Tensor]]:
    """Combinations of inputs: all that the signature knows first, then the main input alone."""
    accepted = inspect.signature(module.forward).parameters
    main = getattr(module, "main_input_name", None)
    known = [name for name in _MAKERS if name in accepted and (name not in ALONE or name == main)]
    if not _decodes(module):
        known = [name for name in known if name != "decoder_input_ids"]
    if not known:
        return
    main = main if main in known else known[0]
    shapes = {name: list(_MAKERS[name](sizes)) for name in known}
    needed = [name for name in known if name == main or name == "decoder_input_ids"]
    for names in (known, needed) if set(known) != set(needed) else (needed,):
        for values in product(*(shapes[name] for name in names)):
            yield dict(zip(names, values, strict=True))


def _decodes(module: nn.Module) -> bool:
    return bool(getattr(getattr(module, "config", None), "is_encoder_decoder", False))


def _ids(length: int) -> Callable[[Sizes], Iterator[Tensor]]:
    def make(sizes: Sizes) -> Iterator[Tensor]:
        vocabulary = sizes.find("vocab_size", default=VOCABULARY)
        if isinstance(vocabulary, int):
            special = sizes.special_tokens()
            ordinary = [token for token in range(min(vocabulary, 2**16)) if token not in special] or [0]
            drawn = torch.randint(len(ordinary), (BATCH, length), generator=_generator())
            yield torch.tensor(ordinary)[drawn]

    return make


def _images(sizes: Sizes) -> Iterator[Tensor]:
    """x[batch, channels, height, width], or with frames before the channels."""
    channels = sizes.find("num_channels", "in_channels", "in_chans", default=3)
    frames = sizes.find("num_frames", "frames_per_clip")
    for size in (sizes.find("image_size", "input_size"), *IMAGE_SIZES):
        if isinstance(size, dict):
            size = (size.get("height"), size.get("width"))
        sides = tuple(size[-2:]) if isinstance(size, (list, tuple)) else (size, size)
        if all(isinstance(side, int) for side in sides):
            if isinstance(frames, int):
                yield _normal(BATCH, frames, channels, *sides)
            yield _normal(BATCH, channels, *sides)


def _sound(sizes: Sizes) -> Iterator[Tensor]:
    """Raw samples x[batch, time], or a spectrogram x[batch, frames, bins]."""
    bins, frames = sizes.find("num_mel_bins"), sizes.find("max_length", default=FRAMES)
    if isinstance(bins, int) and isinstance(frames, int):
        yield _normal(BATCH, frames, bins)
    yield _normal(BATCH, SAMPLES)
    yield _normal(BATCH, 1, SAMPLES)


def _features(sizes: Sizes) -> Iterator[Tensor]:
    """Spectrograms: bins first, of the full length that positions are learned for, or frames first."""
    bins = sizes.find("num_mel_bins", "feature_projection_input_dim", "input_feat_per_channel", "input_dim", default=80)
    positions = sizes.find("max_source_positions")
    if isinstance(positions, int):
        yield _normal(BATCH, bins, 2 * positions)
    yield _normal(BATCH, FRAMES, bins)
    yield _normal(BATCH, bins, FRAMES)


def _embeddings(sizes: Sizes) -> Iterator[Tensor]:
    """x[batch, time, width]."""
    yield _normal(BATCH, LENGTH, sizes.find("hidden_size", "d_model", default=LENGTH))


def _series(sizes: Sizes) -> Iterator[Tensor]:
    """x[batch, time, channels]."""
    yield _normal(BATCH, sizes.find("context_length", default=FRAMES), sizes.find("num_input_channels", default=1))


def _normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=_generator())


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(SEED)


_MAKERS: dict[str, Callable[[Sizes], Iterator[Tensor]]] = {
    "input_ids": _ids(LENGTH),
    "pixel_values": _images,
    "pixel_values_videos": _images,
    "input_values": _sound,
    "input_features": _features,
    "decoder_input_ids": _ids(DECODER_LENGTH),
    "inputs_embeds": _embeddings,
    "past_values": _series,
}
