"""Sums, products and choices of several tensors, broadcast against each other."""

from __future__ import annotations

from typing import Any

from symgraph.rules.elementwise import EPSILON_LIMIT, broadcast, pointwise
from symgraph.rules.examples import Draw, Example, example
from symgraph.rules.law import (
    CONSTANT,
    EPSILON,
    GENERIC,
    LINEAR,
    POSITIVELY_HOMOGENEOUS,
    Law,
    Power,
    Term,
    power,
    term,
)  # fmt: skip
from symgraph.rules.registry import Call, Operand, lettered, rule


def _law(call: Call, terms: tuple[Term, ...]) -> Law:
    shape = call.shapes[0] or ()
    return Law(broadcast(call.operands, shape), (lettered(shape),), terms)


def number(value: Any) -> tuple[Term, ...]:
    """The monomial of a summand that is a number: none for zero, an epsilon if it is tiny, else a constant."""
    if value == 0:
        return ()
    tiny = isinstance(value, int | float) and 0 < value <= EPSILON_LIMIT
    return (EPSILON,) if tiny else (CONSTANT,)


def addend(argument: Any, factor: Any = 1) -> tuple[Term, ...]:
    """The monomial of one summand: a tensor, or a number that is a constant unless it is zero."""
    if isinstance(argument, Operand):
        return () if argument.value is not None and not argument.value.any() else (term(argument.index),)
    return number(argument * factor)


def pairs(draw: Draw) -> list[Example]:
    """Two tensors of one shape, broadcast ones, a tensor and a number."""
    return [
        example(draw(3, 5), draw(3, 5)), example(draw(7, 3, 5), draw(3, 1)), example(draw(5), draw(3, 5)),
        example(draw(3, 5), 0.2), example(draw(3, 5), draw()),
    ]  # fmt: skip


@rule("aten.add.Tensor", "aten.add.Scalar", "aten.sub.Tensor", "aten.sub.Scalar", "aten.rsub.Tensor", "aten.rsub.Scalar",
      "aten.add_.Tensor", "aten.add_.Scalar", "aten.sub_.Tensor", "aten.sub_.Scalar", "aten.subtract", "aten.subtract_",
      examples=lambda draw: [*pairs(draw), example(draw(3, 5), draw(3, 5), alpha=2), example(draw(3, 5), 0),
                             example(draw(3, 5), 1e-6)])  # fmt: skip
def add(call: Call) -> Law:
    """``x[..] + alpha y[..]``: both enter as themselves, so they share their spaces and their scales."""
    return _law(call, addend(call.args[0]) + addend(call.args[1], call.get(2, "alpha", 1)))


def _product(call: Call, second: Power) -> Law:
    entries = [(argument.index, entry) for argument, entry in zip(call.args[:2], (LINEAR, second), strict=True)
               if isinstance(argument, Operand)]  # fmt: skip
    return _law(call, (Term(tuple(entries)),))


@rule("aten.mul.Tensor", "aten.mul.Scalar", "aten.mul_.Tensor", "aten.mul_.Scalar", "aten.multiply", "aten.multiply_",
      examples=pairs)  # fmt: skip
def mul(call: Call) -> Law:
    """``x[..] * y[..]``: scales multiply; an axis that both have keeps its coordinates."""
    return _product(call, LINEAR)


@rule("aten.div.Tensor", "aten.div.Scalar", "aten.div_.Tensor", "aten.div_.Scalar", "aten.divide.Tensor",
      "aten.divide.Scalar", "aten.divide_.Tensor", "aten.true_divide", "aten.true_divide_", examples=pairs)  # fmt: skip
def div(call: Call) -> Law:
    """``x[..] / y[..]``."""
    return _product(call, power(-1))


