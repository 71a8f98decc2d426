"""Writing a checkpoint that the unmodified model class loads.

The weights go to a directory beside the destination, which takes its name only when all is on disk: a reader never
sees half a checkpoint. Tensors are taken from the state one after the other, so a lazy state of any size streams.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from symgraph.errors import CheckpointError
from symgraph.frontend.checkpoint import INDEX, SINGLE, LazyState, read_json, read_state

LARGEST_SHARD = 5 * 10**9

# What a model or tokenizer needs beside its weights. Code and pickles are not among them.
COPIED = ("*.json", "*.txt", "*.model", "*.tiktoken", "*.jinja", "*.md", "LICENSE*")


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
