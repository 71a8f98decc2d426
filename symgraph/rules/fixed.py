"""A fixed linear operator along one axis, found as a region of the graph (rotary embeddings, Hadamard, FFT).

``y[.., i] = sum_j R_p[i, j] x[.., j]`` with a matrix for every position p of the other axes. What is left of the group of
the axis is what commutes with all of them.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from symgraph.rules.law import Law, Structure, Use, term
from symgraph.rules.registry import RULES, Call, lettered


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