@rule("aten.pow.Tensor_Scalar", "aten.pow_.Scalar", examples=lambda draw: [
    example(draw(3, 5), 2), example(draw(3, 5), 3), example(draw(3, 5), -1), example(draw.positive(3, 5), 0.5),
    example(draw.positive(3, 5), 1.7), example(draw(3, 5), 1),
])  # fmt: skip
def pow_scalar(call: Call) -> Law:
    """``x ** p``."""
    return pointwise(call, power(call.args[1]))


@rule("aten.maximum", "aten.minimum", "aten.max.other", "aten.min.other", "aten.fmax", "aten.fmin", examples=pairs)
def extremum(call: Call) -> Law:
    """``max(x, y)``: positively homogeneous in both together."""
    return _law(call, tuple(Term(((operand.index, POSITIVELY_HOMOGENEOUS),)) for operand in call.operands))


@rule("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar", examples=lambda draw: [
    example(draw.mask(3, 5), draw(3, 5), draw(3, 5)), example(draw.mask(3, 1), draw(5), draw(7, 3, 5)),
    example(draw.mask(3, 5), draw(3, 5), 0.0), example(draw.mask(3, 5), draw(5), 2.0),
    example(draw.mask(3, 5), -1.0, draw(3, 5)), example(draw.mask(3, 5), 1.0, 0.0),
])  # fmt: skip
def where(call: Call) -> Law:
    """``where(m, x, y)``: linear in x and y for a given mask."""
    mask = (call.args[0].index, GENERIC)
    terms = [Term((*monomial.powers, mask), monomial.soft) for argument in call.args[1:3] for monomial in addend(argument)]
    return _law(call, tuple(terms))


@rule("aten.masked_fill.Scalar", "aten.masked_fill.Tensor", "aten.masked_fill_.Scalar", "aten.masked_fill_.Tensor",
      examples=lambda draw: [
          example(draw(3, 5), draw.mask(3, 5), 0.5), example(draw(7, 3, 5), draw.mask(3, 1), 0),
          example(draw(3, 5), draw.mask(3, 5), -1e4), example(draw(3, 5), draw.mask(3, 5), draw()),
      ])  # fmt: skip
def masked_fill(call: Call) -> Law:
    """``where(m, value, x)``."""
    mask = (call.args[1].index, GENERIC)
    filled = [Term((*monomial.powers, mask), monomial.soft) for monomial in addend(call.args[2])]
    return _law(call, (Term(((call.args[0].index, LINEAR), mask)), *filled))


def _comparisons(draw: Draw) -> list[Example]:
    masks = [example(draw.mask(3, 5), draw.mask(3, 5)), example(draw.mask(3, 5), True)]
    mixed = [example(0.8, draw(3, 5)), example(draw(3, 5), draw(3, 5), rounding_mode="floor"),
             example(3 * draw(3, 5), 0.3, rounding_mode="trunc"), example(2, draw.integers(7, 3, 5))]  # fmt: skip
    return [*pairs(draw), *masks, *mixed]


@rule("aten.pow.Tensor_Tensor", "aten.pow.Scalar", "aten.pow_.Tensor",
      "aten.float_power.Tensor_Scalar", "aten.float_power.Tensor_Tensor", examples=lambda draw: [
          example(draw.positive(3, 5), draw.positive(3, 5)), example(draw.positive(7, 3, 5), draw.positive(3, 1)),
          example(0.7, draw.positive(3, 5)), example(draw.positive(3, 5), 0.7),
      ])  # fmt: skip
def of_positive(call: Call) -> Law:
    """The same, taken at positive numbers."""
    return _law(call, (Term(tuple((operand.index, GENERIC) for operand in call.operands)),))


