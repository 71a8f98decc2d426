"""``apply``: move a checkpoint by a group element, to other weights of the same function."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from symgraph.cli.console import FAILED, OK, complain, show, show_json, working
from symgraph.cli.sources import Source, is_spec, resolve
from symgraph.errors import CheckpointError, SpecError

if TYPE_CHECKING:
    from torch import Tensor

    from symgraph.spec.model import SymmetrySpec
    from symgraph.spec.transform import Transform

ACCEPTED = 1e-3
"""Largest relative change of the outputs of float32 weights; rounding alone stays far below."""


def apply(
    checkpoint: Annotated[str, typer.Argument(metavar="CHECKPOINT", help="Checkpoint directory, or file.py:factory.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Directory to write.")],
    spec: Annotated[Path | None, typer.Option("--spec", metavar="SPEC.JSON", help="The spec; discovered if not given.")] = None,
    transform: Annotated[Path | None, typer.Option("--transform", metavar="FILE", help="The group element to apply.")] = None,
    sample: Annotated[int | None, typer.Option("--sample", metavar="SEED", help="Draw a random one instead.")] = None,
    scale: Annotated[float, typer.Option("--scale", help="Spread of the random one.")] = 1.0,
    save_transform: Annotated[
        Path | None, typer.Option("--save-transform", metavar="FILE", help="Write the element here.")
    ] = None,
    untie: Annotated[bool, typer.Option("--untie", help="Discover the symmetries with tied parameters apart.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace DIR if it is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Move a checkpoint by a group element; its function stays.

    The result has the same outputs, which is checked before it is written, and loads into the unmodified model class.
    It is brought to normal form first (gains absorbed); without --transform and --sample nothing else is done.
    """
    if transform is not None and sample is not None:
        raise SpecError("--transform and --sample exclude each other: give one of them")
    require_free(output, overwrite)
    source = resolve(checkpoint, weights=True)
    document = read_spec(spec, source, untie)
    element = _element(document, transform, sample, scale)
    with working("moving the weights"):
        moved = move(document, source.state(), element)
        error = change(source, document, moved)
    if not error <= ACCEPTED and _is_precise(moved):
        complain(f"not written: the outputs would change by {error:.1e}, so the spec does not hold for {checkpoint}")
        return FAILED
    with replacing(output, overwrite) as folder:
        write_model(folder, moved, source, document)
    if save_transform is not None:
        element.save(save_transform)
    result = {"checkpoint": str(output), "max_relative_error": error, "untied": document.identity.untied}
    show_json(result) if as_json else show(f"written to {output}; outputs differ by {error:.1e} of the largest")
    return OK


def read_spec(path: Path | None, source: Source, untie: bool = False) -> SymmetrySpec:
    """The spec in the file, or that of the model."""
    from symgraph.spec.codec import load_spec

    if path is None:
        return source.spec(untie)
    if path.exists() and not is_spec(path):
        raise SpecError(f"{path} is a model's configuration and no spec: symgraph discover MODEL -o SPEC makes one")
    return load_spec(path)


def move(spec: SymmetrySpec, state: Mapping[str, Tensor], element: Transform) -> dict[str, Tensor]:
    """The checkpoint in normal form, moved; CheckpointError where the result is not finite in its dtype."""
    import torch

    from symgraph.spec.operations import canonicalize

    moved = element.apply(canonicalize(spec, state))
    for name, value in moved.items():
        if value.is_floating_point() and bool(torch.isfinite(state[name]).all()) and not bool(torch.isfinite(value).all()):
            raise CheckpointError(f"tensor {name!r} does not fit into {value.dtype} any more: choose a smaller --scale")
    return moved


def change(source: Source, spec: SymmetrySpec, moved: Mapping[str, Tensor]) -> float:
    """Largest relative difference of the outputs on the example call, computed in float64."""
    from symgraph.frontend.trace import relative_error

    before = source.graph.run(source.state())
    after = source.graph.run(moved, untie=spec.identity.untied)
    return max((relative_error(one, other) for one, other in zip(after, before, strict=True)), default=0.0)


def write_model(folder: Path, state: Mapping[str, Tensor], source: Source, spec: SymmetrySpec) -> None:
    """A checkpoint that the model class loads; an untied one says so in its configuration."""
    from symgraph.frontend.checkpoint import write_checkpoint

    updates: dict[str, Any] = {"tie_word_embeddings": False} if spec.identity.untied and source.graph.aliases else {}
    write_checkpoint(folder, state, source.loaded.path, updates or None, overwrite=True)


def require_free(output: Path, overwrite: bool) -> None:
    """Say before the work begins that there is no place for its result."""
    if output.exists() and not output.is_dir():
        raise CheckpointError(f"{output} exists and is no directory")
    if output.is_dir() and any(output.iterdir()) and not overwrite:
        raise CheckpointError(f"{output} is not empty: choose another directory or pass --overwrite")


@contextmanager
def replacing(output: Path, overwrite: bool) -> Iterator[Path]:
    """A directory beside ``output`` that takes its name when all is written, and is removed when something fails."""
    require_free(output, overwrite)
    output.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{output.name}.", dir=output.parent))
    try:
        folder = scratch / "new"
        folder.mkdir()
        yield folder
        if output.exists():
            output.rename(scratch / "old")
        folder.rename(output)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _element(spec: SymmetrySpec, path: Path | None, seed: int | None, scale: float) -> Transform:
    from symgraph.spec import operations
    from symgraph.spec.transform import Transform, identity_transform

    if path is not None:
        return Transform.load(path, spec)
    return identity_transform(spec) if seed is None else operations.sample(spec, seed, scale)


def _is_precise(state: Mapping[str, Tensor]) -> bool:
    """Whether every weight has at least the 24 bits of float32."""
    import torch

    return all(value.dtype in (torch.float32, torch.float64) for value in state.values() if value.is_floating_point())
