"""The point of an orbit that two checkpoints can be compared at: free of shifts, then of least norm."""

from __future__ import annotations

import torch
from torch import Tensor

from symgraph.errors import CheckpointError
from symgraph.match.balance import balance
from symgraph.match.gauge import gauge
from symgraph.match.selection import Selection
from symgraph.spec.model import SymmetrySpec
from symgraph.spec.state import State, held, names
from symgraph.spec.transform import Transform


def normal_form(spec: SymmetrySpec, canon: State, selection: Selection) -> Transform:
    """What brings a canonical state there, with the symmetries that take part."""
    freed = gauge(spec, canon, selection.shifts)
    return balance(spec, wide(freed, canon), selection).compose(freed)


def wide(move: Transform, state: State) -> dict[str, Tensor]:
    """The moved state in float64: what is compared is not rounded in between."""
    return move.apply({name: value.double() if value.is_floating_point() else value for name, value in state.items()})


def checked(spec: SymmetrySpec, state: State, which: str) -> State:
    """The state, if it fits the spec and is finite; CheckpointError names the tensor and ``which`` checkpoint."""
    for tensor in held(spec, state):
        name = names(tensor, state)[0]
        value = state[name]
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            kind = "NaN" if bool(torch.isnan(value).any()) else "infinite values"
            raise CheckpointError(f"tensor {name!r} of the {which} checkpoint holds {kind}")
    return state