@rule("aten.gt", "aten.ge", "aten.lt", "aten.le", "aten.eq", "aten.ne", "aten.logical_and", "aten.logical_or",
      "aten.logical_xor", "aten.bitwise_and", "aten.bitwise_or", "aten.bitwise_xor", "aten.__and__", "aten.__or__",
      "aten.__xor__", "aten.__ior__", "aten.__iand__", "aten.logical_and_", "aten.logical_or_", "aten.bitwise_and_",
      "aten.bitwise_or_", "aten.remainder", "aten.fmod", "aten.floor_divide", "aten.floor_divide_", "aten.atan2",
      "aten.arctan2", "aten.div.Tensor_mode", "aten.div.Scalar_mode",
      "aten.logaddexp", "aten.logaddexp2", "aten.greater", "aten.less", "aten.not_equal", "aten.isclose",
      "aten.hypot", "aten.copysign", "aten.heaviside", "aten.ldexp.Tensor", examples=_comparisons)  # fmt: skip
def compare(call: Call) -> Law:
    """A function of the values at one index, of no particular law."""
    return _law(call, (Term(tuple((operand.index, GENERIC) for operand in call.operands)),))


@rule("aten.xlogy", "aten.special_xlog1py", examples=lambda draw: [
    example(draw(3, 5), draw.positive(3, 5)), example(draw(7, 3, 5), draw.positive(3, 1)), example(0.7, draw.positive(3, 5)),
    example(draw(3, 5), 0.7),
])  # fmt: skip
def times_logarithm(call: Call) -> Law:
    """``x log y``: linear in x."""
    entries = [(each.index, entry) for each, entry in zip(call.args[:2], (LINEAR, GENERIC), strict=True)
               if isinstance(each, Operand)]  # fmt: skip
    return _law(call, (Term(tuple(entries)),))


@rule("aten.polar", examples=lambda draw: [example(draw(3, 5), draw(3, 5))])
def polar(call: Call) -> Law:
    """``r exp(i t)``: linear in the modulus."""
    return _law(call, (Term(((0, LINEAR), (1, GENERIC))),))


@rule("aten.complex", examples=lambda draw: [example(draw(3, 5), draw(3, 5))])
def complex_number(call: Call) -> Law:
    """``x + i y``."""
    return _law(call, (term(0), term(1)))


@rule("aten.lerp.Scalar", examples=lambda draw: [example(draw(3, 5), draw(3, 5), 0.3)])
def interpolate(call: Call) -> Law:
    """``x + w (y - x)`` for a number w."""
    return _law(call, (term(0), term(1)))


@rule("aten.zeros_like", "aten.new_zeros", "aten.empty_like", "aten.new_empty", "aten.zero", "aten.zero_",
      examples=lambda draw: [example(draw(3, 5)), example(draw(3, 5), (7, 3))])  # fmt: skip
def zeros(call: Call) -> Law:
    """A tensor that takes only its shape from the operand."""
    return Law((None,) * len(call.operands), (lettered(call.shapes[0] or ()),), ())


@rule("aten.ones_like", "aten.full_like", "aten.new_ones", "aten.new_full", "aten.fill.Scalar", "aten.fill_.Scalar",
      examples=lambda draw: [example(draw(3, 5)), example(draw(3, 5), 0.7), example(draw(3, 5), (7, 3)),
                             example(draw(3, 5), (7, 3), 0.7)])  # fmt: skip
def constant(call: Call) -> Law:
    """One value everywhere."""
    return Law((None,) * len(call.operands), (lettered(call.shapes[0] or ()),), (CONSTANT,))


@rule("aten.fill.Tensor", "aten.fill_.Tensor", "aten.copy.default", "aten.copy_.default", examples=lambda draw: [
    example(draw(3, 5), draw()), example(draw(7, 3, 5), draw(3, 1)), example(draw(3, 5), draw(3, 5)),
])  # fmt: skip
def overwrite(call: Call) -> Law:
    """``y[..] = source[..]``, broadcast; nothing of the target is left but its shape."""
    shape = call.shapes[0] or ()
    source = call.args[1]
    real = all(dtype.is_floating_point or dtype.is_complex for dtype in (*call.dtypes[:1], source.dtype))
    patterns = broadcast(call.operands, shape)
    return Law((None, *patterns[1:]), (lettered(shape),), (Term(((1, LINEAR if real else GENERIC),)),))


