"""Elementwise operators, by what they do to scales and signs.

A family is a table: the operators that share a law, with the reason on the line. For every axis of a tensor that such an
operator touches, only the law matters: ``relu(c x) = c relu(x)`` for c > 0 leaves positive scales, ``tanh(-x) = -tanh(x)``
leaves signs, a linear one leaves everything.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from symgraph.rules.law import (
    CONSTANT,
    EPSILON,
    EVEN,
    EVEN_HOMOGENEOUS,
    GENERIC,
    LINEAR,
    ODD,
    POSITIVELY_HOMOGENEOUS,
    Law,
    Pattern,
    Power,
    Term,
    power,
    term,
)
from symgraph.rules.registry import Call, Operand, Rule, lettered, rule

EPSILON_LIMIT = 1e-3
"""A positive constant up to this size, added to something or used as its lower bound, only keeps a division finite."""

UNARY: dict[Power, tuple[str, ...]] = {
    LINEAR: (
        "neg", "clone", "alias", "detach", "contiguous", "dropout", "native_dropout",
        "lift_fresh_copy", "lift_fresh", "feature_dropout", "positive", "real", "alpha_dropout",
    ),
    POSITIVELY_HOMOGENEOUS: ("relu", "relu_", "leaky_relu", "rrelu"),  # f(c x) = c f(x), c > 0
    EVEN_HOMOGENEOUS: ("abs",),  # |c x| = |c| |x|
    ODD: ("tanh", "erf", "sin", "asin", "atan", "sinh", "asinh", "tan", "atanh", "erfinv", "softshrink", "hardshrink"),
    EVEN: ("cos", "cosh"),
    power(0.5): ("sqrt",),
    power(-0.5): ("rsqrt",),
    power(-1): ("reciprocal",),
    power(2): ("square",),
    Power(Fraction(0), 1): ("sign", "sgn"),  # sign(c x) = sign(x), c > 0
    GENERIC: (
        "gelu", "silu", "mish", "sigmoid", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "softplus", "elu",
        "celu", "selu", "hardtanh", "hardswish", "hardsigmoid", "relu6", "log_sigmoid", "threshold", "floor", "ceil",
        "round", "trunc", "frac", "logit", "acos", "digamma", "lgamma", "erfc", "acosh", "nan_to_num", "isnan", "isinf",
        "logical_not", "bitwise_not", "i0",
    ),
}
"""Operators of one tensor argument by the law of their elements."""


def pointwise(call: Call, *powers: Power) -> Law:
    """``x[a, b, ..] -> y[a, b, ..]``: the first operand enters with the given power, on every axis alike."""
    pattern = lettered(call.operands[0].shape)
    return Law((pattern,) + (None,) * (len(call.operands) - 1), (pattern,), (Term(((0, powers[0]),)),))


def _unary(entry: Power) -> Rule:
    def law(call: Call) -> Law:
        return pointwise(call, entry)

    return law


for _power, _names in UNARY.items():
    rule(*(f"aten.{name}" for name in _names))(_unary(_power))


@rule("aten.to", "aten._to_copy", "aten.type_as")
def cast(call: Call) -> Law:
    """A change of dtype: nothing among real numbers, a rounding on the way to integers."""
    to_numbers = bool(call.dtypes) and (call.dtypes[0].is_floating_point or call.dtypes[0].is_complex)
    return pointwise(call, LINEAR if to_numbers else GENERIC)


def broadcast(operands: tuple[Operand, ...], shape: tuple[int, ...]) -> tuple[Pattern, ...]:
    """Patterns of operands that are broadcast to ``shape``: trailing axes align, size one carries no letter."""
    patterns = []
    for operand in operands:
        offset = len(shape) - operand.rank
        patterns.append(tuple(() if size == 1 else f"a{offset + axis}" for axis, size in enumerate(operand.shape)))
    return tuple(patterns)


def _law(call: Call, terms: tuple[Term, ...]) -> Law:
    shape = call.shapes[0] or ()
    return Law(broadcast(call.operands, shape), (lettered(shape),), terms)


def addend(argument: Any) -> tuple[Term, ...]:
    """The monomial of one summand: a tensor, or a number that is a constant unless it is zero."""
    if isinstance(argument, Operand):
        return () if argument.value is not None and not argument.value.any() else (term(argument.index),)
    if argument == 0:
        return ()
    return (EPSILON,) if 0 < argument <= EPSILON_LIMIT else (CONSTANT,)


@rule("aten.add.Tensor", "aten.add.Scalar", "aten.sub.Tensor", "aten.sub.Scalar", "aten.rsub.Tensor", "aten.rsub.Scalar",
      "aten.add_.Tensor", "aten.sub_.Tensor")  # fmt: skip
def add(call: Call) -> Law:
    """``x[..] + alpha y[..]``: both enter as themselves, so they share their spaces and their scales."""
    return _law(call, addend(call.args[0]) + addend(call.args[1]))


def _product(call: Call, second: Power) -> Law:
    entries = [(argument.index, entry) for argument, entry in zip(call.args[:2], (LINEAR, second), strict=True)
               if isinstance(argument, Operand)]  # fmt: skip
    return _law(call, (Term(tuple(entries)),))


@rule("aten.mul.Tensor", "aten.mul.Scalar", "aten.mul_.Tensor", "aten.mul_.Scalar")
def mul(call: Call) -> Law:
    """``x[..] * y[..]``: scales multiply; an axis that both have keeps its coordinates."""
    return _product(call, LINEAR)


@rule("aten.div.Tensor", "aten.div.Scalar", "aten.div_.Tensor", "aten.div_.Scalar")
def div(call: Call) -> Law:
    """``x[..] / y[..]``."""
    return _product(call, power(-1))


@rule("aten.pow.Tensor_Scalar")
def pow_scalar(call: Call) -> Law:
    """``x ** p``."""
    return pointwise(call, power(call.args[1]))


def _all_with(call: Call, entry: Power) -> Law:
    return _law(call, tuple(Term(((operand.index, entry),)) for operand in call.operands))


@rule("aten.maximum", "aten.minimum", "aten.max.other", "aten.min.other", "aten.fmax", "aten.fmin")
def extremum(call: Call) -> Law:
    """``max(x, y)``: positively homogeneous in both together."""
    return _all_with(call, POSITIVELY_HOMOGENEOUS)


@rule("aten.clamp", "aten.clamp_min", "aten.clamp_max", "aten.clamp_", "aten.clamp_min_")
def clamp(call: Call) -> Law:
    """``clamp(x, low, high)``: relu where the only bound is zero; a tiny lower bound is an epsilon."""
    named = "clamp_max" in str(call.target)
    low = None if named else call.get(1, "min")
    high = call.get(1, "max") if named else call.get(2, "max")
    if isinstance(low, Operand) or isinstance(high, Operand):
        return _law(call, tuple(Term(((operand.index, GENERIC),)) for operand in call.operands))
    bounds = [bound for bound in (low, high) if bound not in (None, 0)]
    law = pointwise(call, POSITIVELY_HOMOGENEOUS)
    if not bounds:
        return law
    if high is None and 0 < bounds[0] <= EPSILON_LIMIT:
        return Law(law.operands, law.results, (*law.terms, EPSILON))
    return pointwise(call, GENERIC)


@rule("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar")
def where(call: Call) -> Law:
    """``where(m, x, y)``: linear in x and y for a given mask."""
    mask: Operand = call.args[0]
    terms: list[Term] = []
    for argument in call.args[1:3]:
        for monomial in addend(argument):
            powers = monomial.powers and (*monomial.powers, (mask.index, GENERIC))
            terms.append(Term(powers) if powers else CONSTANT)
    return _law(call, tuple(terms))


@rule("aten.masked_fill.Scalar", "aten.masked_fill.Tensor", "aten.masked_fill_.Scalar")
def masked_fill(call: Call) -> Law:
    """``where(m, value, x)``."""
    kept = Term(((call.args[0].index, LINEAR), (call.args[1].index, GENERIC)))
    return _law(call, (kept, *addend(call.args[2])))


@rule("aten.gt", "aten.ge", "aten.lt", "aten.le", "aten.eq", "aten.ne", "aten.logical_and", "aten.logical_or",
      "aten.bitwise_and.Tensor", "aten.bitwise_or.Tensor", "aten.__and__.Tensor", "aten.__or__.Tensor",
      "aten.remainder", "aten.fmod", "aten.floor_divide", "aten.atan2", "aten.pow.Tensor_Tensor", "aten.pow.Scalar",
      "aten.div.Tensor_mode", "aten.div.Scalar_mode", "aten.logaddexp", "aten.xlogy.Tensor")  # fmt: skip
def compare(call: Call) -> Law:
    """A function of the values at one index, of no particular law."""
    return _law(call, (Term(tuple((operand.index, GENERIC) for operand in call.operands)),))


@rule("aten.zeros_like", "aten.empty_like", "aten.new_zeros", "aten.new_empty")
def zeros(call: Call) -> Law:
    """A tensor that takes only its shape from the operand."""
    return Law((None,) * len(call.operands), (lettered(call.shapes[0] or ()),), ())


@rule("aten.ones_like", "aten.full_like", "aten.new_ones", "aten.new_full")
def constant(call: Call) -> Law:
    """One value everywhere."""
    return Law((None,) * len(call.operands), (lettered(call.shapes[0] or ()),), (CONSTANT,))
