"""A fixed linear operator along one axis, found as a region of the graph (rotary embeddings, Hadamard, FFT).

``y[.., i] = sum_j R_p[i, j] x[.., j]`` with a matrix for every position p of the other axes. What is left of the group of
the axis is what commutes with all of them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from symgraph.rules.examples import example
from symgraph.rules.law import Law, Structure, Use, term
from symgraph.rules.registry import EXAMPLES, RULES, Call, lettered


def fixed_operator(x: Any, axis: int, matrices: Tensor, varying: tuple[int, ...]) -> Any:
    """Marks the operator in a program; ``varying`` are the axes along which the matrices differ."""
    raise NotImplementedError("a mark for the engine, not a function")


def law(call: Call) -> Law:
    """``x[.., d] -> y[.., d]``, commuting with the matrices [k, n, n]."""
    _, axis, matrices, varying = call.args
    pattern = lettered(call.operands[0].shape)
    uses = [Use(str(pattern[axis]), Structure.OPERATOR, "fixed linear operators along the axis", matrices)]
    uses += [Use(letter, Structure.FIXED, "the operator differs along the axis")
             for each in varying if isinstance(letter := pattern[each], str)]  # fmt: skip
    return Law((pattern,), (pattern,), (term(0),), tuple(uses), mixes=(str(pattern[axis]),))


RULES[fixed_operator] = law
EXAMPLES[fixed_operator] = lambda draw: [
    example(draw(3, 5), 1, torch.nn.functional.pad(_turns(1), (0, 1, 0, 1)), ()),
    example(draw(3, 5, 4), 2, _turns(3), (0,)),
]  # fmt: skip


def _turns(count: int) -> Tensor:
    """Rotations of two planes, [count, 4, 4]."""
    angles = torch.arange(1, count + 1, dtype=torch.float64)
    cos, sin = angles.cos(), angles.sin()
    plane = torch.stack([torch.stack([cos, -sin], -1), torch.stack([sin, cos], -1)], -2)
    return torch.stack([torch.kron(torch.eye(2, dtype=torch.float64), each) for each in plane])
