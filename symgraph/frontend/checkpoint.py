"""Checkpoints on disk: safetensors only, read lazily, written atomically.

A checkpoint is a directory with ``config.json`` and ``model.safetensors``, or with shards and their index, as
transformers writes it; or one ``.safetensors`` file. Nothing here unpickles or executes anything.

What is written goes to a directory beside the destination, which takes its name only when all is on disk: a reader
never sees half a checkpoint. Tensors are taken from the state one after the other, so a lazy state of any size streams.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from symgraph.errors import CheckpointError

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"

LARGEST_SHARD = 5 * 10**9

# What a model or tokenizer needs beside its weights. Code and pickles are not among them.
COPIED = ("*.json", "*.txt", "*.model", "*.tiktoken", "*.jinja", "*.md", "LICENSE*")


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


def write_checkpoint(
    dst: str | Path,
    state: Mapping[str, Tensor],
    source_dir: str | Path | None = None,
    config_updates: Mapping[str, Any] | None = None,
    *,
    overwrite: bool = False,
    shard_bytes: int = LARGEST_SHARD,
) -> Path:
    """Write ``state`` as a checkpoint directory, with the configuration and tokenizer files of ``source_dir``.

    ``config_updates`` are entries of ``config.json`` to set. An existing directory that is not empty is refused unless
    ``overwrite`` is set; then it is replaced at once, when the new one is complete.
    """
    target = Path(dst)
    if target.exists() and not target.is_dir():
        raise CheckpointError(f"{target} exists and is no directory")
    if target.is_dir() and any(target.iterdir()) and not overwrite:
        raise CheckpointError(f"{target} is not empty: choose another directory or ask to overwrite it")
    with _replacing(target) as folder:
        if source_dir is not None:
            _copy_companions(Path(source_dir), folder)
        if config_updates:
            _update_config(folder / "config.json", config_updates)
        _write_shards(folder, state, _names_of(source_dir), shard_bytes)
    return target


@contextmanager
def _replacing(target: Path) -> Iterator[Path]:
    """A fresh directory beside ``target`` that takes its place when the block ends well, and goes when it does not."""
    target.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    umask = os.umask(0)
    os.umask(umask)
    folder.chmod(0o777 & ~umask)
    retired = folder.with_name(folder.name + ".old")
    try:
        yield folder
        if target.exists():
            target.rename(retired)
        folder.rename(target)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        if retired.exists():
            retired.rename(target)
        raise
    shutil.rmtree(retired, ignore_errors=True)


def _copy_companions(source: Path, folder: Path) -> None:
    for pattern in COPIED:
        for path in sorted(source.glob(pattern)):
            if path.is_file() and not path.name.endswith(".index.json"):
                shutil.copyfile(path, folder / path.name)


def _update_config(path: Path, updates: Mapping[str, Any]) -> None:
    config = read_json(path) if path.exists() else {}
    path.write_text(json.dumps({**config, **updates}, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _names_of(source: str | Path | None) -> frozenset[str]:
    """Names that the source checkpoint holds: they say which of several names of one storage to write."""
    if source is None:
        return frozenset()
    try:
        state = read_state(source)
    except CheckpointError:
        return frozenset()
    state.close()
    return frozenset(state)


def _write_shards(folder: Path, state: Mapping[str, Tensor], known: frozenset[str], shard_bytes: int) -> None:
    shards: list[tuple[Path, list[str]]] = []
    total = 0
    for shard in _shards(_without_aliases(state, known), shard_bytes):
        path = folder / f"model-{len(shards) + 1:05d}.safetensors"
        save_file(shard, str(path), metadata={"format": "pt"})
        total += sum(value.nbytes for value in shard.values())
        shards.append((path, list(shard)))
    if len(shards) == 1:
        shards[0][0].rename(folder / SINGLE)
        return
    table = {}
    for path, names in shards:
        final = path.with_name(f"{path.stem}-of-{len(shards):05d}.safetensors")
        path.rename(final)
        table.update(dict.fromkeys(names, final.name))
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(table.items()))}
    (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def _shards(tensors: Iterator[tuple[str, Tensor]], shard_bytes: int) -> Iterator[dict[str, Tensor]]:
    """Consecutive tensors up to the size of a shard; at least one shard."""
    shard: dict[str, Tensor] = {}
    size = 0
    for name, value in tensors:
        if shard and size + value.nbytes > shard_bytes:
            yield shard
            shard, size = {}, 0
        shard[name] = value
        size += value.nbytes
    yield shard


def _without_aliases(state: Mapping[str, Tensor], known: frozenset[str]) -> Iterator[tuple[str, Tensor]]:
    """Each tensor once: of the names of one storage, those that the source holds, or all if it holds none of them."""
    written: dict[object, str] = {}
    preferred = {_window(state[name]) for name in state if name in known} if not isinstance(state, LazyState) else set()
    for name in state:
        value = state[name].detach()
        key = _window(value)
        if key in preferred and name not in known:
            continue
        # safetensors refuses tensors that share memory
        yield name, value.contiguous().clone() if key in written else value.contiguous()
        written[key] = name


def _window(value: Tensor) -> object:
    """What two tensors have in common when they are one: device, address, shape and strides."""
    if value.numel() == 0 or value.device == torch.device("meta"):
        return id(value)
    return value.device, value.data_ptr(), tuple(value.shape), value.stride(), value.dtype


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
