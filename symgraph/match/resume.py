"""A learning run on disk: one safetensors file with the latents, the optimizer, the random stream and the history.

A run goes on only from its own file: options, ends and every batch seen so far are compared, by digest. In a batch only
tensors, arrays, numbers and strings are, whatever tree they hang in; of other objects the type alone.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch
from numpy import ndarray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.utils import _pytree as pytree

from symgraph.errors import MatchError

FORMAT = "symgraph learning 2"


@dataclass
class Progress:
    """How far a run is: steps done, the loss of each, judged losses of the middle, and the best judged latents."""

    step: int = 0
    history: list[float] = field(default_factory=list)
    judged: list[tuple[int, float]] = field(default_factory=list)
    best: dict[str, Tensor] = field(default_factory=dict)
    seen: str = ""  # digest of all batches up to here


def chained(digest: str, tree: Any) -> str:
    """The digest of what was seen before and of one batch (or any tree of tensors and values) more."""
    found = blake2b(digest.encode(), digest_size=16)
    for leaf in pytree.tree_leaves(tree):
        if isinstance(leaf, Tensor):
            found.update(f"{leaf.dtype}{tuple(leaf.shape)}".encode())
            found.update(leaf.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        elif isinstance(leaf, ndarray):
            found.update(f"{leaf.dtype}{leaf.shape}".encode() + leaf.tobytes())
        else:
            plain = leaf is None or isinstance(leaf, (bool, int, float, str, bytes))
            found.update((repr(leaf) if plain else type(leaf).__qualname__).encode())
    return found.hexdigest()


def save(
    path: Path,
    latents: Mapping[str, Tensor],
    optimizer: torch.optim.Optimizer,
    generator: torch.Generator,
    run: str,
    progress: Progress,
) -> None:
    """Write everything; the file appears whole or not at all."""
    arrays = {f"latent/{name}": value for name, value in latents.items()}
    arrays |= {f"best/{name}": value for name, value in progress.best.items()}
    for index, state in optimizer.state_dict()["state"].items():
        arrays |= {f"optimizer/{index}/{key}": torch.as_tensor(value) for key, value in state.items()}
    arrays["generator"] = generator.get_state()
    described = {key: value for key, value in asdict(progress).items() if key != "best"}
    metadata = {"format": FORMAT, "run": run, "progress": json.dumps(described)}
    own = {key: value.detach().cpu().clone().contiguous() for key, value in arrays.items()}
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
        save_file(own, temporary, metadata)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def load(
    path: Path, latents: Mapping[str, Tensor], optimizer: torch.optim.Optimizer, generator: torch.Generator, run: str
) -> Progress:
    """Put everything back in place. MatchError if the file is not of this very run."""
    try:
        with safe_open(path, "pt") as file:
            metadata, arrays = file.metadata() or {}, {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise MatchError(f"{path} is no checkpoint of a learning run: {str(error).splitlines()[0]}") from None
    if metadata.get("format") != FORMAT or metadata.get("run") != run:
        raise MatchError(f"{path} belongs to a run with other options or ends: remove it, or give another file")
    with torch.no_grad():
        for name, value in latents.items():
            value.copy_(arrays[f"latent/{name}"])
    state: dict[int, dict[str, Any]] = {}
    for key, value in arrays.items():
        if key.startswith("optimizer/"):
            _, index, name = key.split("/")
            state.setdefault(int(index), {})[name] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
    generator.set_state(arrays["generator"])
    described = json.loads(metadata["progress"])
    best = {key.removeprefix("best/"): value for key, value in arrays.items() if key.startswith("best/")}
    judged = [(step, value) for step, value in described["judged"]]
    return Progress(described["step"], described["history"], judged, best, described["seen"])
