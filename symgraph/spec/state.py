"""State dicts as a spec sees them: one tensor may stand there under several names."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from symgraph.errors import CheckpointError
from symgraph.spec import model
from symgraph.spec.model import SymmetrySpec

State = Mapping[str, Tensor]


def names(tensor: model.Tensor, state: State) -> list[str]:
    """The names under which the state dict holds the tensor."""
    return [name for name in (tensor.name, *tensor.aliases) if name in state]


def owners(spec: SymmetrySpec) -> dict[str, model.Tensor]:
    """Typed tensors by name and by alias."""
    return {name: tensor for tensor in spec.tensors for name in (tensor.name, *tensor.aliases)}


def held(spec: SymmetrySpec, state: State) -> list[model.Tensor]:
    """The typed tensors that the state dict holds, all of the right shape, tied ones equal.

    Only buffers that nothing moves may be missing: models keep some outside of their state dict. Raises
    :class:`~symgraph.errors.CheckpointError` naming the tensor.
    """
    found = []
    for tensor in spec.tensors:
        present = names(tensor, state)
        if present:
            value = fetch(tensor, state)
            for other in present[1:]:
                if not _same(value, state[other]):
                    raise CheckpointError(f"tensors {present[0]!r} and {other!r} are one in the spec, but differ")
            found.append(tensor)
        elif tensor.kind == "parameter" or any(True for word in tensor.words for _ in word.factors()):
            raise CheckpointError(f"tensor {tensor.name!r} of the spec is missing from the state dict")
    return found


def fetch(tensor: model.Tensor, state: State) -> Tensor:
    """The tensor's value; CheckpointError if it is missing or has another shape."""
    present = names(tensor, state)
    if not present:
        raise CheckpointError(f"tensor {tensor.name!r} of the spec is missing from the state dict")
    value = state[present[0]]
    if tuple(value.shape) != tensor.shape:
        raise CheckpointError(
            f"tensor {present[0]!r} has shape {tuple(value.shape)}, but the spec expects {tensor.shape}: "
            "is this the checkpoint of another model?"
        )
    return value


def working_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype to compute in: at least float32; integers stay, they are only ever permuted."""
    if dtype.is_floating_point or dtype.is_complex:
        return torch.promote_types(dtype, torch.float32)
    return dtype


def _same(a: Tensor, b: Tensor) -> bool:
    return a is b or a.is_meta or (a.shape == b.shape and torch.equal(a, b))
