"""Operators that reduce or mix along an axis: sums, extrema, products, softmax."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from math import prod

from symgraph.rules.examples import Draw, Example, example
from symgraph.rules.law import GENERIC, LINEAR, POSITIVELY_HOMOGENEOUS, Law, Pattern, Power, Term, pin, term
from symgraph.rules.registry import Call, lettered, rule


def _axes(dims: int | Iterable[int] | None, rank: int) -> set[int]:
    if dims is None:
        return set(range(rank))
    found = {dims % rank} if isinstance(dims, int) else {axis % rank for axis in dims}
    return found or set(range(rank))


def reduce(call: Call, dims: int | Iterable[int] | None, keepdim: bool, entry: Power) -> Law:
    """``x[.., k] -> y[..]``, for every result that the call has; a second one says where on the axis it was found."""
    operand = call.operands[0]
    pattern = lettered(operand.shape)
    axes = _axes(dims, max(1, operand.rank))
    result: Pattern = tuple(() if axis in axes else letter for axis, letter in enumerate(pattern)
                            if keepdim or axis not in axes)  # fmt: skip
    along = [pattern[axis] for axis in axes if operand.rank]
    points = (None, ("index", along[0])) if len(call.shapes) == 2 and along and isinstance(along[0], str) else ()
    return Law((pattern,), (result,) * len(call.shapes), (Term(((0, entry),)),), points=points)


def _by_list(draw: Draw) -> list[Example]:
    return [
        example(draw(3, 5, 7), [1]), example(draw(3, 5), [-1], True), example(draw(3, 5, 7), [0, 2], keepdim=True),
        example(draw(3, 5), []),
    ]  # fmt: skip


def _by_axis(draw: Draw) -> list[Example]:
    return [example(draw(3, 5, 7), 1), example(draw(3, 5), -1, True), example(draw(3, 5, 7), 0, keepdim=True)]


def _of_all(draw: Draw) -> list[Example]:
    return [example(draw(3, 5))]


@rule("aten.sum.dim_IntList", "aten.mean.dim", "aten.nansum", "aten.nanmean", examples=_by_list)
def linear_reduction(call: Call) -> Law:
    """``sum_k x[.., k]``, ``mean_k x[.., k]``: pairs the axis with the vector of ones."""
    law = reduce(call, call.get(1, "dim"), call.get(2, "keepdim", False), LINEAR)
    return replace(law, uniform="mean" in str(call.target))


@rule("aten.sum.default", "aten.mean.default", examples=_of_all)
def full_reduction(call: Call) -> Law:
    """The same over all axes."""
    return reduce(call, None, False, LINEAR)


@rule("aten.amax", "aten.amin", examples=_by_list)
def extreme_reduction(call: Call) -> Law:
    """``max_k x[.., k]``: positively homogeneous, blind to the order."""
    return reduce(call, call.get(1, "dim"), call.get(2, "keepdim", False), POSITIVELY_HOMOGENEOUS)


@rule("aten.max.dim", "aten.min.dim", "aten.median.dim", "aten.nanmedian.dim", examples=_by_axis)
def extreme_with_index(call: Call) -> Law:
    """``max_k x[.., k]`` and the k at which it stands."""
    return reduce(call, call.get(1, "dim"), call.get(2, "keepdim", False), POSITIVELY_HOMOGENEOUS)


@rule("aten.max.default", "aten.min.default", "aten.median.default", examples=_of_all)
def full_extreme(call: Call) -> Law:
    """The largest of all entries."""
    return reduce(call, None, False, POSITIVELY_HOMOGENEOUS)


@rule("aten.logsumexp", examples=_by_list)
def logsumexp(call: Call) -> Law:
    """``log sum_k exp x[.., k]``: blind to the order."""
    return reduce(call, call.get(1, "dim"), call.get(2, "keepdim", False), GENERIC)


@rule("aten.any", "aten.all", examples=lambda draw: [
    example(draw.mask(3, 5)), example(draw.mask(3, 5, 7), 1), example(draw.mask(3, 5, 7), [0, 1], True),
    example(draw.mask(3, 5), None),
])  # fmt: skip
def truth(call: Call) -> Law:
    """Whether it holds for one, or all, of the entries along the axis."""
    return reduce(call, call.get(1, "dim"), call.get(2, "keepdim", False), GENERIC)


@rule("aten.prod.dim_int", "aten.prod.default", examples=lambda draw: [
    example(draw(3, 5, 7), 1), example(draw(3, 5), 0, True), example(draw(3, 5)),
])  # fmt: skip
def product(call: Call) -> Law:
    """``prod_k x[.., k]``: homogeneous of as many degrees as there are entries."""
    dim, shape = call.get(1, "dim"), call.operands[0].shape
    count = prod(shape) if dim is None else shape[dim % max(1, len(shape))]
    return reduce(call, dim, call.get(2, "keepdim", False), Power(Fraction(count), None))


@rule("aten.softmax.int", "aten._softmax", "aten.log_softmax.int", "aten._log_softmax", "aten._safe_softmax",
      "aten.softmin", "aten.special_softmax", "aten.special_log_softmax", examples=lambda draw: [
          example(draw(3, 5, 7), 1), example(draw(3, 5, 7), -1), example(draw(3, 5), 1, False), example(draw(3, 5), dim=0),
      ])  # fmt: skip
def softmax(call: Call) -> Law:
    """``softmax_k x[.., k]``: elementwise for all other axes, mixes along k, commutes with its permutations."""
    pattern = lettered(call.operands[0].shape)
    letter = pattern[call.get(1, "dim")] if pattern else ()
    mixes = (letter,) if isinstance(letter, str) else ()
    return Law((pattern,), (pattern,), (Term(((0, GENERIC),)),), mixes=mixes)


@rule("aten.cumprod", "aten.logcumsumexp", "aten.cummax", "aten.cummin", examples=lambda draw: [
    example(draw(3, 5, 7), 1), example(draw(3, 5), -1),
])  # fmt: skip
def running(call: Call) -> Law:
    """A function of all entries up to one: the axis is pinned, the others are elementwise."""
    pattern = lettered(call.operands[0].shape)
    letter = pattern[call.args[1]]
    letters = (letter,) if isinstance(letter, str) else ()
    uses = tuple(use for each in letters for use in pin(each, "a running function along the axis"))
    entry = POSITIVELY_HOMOGENEOUS if "cumm" in str(call.target) else GENERIC
    return Law((pattern,), (pattern,) * len(call.shapes), (Term(((0, entry),)),), uses, mixes=letters)


@rule("aten.trace", examples=lambda draw: [example(draw(5, 5))])
def trace(call: Call) -> Law:
    """``sum_k x[k, k]``: the coordinates of both axes are tied, so they are pinned."""
    uses = tuple(use for letter in "mn" for use in pin(letter, "a trace"))
    return Law((("m", "n"),), ((),), (term(0),), uses)
