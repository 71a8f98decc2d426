"""Transforms on disk: one safetensors file, self-contained, no pickle.

The metadata hold the spec (as text) and, for every stage, the names of its spaces and shifts in order; arrays are
keyed ``stage/s/number/field`` with ``field`` one of ``matrix``, ``permutation``, ``log/generator``, ``sign/generator``
for spaces, and ``stage/s/shift/number`` for shifts.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from symgraph.algebra.elements import Element, Matrix, Monomial, lead
from symgraph.errors import SpecError
from symgraph.spec import codec
from symgraph.spec.model import Space, SymmetrySpec
from symgraph.spec.stages import Stage

FORMAT = "symgraph transform 1"
Arrays = dict[str, torch.Tensor]


def write(path: str | os.PathLike[str], spec: SymmetrySpec, stages: Sequence[Stage]) -> None:
    """Write a transform; the file appears whole or not at all."""
    arrays: Arrays = {}
    described = []
    for s, stage in enumerate(stages):
        for k, element in enumerate(stage.elements.values()):
            arrays |= {f"stage/{s}/{k}/{field}": value for field, value in _fields(element).items()}
        arrays |= {f"stage/{s}/shift/{k}": value for k, (_, value) in enumerate(stage.shifts)}
        described.append({"spaces": list(stage.elements), "shifts": [name for name, _ in stage.shifts]})
    metadata = {"format": FORMAT, "spec": codec.dumps(spec), "stages": json.dumps(described)}
    path = Path(path)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
        own = {key: value.detach().cpu().clone().contiguous() for key, value in arrays.items()}
        save_file(own, temporary, metadata)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def read(path: str | os.PathLike[str], spec: SymmetrySpec | None = None) -> tuple[SymmetrySpec, tuple[Stage, ...]]:
    """Read and check a transform; SpecError says what is wrong with it."""
    try:
        with safe_open(path, "pt") as file:
            metadata, arrays = file.metadata() or {}, {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise SpecError(f"{path}: not a readable transform: {str(error).splitlines()[0]}") from None
    if metadata.get("format") != FORMAT:
        raise SpecError(f"{path}: not a transform (format {metadata.get('format')!r}, expected {FORMAT!r})")
    try:
        own = codec.loads(metadata["spec"], f"{path}: spec")
        if spec is not None and codec.digest(spec) != codec.digest(own):
            raise SpecError(f"{path}: this transform belongs to another spec (of {own.identity.model!r})")
        described = json.loads(metadata["stages"])
        stages = tuple(_stage(s, one, arrays, own) for s, one in enumerate(described))
    except (KeyError, TypeError, ValueError) as error:
        raise SpecError(f"{path}: the transform is incomplete: {error}") from None
    return own, stages


def _fields(element: Element) -> Arrays:
    if isinstance(element, Matrix):
        return {"matrix": element.matrix}
    logs = {f"log/{name}": value for name, value in element.log.items()}
    signs = {f"sign/{name}": value for name, value in element.sign.items()}
    return {"permutation": element.permutation} | logs | signs


def _stage(s: int, described: dict[str, list[str]], arrays: Arrays, spec: SymmetrySpec) -> Stage:
    spaces, values = spec.space_map, {shift.name: shift.shape for shift in spec.shifts}
    elements = {
        name: _element(spaces[name], f"stage/{s}/{k}/", arrays, spaces) for k, name in enumerate(described["spaces"])
    }
    shifts = []
    for k, name in enumerate(described["shifts"]):
        value = arrays[f"stage/{s}/shift/{k}"]
        if tuple(value.shape) != values[name]:
            raise ValueError(f"shift {name!r} has shape {tuple(value.shape)}, expected {values[name]}")
        shifts.append((name, value))
    return Stage(elements, tuple(shifts))


def _element(space: Space, prefix: str, arrays: Arrays, spaces: dict[str, Space]) -> Element:
    shape = (*lead(space, spaces), space.size)

    def take(field: str, expected: tuple[int, ...]) -> torch.Tensor:
        value = arrays[prefix + field]
        if tuple(value.shape) != expected:
            raise ValueError(f"{field} of space {space.name!r} has shape {tuple(value.shape)}, expected {expected}")
        return value

    if space.group.is_matrix:
        return Matrix(take("matrix", (*shape, space.size)), space.group.is_orthogonal)
    permutation = take("permutation", shape)
    if not torch.equal(permutation.sort(-1).values, torch.arange(space.size).expand(shape)):
        raise ValueError(f"space {space.name!r} holds no permutation")
    logs = {scale.name: take(f"log/{scale.name}", shape) for scale in space.scales}
    signs = {scale.name: take(f"sign/{scale.name}", shape) for scale in space.scales}
    return Monomial(permutation, logs, signs)
