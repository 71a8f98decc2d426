"""From a reference on the command line to a module and one example call.

    checkpoint directory        config.json and safetensors: the model with its weights
    path to a config.json       its structure only
    model type                  the default configuration of a type that transformers knows: its structure only
    file.py:factory             a function that returns (module, kwargs)
    package.module:factory      the same

Nothing is downloaded, no pickle is read, and the only code that runs is the factory that was asked for.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from symgraph.errors import CheckpointError, ModelError
from symgraph.frontend.build import build_meta
from symgraph.frontend.checkpoint import read_json, read_state
from symgraph.frontend.factory import call_factory
from symgraph.frontend.inputs import example_inputs

CONFIG = "config.json"

# Tasks in the order in which one is chosen where a configuration names no class: a model with its head, if it has one.
TASKS = (
    "MASKED_LM", "CAUSAL_LM", "SEQ_TO_SEQ_CAUSAL_LM", "ZERO_SHOT_IMAGE_CLASSIFICATION", "IMAGE_CLASSIFICATION",
    "SPEECH_SEQ_2_SEQ", "CTC", "VIDEO_CLASSIFICATION", "AUDIO_CLASSIFICATION", "IMAGE_TEXT_TO_TEXT",
    "OBJECT_DETECTION", "SEMANTIC_SEGMENTATION", "UNIVERSAL_SEGMENTATION", "DEPTH_ESTIMATION",
)  # fmt: skip
DECODING_TASKS = ("SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ")


@dataclass(frozen=True)
class LoadedModel:
    """A module in eval mode, the keyword arguments of an example call, and where it came from.

    ``unused`` are tensors of the checkpoint that the module has no place for.
    """

    module: nn.Module
    kwargs: dict[str, Any]
    path: Path | None
    has_weights: bool
    unused: tuple[str, ...] = ()


def load_model(ref: str | Path, weights: bool = True) -> LoadedModel:
    """Resolve a reference; see the module's head. Without ``weights`` only the structure is built, on the meta device.

    Raises ModelError or CheckpointError, in one line that says what to do.
    """
    text, path = str(ref), Path(ref)
    if path.is_dir():
        return _from_directory(path, weights)
    if path.is_file() and path.suffix == ".json":
        return _structure(read_config(path), None)
    if ":" in text:
        return _from_factory(text, weights)
    if path.suffix == ".py" or path.is_file():
        raise ModelError(f"{text} is a file: write {text}:factory, or give a checkpoint directory or a config.json")
    if "/" in text or path.suffix == ".json":
        raise ModelError(f"{text} does not exist (models are local: nothing is downloaded)")
    return _structure(_default_config(text), None)


def read_config(path: Path) -> Any:
    """The configuration in a ``config.json``."""
    import transformers

    values = read_json(path)
    model_type = values.get("model_type")
    if not isinstance(model_type, str):
        raise ModelError(f"{path} names no model_type; for a module of your own pass file.py:factory")
    _require_known(model_type, f"{path}: ")
    try:
        return transformers.CONFIG_MAPPING[model_type].from_dict(values)
    except Exception as error:
        raise ModelError(f"{path} is no valid configuration of {model_type}: {one_line(error)}") from error


def _require_known(model_type: str, prefix: str = "") -> None:
    import transformers

    known = list(transformers.CONFIG_MAPPING)
    if model_type not in known:
        close = difflib.get_close_matches(model_type, known, n=1, cutoff=0.7)
        hint = f"did you mean {close[0]!r}?" if close else "give a checkpoint directory or file.py:factory"
        raise ModelError(f"{prefix}transformers knows no model type {model_type!r}: {hint}")


def _default_config(model_type: str) -> Any:
    import transformers

    _require_known(model_type)
    try:
        return transformers.CONFIG_MAPPING[model_type]()
    except Exception as error:
        raise ModelError(f"{model_type} has no usable default configuration: {one_line(error)}") from error


def model_class(config: Any) -> Any:
    """The class that the configuration names, or the one of the first task that transformers lists for it."""
    import transformers
    from transformers.models.auto import modeling_auto

    for name in getattr(config, "architectures", None) or ():
        named = getattr(transformers, name, None)
        if isinstance(named, type) and issubclass(named, transformers.PreTrainedModel):
            return named
    decoding = DECODING_TASKS if getattr(config, "is_encoder_decoder", False) else ()
    tables = [getattr(modeling_auto, f"MODEL_FOR_{task}_MAPPING", {}) for task in (*decoding, *TASKS)]
    for table in (*tables, modeling_auto.MODEL_MAPPING):
        if type(config) in table:
            found = table[type(config)]
            return found[0] if isinstance(found, (tuple, list)) else found
    raise ModelError(f"transformers has no model class for {type(config).__name__}")


def _structure(config: Any, path: Path | None) -> LoadedModel:
    cls = model_class(config)
    try:
        with build_meta():
            module = cls(config).eval()
    except Exception as error:
        raise ModelError(f"{cls.__name__} cannot be built from its configuration: {one_line(error)}") from error
    return LoadedModel(module, dict(example_inputs(module, config)), path, has_weights=False)


def _from_directory(path: Path, weights: bool) -> LoadedModel:
    if not (path / CONFIG).is_file():
        raise ModelError(f"{path} has no {CONFIG}: give a checkpoint directory, a config.json or file.py:factory")
    config = read_config(path / CONFIG)
    if not weights:
        return _structure(config, path)
    read_state(path).close()  # says which file is cut short, before anything is built
    module, unused = _load_weights(model_class(config), path, config)
    return LoadedModel(module, dict(example_inputs(module, config)), path, has_weights=True, unused=unused)


def _load_weights(cls: Any, path: Path, config: Any) -> tuple[nn.Module, tuple[str, ...]]:
    """``from_pretrained``, which initialises silently what it does not find: so what it says it did is checked."""
    options = {"local_files_only": True, "use_safetensors": True, "trust_remote_code": False}
    try:
        with _quiet():
            module, report = cls.from_pretrained(
                str(path), config=config, output_loading_info=True, ignore_mismatched_sizes=True, **options
            )
    except Exception as error:
        raise CheckpointError(f"{path} cannot be loaded as {cls.__name__}: {one_line(error)}") from error
    for name, found, expected in sorted(report["mismatched_keys"]):
        raise CheckpointError(f"{path}: tensor {name!r} has shape {tuple(found)}, the model needs {tuple(expected)}")
    for name in sorted(report["missing_keys"]):
        raise CheckpointError(f"{path}: tensor {name!r} is missing, and {cls.__name__} needs it")
    for message in report.get("error_msgs") or ():
        raise CheckpointError(f"{path} cannot be loaded as {cls.__name__}: {one_line(message)}")
    _require_finite(module, f"{path}: ")
    return module.eval(), tuple(sorted(report["unexpected_keys"]))


@contextmanager
def _quiet() -> Iterator[None]:
    """Neither the library's progress bars nor its report, which the caller reads for itself."""
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def _require_finite(module: nn.Module, prefix: str) -> None:
    """Parameters are finite, and buffers (where masks may be infinite) are no NaN."""
    for name, value in module.named_parameters():
        if not value.is_meta and value.is_floating_point() and not bool(torch.isfinite(value).all()):
            kind = "NaN" if bool(torch.isnan(value).any()) else "infinite"
            raise CheckpointError(f"{prefix}tensor {name!r} has {kind} entries")
    for name, buffer in module.named_buffers():
        if not buffer.is_meta and buffer.is_floating_point() and bool(torch.isnan(buffer).any()):
            raise CheckpointError(f"{prefix}tensor {name!r} has NaN entries")


def _from_factory(text: str, weights: bool) -> LoadedModel:
    if weights:
        result = call_factory(text)
    else:
        with build_meta():
            result = call_factory(text)
    if not (isinstance(result, tuple) and len(result) == 2):
        raise ModelError(f"{text} returned {type(result).__name__}, not a pair (module, kwargs)")
    module, kwargs = result
    if not isinstance(module, nn.Module) or not isinstance(kwargs, Mapping):
        raise ModelError(f"{text} returned ({type(module).__name__}, {type(kwargs).__name__}), not (module, kwargs)")
    _require_finite(module, f"{text}: ")
    has_weights = not any(value.is_meta for value in module.parameters())
    return LoadedModel(module.eval(), dict(kwargs), None, has_weights)


def one_line(error: object) -> str:
    """The first line of an error, with the kind of the error where there is one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    kind = f"{type(error).__name__}: " if isinstance(error, BaseException) else ""
    return kind + (lines[0] if lines else "no message")
