"""``--data FILE``: the batches that a matcher learns on and a barrier is judged on.

    a text file        cut into windows of the context length; next-token loss; the last part is held out
    an .npz file       train_images, train_labels, test_images, test_labels; cross-entropy of the labels

A batch is ``(kwargs, targets)``, its loss the mean cross-entropy in nats. Images of integers are brought to mean 0 and
deviation 1 over all training pixels, unless the checkpoint has a ``preprocessor_config.json`` that says otherwise;
images of floating-point numbers are taken as they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from symgraph.errors import SymgraphError
from symgraph.frontend.models import LoadedModel, one_line

Batch = tuple[dict[str, Tensor], Tensor]

LONGEST_CONTEXT = 512
JUDGED_WINDOWS, JUDGED_IMAGES = 256, 2000
HELD_OUT = 0.1  # of the windows of a text
KEYS = ("train_images", "train_labels", "test_images", "test_labels")


class DataError(SymgraphError):
    """A data file that cannot be read, or does not fit the model."""


@dataclass(frozen=True)
class Examples:
    """Inputs under one keyword and their targets."""

    keyword: str
    inputs: Tensor
    targets: Tensor

    def __len__(self) -> int:
        return len(self.inputs)

    def first(self, count: int) -> Examples:
        """At most ``count`` of them."""
        return Examples(self.keyword, self.inputs[:count], self.targets[:count])

    @property
    def text(self) -> bool:
        """Whether the inputs are tokens."""
        return not self.inputs.is_floating_point()

    def judged(self, count: int | None) -> Examples:
        """Those that a line is judged on: at most ``count``, or as many as are sane for a curve of many points."""
        return self.first(count or (JUDGED_WINDOWS if self.text else JUDGED_IMAGES))

    def batches(self, size: int) -> list[Batch]:
        """In order, about ``size`` at a time and as equal as can be: a mean over batches is one over examples."""
        count = -(-len(self) // size)
        pairs = zip(torch.tensor_split(self.inputs, count), torch.tensor_split(self.targets, count), strict=True)
        return [({self.keyword: x}, y) for x, y in pairs]

    def shuffled(self, size: int, seed: int) -> Iterator[Batch]:
        """All of them once, in random order."""
        order = torch.randperm(len(self), generator=torch.Generator().manual_seed(seed))
        for chosen in torch.split(order, size):
            yield {self.keyword: self.inputs[chosen]}, self.targets[chosen]


@dataclass(frozen=True)
class Data:
    """What is learned on and what is judged on."""

    train: Examples
    test: Examples


def loss(model: Any, batch: Any) -> Tensor:
    """Mean cross-entropy, in nats, of the logits that the model returns (alone, or as ``.logits``)."""
    kwargs, targets = batch
    result = model(**kwargs)
    logits = result if isinstance(result, Tensor) else getattr(result, "logits", None)
    if logits is None:
        raise DataError("the model returns no logits to take a loss of: use the Python interface with a loss of your own")
    return cross_entropy(logits.flatten(0, -2), targets.flatten())


def read_data(path: Path, model: LoadedModel, context: int | None = None, held_out: Path | None = None) -> Data:
    """The examples in a file for this model; ``held_out`` is a text to judge on instead of the tail of the first."""
    if not path.is_file():
        raise DataError(f"{path} does not exist: --data is a text file or an .npz file")
    if path.suffix == ".npz":
        return _images(path, model)
    return _text(path, model, context, held_out)


def _images(path: Path, model: LoadedModel) -> Data:
    arrays = _arrays(path)
    keyword = _float_input(model)
    expected = tuple(model.kwargs[keyword].shape[1:])
    shift, scale = _normalization(arrays["train_images"], model.path)
    parts = []
    for split in ("train", "test"):
        x, y = arrays[f"{split}_images"], torch.from_numpy(arrays[f"{split}_labels"]).long()
        if len(x) != len(y) or not len(y):
            raise DataError(f"{path}: {split}_images has {len(x)} entries and {split}_labels {len(y)}")
        images = torch.from_numpy(x).float()
        if images.dim() == 3 and len(expected) == 3:
            images = images[:, None]
        if tuple(images.shape[1:]) != expected:
            raise DataError(f"{path}: images are {tuple(images.shape[1:])}, but the model takes {expected}")
        parts.append(Examples(keyword, (images - shift) / scale, y))
    return Data(*parts)


def _arrays(path: Path) -> dict[str, Any]:
    try:
        with np.load(path, allow_pickle=False) as file:
            missing = [key for key in KEYS if key not in file]
            if missing:
                raise DataError(f"{path} has no array {missing[0]!r}; it needs {', '.join(KEYS)}")
            return {key: file[key] for key in KEYS}
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"{path} cannot be read as an .npz file: {error}") from error


def _float_input(model: LoadedModel) -> str:
    names = [name for name, value in model.kwargs.items() if isinstance(value, Tensor) and value.is_floating_point()]
    if len(names) != 1:
        raise DataError(f"images need a model with one floating-point input, this one has {', '.join(names) or 'none'}")
    return names[0]


def _normalization(train: Any, directory: Path | None) -> tuple[Tensor, Tensor]:
    """What to subtract and to divide by, for every channel."""
    if np.issubdtype(train.dtype, np.floating):
        return torch.tensor(0.0), torch.tensor(1.0)
    path = directory / "preprocessor_config.json" if directory is not None else None
    if path is not None and path.is_file():
        values = json.loads(path.read_text(encoding="utf-8"))
        if {"image_mean", "image_std"} <= values.keys():
            factor = values.get("rescale_factor", 1 / 255)
            mean, deviation = (torch.tensor(values[key]).double() / factor for key in ("image_mean", "image_std"))
            return mean[:, None, None].float(), deviation[:, None, None].float()
    wide = train.astype(np.float64)
    return torch.tensor(wide.mean()).float(), torch.tensor(wide.std() or 1.0).float()


def _text(path: Path, model: LoadedModel, context: int | None, held_out: Path | None) -> Data:
    keyword = _token_input(model)
    length = context or min(_context(model), LONGEST_CONTEXT)
    windows = _windows(path, model, length)
    if held_out is not None:
        train, test = windows, _windows(held_out, model, length)
    else:
        count = max(1, int(HELD_OUT * len(windows)))
        if len(windows) < 2:
            raise DataError(f"{path} has only one window of {length} tokens: give more text or a smaller --context")
        train, test = windows[:-count], windows[-count:]
    return Data(Examples(keyword, train[:, :-1], train[:, 1:]), Examples(keyword, test[:, :-1], test[:, 1:]))


def _token_input(model: LoadedModel) -> str:
    """The keyword for tokens, of a model that predicts the next one."""
    if "input_ids" not in model.kwargs:
        raise DataError("text needs a model that takes input_ids: give an .npz file for one that takes images")
    if not _predicts_next(model.module):
        raise DataError(
            f"{type(model.module).__name__} does not predict the next token, so text alone gives no loss: "
            "use the Python interface with a loss of your own"
        )
    return "input_ids"


def _predicts_next(module: nn.Module) -> bool:
    """Whether later tokens leave earlier logits alone. Asked of the model itself, so that its class does not matter."""
    config = getattr(module, "config", None)
    size = min(getattr(config, "vocab_size", 2), 2**15)
    ids = torch.arange(8)[None] % max(size, 2)
    other = ids.clone()
    other[0, -1] = (other[0, -1] + 1) % max(size, 2)
    with torch.no_grad():
        try:
            first, second = (module(input_ids=one).logits[0, :-1] for one in (ids, other))
        except Exception:
            return False
    return torch.allclose(first, second, atol=1e-4, rtol=1e-4)


def _context(model: LoadedModel) -> int:
    config = getattr(model.module, "config", None)
    for name in ("max_position_embeddings", "n_positions", "max_sequence_length"):
        if isinstance(value := getattr(config, name, None), int):
            return value
    return LONGEST_CONTEXT


def _windows(path: Path, model: LoadedModel, length: int) -> Tensor:
    """Token windows w[n, length + 1] that overlap by the one token that is only predicted."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as text: {error}") from error
    ids = torch.tensor(_encode(text, model), dtype=torch.long)
    count = (len(ids) - 1) // length
    if count < 1:
        raise DataError(f"{path} has {len(ids)} tokens, fewer than {length + 1}: give more text or a smaller --context")
    return ids[: count * length + 1].unfold(0, length + 1, length)


def _encode(text: str, model: LoadedModel) -> list[int]:
    if model.path is None:
        raise DataError("text needs a tokenizer, which a factory does not have: give checkpoint directories")
    size = getattr(getattr(model.module, "config", None), "vocab_size", None)
    ids = _token_ids(text, model.path)
    if isinstance(size, int) and ids and max(ids) >= size:
        raise DataError(f"the tokenizer in {model.path} gives token {max(ids)}, but the model knows {size}")
    return ids


def _token_ids(text: str, directory: Path) -> list[int]:
    try:
        if (directory / "tokenizer.json").is_file():
            from tokenizers import Tokenizer

            tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
            return list(tokenizer.encode(text, add_special_tokens=False).ids)
        from transformers import AutoTokenizer

        slow = AutoTokenizer.from_pretrained(str(directory), local_files_only=True, trust_remote_code=False)
        return list(slow(text, add_special_tokens=False)["input_ids"])
    except Exception as error:
        raise DataError(f"{directory} has no tokenizer that can be loaded: {one_line(error)}") from error
