"""Operators that reduce or mix along an axis: sums, extrema, softmax, pooling."""

from __future__ import annotations

from collections.abc import Iterable

from symgraph.rules.law import GENERIC, LINEAR, POSITIVELY_HOMOGENEOUS, Law, Pattern, Power, Term, Use, pin
from symgraph.rules.registry import Call, lettered, rule


def _axes(dims: int | Iterable[int] | None, rank: int) -> set[int]:
    if dims is None:
        return set(range(rank))
    found = {dims % rank} if isinstance(dims, int) else {axis % rank for axis in dims}
    return found or set(range(rank))


def reduce(call: Call, dims: int | Iterable[int] | None, keepdim: bool, entry: Power) -> Law:
    """``x[.., k] -> y[..]``, for every result that the call has."""
    operand = call.operands[0]
    pattern = lettered(operand.shape)
    axes = _axes(dims, max(1, operand.rank))
    result: Pattern = tuple(() if axis in axes else letter for axis, letter in enumerate(pattern)
                            if keepdim or axis not in axes)  # fmt: skip
    return Law((pattern,), (result,) + (None,) * (len(call.shapes) - 1), (Term(((0, entry),)),))


@rule("aten.sum.dim_IntList", "aten.mean.dim", "aten.nansum")
def linear_reduction(call: Call) -> Law:
    """``sum_k x[.., k]``, ``mean_k x[.., k]``: pairs the axis with the vector of ones."""
    return reduce(call, call.get(1, "dim"), call.get(2, "keepdim", False), LINEAR)


@rule("aten.sum.default", "aten.mean.default")
def full_reduction(call: Call) -> Law:
    """The same over all axes."""
    return reduce(call, None, False, LINEAR)


@rule("aten.amax", "aten.amin", "aten.max.dim", "aten.min.dim")
def extreme_reduction(call: Call) -> Law:
    """``max_k x[.., k]``: positively homogeneous, blind to the order."""
    return reduce(call, call.get(1, "dim"), call.get(2, "keepdim", False), POSITIVELY_HOMOGENEOUS)


@rule("aten.logsumexp", "aten.any.dim", "aten.all.dim", "aten.std.dim")
def generic_reduction(call: Call) -> Law:
    """A function of the values along the axis, blind to their order."""
    return reduce(call, call.get(1, "dim"), call.get(2, "keepdim", False), GENERIC)


@rule("aten.softmax.int", "aten._softmax", "aten.log_softmax.int", "aten._log_softmax", "aten._safe_softmax")
def softmax(call: Call) -> Law:
    """``softmax_k x[.., k]``: elementwise for all other axes, mixes along k, commutes with its permutations."""
    pattern = lettered(call.operands[0].shape)
    letter = pattern[call.args[1]]
    mixes = (letter,) if isinstance(letter, str) else ()
    return Law((pattern,), (pattern,), (Term(((0, GENERIC),)),), mixes=mixes)


def _pool(call: Call, spatial: int, entry: Power) -> Law:
    operand, shape = call.operands[0], call.shapes[0] or ()
    first = operand.rank - spatial
    before = (*lettered(operand.shape[:first]), *lettered(operand.shape[first:], "s"))
    after = (*lettered(shape[:first]), *lettered(shape[first:], "t"))
    uses: list[Use] = []
    for axis in (*before[first:], *after[first:]):
        if isinstance(axis, str):
            uses += pin(axis, "position of a pooling window")
    return Law((before,), (after,) + (None,) * (len(call.shapes) - 1), (Term(((0, entry),)),), tuple(uses))


def _spatial(call: Call) -> int:
    return int(next(character for character in str(call.target) if character.isdigit()))


@rule("aten.max_pool1d", "aten.max_pool2d", "aten.max_pool3d", "aten.max_pool2d_with_indices",
      "aten.adaptive_max_pool1d", "aten.adaptive_max_pool2d")  # fmt: skip
def max_pool(call: Call) -> Law:
    """``x[b, c, s..] -> y[b, c, t..]``: the largest of a window, positively homogeneous."""
    return _pool(call, _spatial(call), POSITIVELY_HOMOGENEOUS)


@rule("aten.avg_pool1d", "aten.avg_pool2d", "aten.avg_pool3d", "aten.adaptive_avg_pool1d", "aten.adaptive_avg_pool2d",
      "aten._adaptive_avg_pool2d", "aten.adaptive_avg_pool3d", "aten.upsample_nearest1d", "aten.upsample_nearest2d",
      "aten.upsample_bilinear2d", "aten.upsample_bicubic2d", "aten.upsample_linear1d",
      "aten._upsample_bilinear2d_aa", "aten._upsample_bicubic2d_aa")  # fmt: skip
def average_pool(call: Call) -> Law:
    """``x[b, c, s..] -> y[b, c, t..]``: linear along the positions, nothing asked of the channels."""
    return _pool(call, _spatial(call), LINEAR)
