"""What a change is made of, and the operators that treat one in a way of their own."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from symgraph.infer.frames import BrokenError, Frame
from symgraph.infer.interpret import varying_axes
from symgraph.infer.ir import Op, Value

aten = torch.ops.aten

SOFTMAX = {aten.softmax.int, aten._softmax.default, aten.log_softmax.int, aten._log_softmax.default,
            aten._safe_softmax.default}  # fmt: skip
STOCHASTIC = {aten.softmax.int, aten._softmax.default, aten._safe_softmax.default}
MASKED = -1e9
"""Scores at most this large have no weight after a softmax."""
READS = {aten.embedding.default, aten.index_select.default, aten.index.Tensor}
SAME = {aten.alias.default, aten.clone.default, aten._to_copy.default, aten.to.dtype, aten.dropout.default,
         aten.contiguous.default, aten.type_as.default}  # fmt: skip


@dataclass(frozen=True)
class Read:
    """A tensor that a change was multiplied with: its frame names the letters of its axes."""

    tensor: str
    frame: Frame
    reciprocal: bool = False


@dataclass(frozen=True)
class Change:
    """A change of a value: ``coefficient * einsum(value, *reads)`` on a frame. ``exact`` while it is known in full."""

    frame: Frame
    reads: tuple[Read, ...] = ()
    coefficient: float = 1.0
    exact: bool = True


@dataclass(frozen=True)
class Taken:
    """What a parameter takes back: its frame, and the change at that point."""

    tensor: str
    frame: Frame
    reads: tuple[Read, ...]
    coefficient: float


def lets_pass(op: Op, mask: Value) -> bool:
    """Whether a mask replaces nothing, or differs along its axes so that the change does too."""
    if op.target is not aten.masked_fill.Scalar or mask.constant is None:
        return bool(varying_axes(mask))
    return bool(varying_axes(mask)) or not bool(mask.constant.any())


def coefficient(op: Op, position: int) -> float:
    """The number by which the operator multiplies an operand that enters as itself."""
    if op.target in (aten.neg.default,):
        return -1.0
    if op.target in (aten.add.Tensor, aten.sub.Tensor):
        alpha = float(op.kwargs.get("alpha", 1))
        second = op.args[1] if len(op.args) > 1 else None
        is_second = isinstance(second, Value) and position == len([a for a in op.args[:1] if isinstance(a, Value)])
        if not is_second:
            return 1.0
        return -alpha if op.target is aten.sub.Tensor else alpha
    scalar = op.args[1] if len(op.args) > 1 else None
    if op.target in (aten.mul.Tensor, aten.mul.Scalar) and isinstance(scalar, int | float):
        return float(scalar)
    if op.target in (aten.div.Tensor, aten.div.Scalar) and isinstance(scalar, int | float):
        return 1.0 / float(scalar)
    if op.target in (aten.rsub.Scalar, aten.addmm.default, aten.baddbmm.default) and op.kwargs:
        raise BrokenError
    return 1.0
