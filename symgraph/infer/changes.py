"""What a change is made of, and the operators that treat one in a way of their own."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod

import torch

from symgraph.infer.frames import BrokenError, Frame
from symgraph.infer.interpret import varying_axes
from symgraph.infer.ir import Op, Value

aten = torch.ops.aten

SOFTMAX = {aten.softmax.int, aten._softmax.default, aten.log_softmax.int, aten._log_softmax.default,
            aten._safe_softmax.default}  # fmt: skip
STOCHASTIC = {aten.softmax.int, aten._softmax.default, aten._safe_softmax.default}
SORTS = {aten.topk.default, aten.sort.default, aten.sort.stable}
"""A constant added along their axis is added to the values that come out; the indices stay."""
MASKED = -1e9
"""Scores at most this large have no weight after a softmax."""
READS = {aten.embedding.default, aten.index_select.default, aten.index.Tensor}
SAME = {aten.alias.default, aten.clone.default, aten._to_copy.default, aten.to.dtype, aten.dropout.default,
         aten.contiguous.default, aten.type_as.default}  # fmt: skip


@dataclass(frozen=True)
class Read:
    """A tensor that a change was multiplied with, read as ``(tensor + offset) ** power``; its frame has letters on all axes."""

    tensor: str
    frame: Frame
    power: float = 1.0
    offset: float = 0.0


@dataclass(frozen=True)
class Change:
    """A change of a value: ``coefficient * einsum(value, *reads)`` on a frame. ``exact`` while it is known in full.

    ``uses``: at how many places the parameter that was changed is read. Every one of them has to be taken back.
    """

    frame: Frame
    reads: tuple[Read, ...] = ()
    coefficient: float = 1.0
    exact: bool = True
    uses: int = 1


@dataclass(frozen=True)
class Taken:
    """What a parameter takes back where ``reader`` reads it: its frame, and the change at that point."""

    tensor: str
    frame: Frame
    reads: tuple[Read, ...]
    coefficient: float
    reader: Op | None = field(default=None, compare=False)

    def relettered(self, start: Frame) -> Taken:
        """The same with letters numbered in the order in which they appear, those of ``start`` first."""
        frames = [start, self.frame, *(read.frame for read in self.reads)]
        met = dict.fromkeys(run.letter for frame in frames for runs in frame for run in runs if run.letter)
        number = {letter: str(index) for index, letter in enumerate(met)}

        def renamed(frame: Frame) -> Frame:
            return tuple(tuple(replace(run, letter=number.get(run.letter, "")) for run in runs) for runs in frame)

        reads = tuple(replace(read, frame=renamed(read.frame)) for read in self.reads)
        return replace(self, frame=renamed(self.frame), reads=reads)


VIEWS = {aten.view.default, aten._unsafe_view.default, aten.reshape.default}


def before_views(value: Value, axis: int) -> tuple[Value, int]:
    """What a value was before copies and views that leave one axis whole, and that axis of it."""
    while (op := value.producer) is not None and op.target in SAME | VIEWS:
        source: Value = op.args[0]
        inner = prod(value.shape[axis + 1 :])
        found = [each for each, size in enumerate(source.shape)
                 if size == value.shape[axis] and prod(source.shape[each + 1 :]) == inner]  # fmt: skip
        if len(found) != 1:
            break
        value, axis = source, found[0]
    return value, axis


def sorted_axis(op: Op, rank: int) -> int:
    """The axis along which one of :data:`SORTS` orders."""
    position = 2 if op.target is aten.topk.default else 1
    named = op.kwargs.get("dim", op.args[position] if len(op.args) > position else -1)
    return int(named) % rank


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
    if op.target in (aten.addmm.default, aten.baddbmm.default):
        return float(op.kwargs.get("alpha" if position else "beta", 1))
    if op.target is aten.rsub.Scalar and op.kwargs:
        raise BrokenError
    return 1.0
