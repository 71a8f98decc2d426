"""Checkpoints on disk: safetensors only, read lazily, written atomically.

A checkpoint is a directory with ``config.json`` and ``model.safetensors``, or with shards and their index, as
transformers writes it; or one ``.safetensors`` file. Nothing here unpickles or executes anything.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from symgraph.errors import CheckpointError

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"


class LazyState(Mapping[str, Tensor]):
    """A state dict whose tensors are read from their files on access. Iterates in the order of the files."""

    def __init__(self, files: Mapping[Path, tuple[str, ...] | None]) -> None:
        """``files``: the names that each file must hold (None: whatever it does)."""
        self._where: dict[str, Path] = {}
        self._handles: dict[Path, Any] = {}
        self._closing = ExitStack()
        for path, names in files.items():
            self._handles[path] = self._closing.enter_context(open_safetensors(path))
            held = list(self._handles[path].keys())
            missing = set(names or ()) - set(held)
            if missing:
                raise CheckpointError(f"{path} lacks the tensor {min(missing)!r} that the index says it holds")
            self._where.update(dict.fromkeys(held, path))

    def __getitem__(self, name: str) -> Tensor:
        tensor: Tensor = self._handles[self._where[name]].get_tensor(name)
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._where)

    def __len__(self) -> int:
        return len(self._where)

    def __contains__(self, name: object) -> bool:
        return name in self._where

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor, without reading it."""
        return tuple(self._handles[self._where[name]].get_slice(name).get_shape())

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of all tensors."""
        return {name: self.shape(name) for name in self}

    def close(self) -> None:
        """Release the files."""
        self._closing.close()


def open_safetensors(path: Path) -> Any:
    """An open safetensors file, whose header and length have been checked."""
    if not path.is_file():
        raise CheckpointError(f"{path} is missing")
    try:
        return safe_open(str(path), framework="pt", device="cpu")
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is cut short or no safetensors file: {_first_line(error)}") from error


def read_state(source: str | Path) -> LazyState:
    """The tensors of a checkpoint directory or a ``.safetensors`` file, read when asked for."""
    return LazyState(weight_files(Path(source)))


def weight_files(source: Path) -> dict[Path, tuple[str, ...] | None]:
    """The files that hold a checkpoint's tensors, with the names that an index promises of each."""
    if source.is_file():
        return {source: None}
    if not source.is_dir():
        raise CheckpointError(f"{source} does not exist")
    if (source / SINGLE).is_file():
        return {source / SINGLE: None}
    if (source / INDEX).is_file():
        return _indexed(source)
    loose = sorted(source.glob("*.safetensors"))
    if len(loose) == 1:
        return {loose[0]: None}
    raise CheckpointError(f"{source} holds no {SINGLE} (nor {INDEX}); other formats are not read")


def _indexed(source: Path) -> dict[Path, tuple[str, ...] | None]:
    """Shards by the index; a shard is a plain file name, so that an index cannot point out of its directory."""
    table = read_json(source / INDEX).get("weight_map")
    if not isinstance(table, dict) or not table:
        raise CheckpointError(f"{source / INDEX} has no weight_map")
    names: dict[Path, tuple[str, ...] | None] = {}
    for tensor, shard in table.items():
        if not isinstance(shard, str) or not _is_plain(shard):
            raise CheckpointError(f"{source / INDEX} names {shard!r}: a shard is a .safetensors file beside it")
        names[source / shard] = (*(names.get(source / shard) or ()), tensor)
    return names


def _is_plain(name: str) -> bool:
    return name.endswith(".safetensors") and not name.startswith(".") and not set(name) & set("/\\:\0")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise CheckpointError(f"{path} cannot be read as JSON: {_first_line(error)}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} holds no JSON object")
    return value


def compare_states(a: Mapping[str, Tensor], b: Mapping[str, Tensor], names: tuple[str, str] = ("A", "B")) -> None:
    """Raise a CheckpointError that names the first tensor that only one has, or whose shape differs."""
    first, second = names
    for name in a:
        if name not in b:
            raise CheckpointError(f"tensor {name!r} is in {first} but not in {second}")
        one, other = _shape(a, name), _shape(b, name)
        if one != other:
            raise CheckpointError(f"tensor {name!r} has shape {one} in {first} but {other} in {second}")
    extra = next((name for name in b if name not in a), None)
    if extra is not None:
        raise CheckpointError(f"tensor {extra!r} is in {second} but not in {first}")


def _shape(state: Mapping[str, Tensor], name: str) -> tuple[int, ...]:
    return state.shape(name) if isinstance(state, LazyState) else tuple(state[name].shape)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
