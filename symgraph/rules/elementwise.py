"""Elementwise operators, by what they do to scales and signs.

A family is a table: the operators that share a law, with the reason on the line. For every axis of a tensor that such an
operator touches, only the law matters: ``relu(c x) = c relu(x)`` for c > 0 leaves positive scales, ``tanh(-x) = -tanh(x)``
leaves signs, a linear one leaves everything.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import torch

from symgraph.rules.examples import Draw, Example, example
from symgraph.rules.law import (
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
)
from symgraph.rules.registry import Call, Operand, Rule, lettered, rule

EPSILON_LIMIT = 1e-3
"""A positive constant up to this size, added to something or used as its lower bound, only keeps a division finite."""

UNARY: dict[Power, tuple[str, ...]] = {
    LINEAR: (
        "neg", "clone", "alias", "detach", "contiguous", "lift_fresh_copy", "lift_fresh", "positive", "real", "_conj",
        "conj", "imag", "resolve_conj", "resolve_neg", "negative", "conj_physical", "_conj_physical", "deg2rad", "rad2deg",
    ),
    POSITIVELY_HOMOGENEOUS: ("relu", "leaky_relu"),  # f(c x) = c f(x), c > 0
    EVEN_HOMOGENEOUS: ("abs", "absolute"),  # |c x| = |c| |x|
    ODD: (
        "tanh", "erf", "sin", "asin", "atan", "sinh", "asinh", "tan", "atanh", "erfinv", "softshrink", "hardshrink",
        "special_erf", "arctan", "arcsin", "arctanh", "arcsinh", "trunc", "fix", "frac", "round",
    ),
    EVEN: ("cos", "cosh", "sinc", "special_sinc", "i0"),
    power(0.5): ("sqrt",),
    power(-0.5): ("rsqrt",),
    power(-1): ("reciprocal",),
    power(2): ("square",),
    Power(Fraction(0), 1): ("sign", "sgn"),  # sign(c x) = sign(x), c > 0
    Power(Fraction(0), 0): ("isnan", "isinf", "isfinite"),  # of c x what it is of x
    Power(Fraction(0), None): ("angle", "signbit"),  # the same, c > 0
    GENERIC: (
        "gelu", "silu", "mish", "sigmoid", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "softplus", "elu",
        "celu", "selu", "hardswish", "hardsigmoid", "relu6", "log_sigmoid", "floor", "ceil", "logit", "acos", "digamma",
        "lgamma", "erfc", "acosh", "nan_to_num", "logical_not", "bitwise_not", "special_expit", "special_expm1", "arccos",
        "arccosh", "special_gammaln", "special_log1p", "special_ndtri", "special_ndtr",
    ),
}
"""Operators of one tensor argument by the law of their elements; each with its variant in place, where torch has one."""

BETWEEN_ONES = frozenset({
    "asin", "atanh", "erfinv", "arcsin", "arctanh", "acos", "arccos",
})  # fmt: skip
"""Defined between -1 and 1."""
POSITIVE = frozenset({
    "sqrt", "rsqrt", "log", "log2", "log10", "log1p", "special_log1p", "lgamma", "special_gammaln", "digamma",
})  # fmt: skip
"""Taken at positive numbers."""
ABOVE_ONE = frozenset({"acosh", "arccosh"})
WITHIN_ONE = frozenset({"logit", "special_ndtri"})
COMPLEX = frozenset({"imag", "angle", "_conj"})


def pointwise(call: Call, *powers: Power) -> Law:
    """``x[a, b, ..] -> y[a, b, ..]``: the first operand enters with the given power, on every axis alike."""
    pattern = lettered(call.operands[0].shape)
    results = (pattern, *(None for _ in call.shapes[1:]))
    return Law((pattern,) + (None,) * (len(call.operands) - 1), results, (Term(((0, powers[0]),)),))


def _unary(entry: Power) -> Rule:
    def law(call: Call) -> Law:
        return pointwise(call, entry)

    law.__doc__ = f"elementwise: {_words(entry)}"
    return law


def _words(entry: Power) -> str:
    """What the function does to scales and signs."""
    factor = "c " if entry.degree == 1 else "" if entry.degree == 0 else f"c^{entry.degree} "
    scales = [f"f(c x) = {factor}f(x) for c > 0"] if entry.degree is not None else []
    signs = {1: ["f(-x) = -f(x)"], 0: ["f(-x) = f(x)"]}.get(-1 if entry.parity is None else entry.parity, [])
    return ", ".join(scales + signs) or "keeps the coordinates, no more"


def _one_tensor(name: str) -> Callable[[Draw], list[Example]]:
    def examples(draw: Draw) -> list[Example]:
        if name in POSITIVE | ABOVE_ONE | WITHIN_ONE:
            x = draw.positive(3, 5)
            return [example(x + 1 if name in ABOVE_ONE else x / 2.5 if name in WITHIN_ONE else x)]
        if name in COMPLEX:
            return [example(torch.complex(draw(3, 5), draw(3, 5)))]
        if name in ("logical_not", "bitwise_not"):
            return [example(draw.mask(3, 5))]
        x = draw.small(3, 5) if name in BETWEEN_ONES else 2 * draw(3, 5)
        return [example(x), example(x, decimals=1)] if name == "round" else [example(x)]

    return examples


for _power, _names in UNARY.items():
    for _name in _names:
        rule(f"aten.{_name}", f"aten.{_name}_", examples=_one_tensor(_name))(_unary(_power))


@rule("aten.to", "aten._to_copy", "aten.type_as", "aten._autocast_to_full_precision", "aten._cast_Float", "aten._cast_Double",
      examples=lambda draw: [
          example(draw(3, 5)), example(draw(3, 5), torch.float32), example(draw(3, 5), dtype=torch.float64),
          example(2 * draw(3, 5), torch.int64), example(2 * draw(3, 5), draw(3, 5)), example(2 * draw(3, 5), dtype=torch.int64),
          example(draw.mask(3, 5), torch.float64), example(draw(3, 5), torch.device("cpu"), torch.float64),
          example(draw(3, 5), True, True), example(2 * draw(3, 5), dtype=torch.int64, device=torch.device("cpu")),
      ])  # fmt: skip
def cast(call: Call) -> Law:
    """A change of dtype: nothing among real numbers; integers are no multiples of what they were computed from."""
    numbers = (*call.dtypes[:1], call.operands[0].dtype)
    real = all(dtype.is_floating_point or dtype.is_complex for dtype in numbers) and len(numbers) == 2
    return pointwise(call, LINEAR if real else GENERIC)


@rule("aten.dropout", "aten.dropout_", "aten.feature_dropout", "aten.feature_dropout_", "aten.alpha_dropout",
      "aten.alpha_dropout_", "aten.feature_alpha_dropout", "aten.feature_alpha_dropout_", "aten.native_dropout",
      examples=lambda draw: [example(draw(3, 5), 0.5, False), example(draw(3, 5), 0.0, True)])  # fmt: skip
def dropout(call: Call) -> Law | None:
    """Nothing, outside of training; there the mask is drawn along every axis."""
    probability, training = call.get(1, "p", 0.5), call.get(2, "train", True)
    return pointwise(call, LINEAR) if not training or probability == 0 else None


@rule("aten.rrelu", "aten.rrelu_", examples=lambda draw: [example(draw(3, 5), 0.1, 0.3, False)])
def randomized_relu(call: Call) -> Law | None:
    """Leaky relu of the mean slope, outside of training."""
    return None if call.get(3, "training", False) else pointwise(call, POSITIVELY_HOMOGENEOUS)


@rule("aten.threshold", "aten.threshold_", examples=lambda draw: [example(draw(3, 5), 0, 0), example(draw(3, 5), 0.1, 0.2)])
def threshold(call: Call) -> Law:
    """``x if x > t else v``: relu where both are zero."""
    plain = call.get(1, "threshold") == 0 and call.get(2, "value") == 0
    return pointwise(call, POSITIVELY_HOMOGENEOUS if plain else GENERIC)


def _bounded(call: Call, low: Any, high: Any) -> Law:
    """``min(max(x, low), high)`` for numbers or None."""
    bounds = [bound for bound in (low, high) if bound is not None]
    if low is not None and high is not None and low >= high:
        return pointwise(call, GENERIC)  # one number everywhere
    if not any(bounds):
        return pointwise(call, POSITIVELY_HOMOGENEOUS)
    if high is None and 0 < low <= EPSILON_LIMIT:
        law = pointwise(call, POSITIVELY_HOMOGENEOUS)
        return Law(law.operands, law.results, (*law.terms, EPSILON))
    return pointwise(call, ODD if len(bounds) == 2 and low == -high else GENERIC)


@rule("aten.hardtanh", "aten.hardtanh_", examples=lambda draw: [
    example(draw(3, 5)), example(draw(3, 5), -0.5, 0.5), example(draw(3, 5), 0.0, 0.6), example(draw(3, 5), -0.2, 0.6),
])  # fmt: skip
def hardtanh(call: Call) -> Law:
    """``clamp(x, low, high)``: odd where the bounds are opposite."""
    return _bounded(call, call.get(1, "min_val", -1), call.get(2, "max_val", 1))


@rule("aten.clamp", "aten.clamp_", "aten.clamp_min", "aten.clamp_min_", "aten.clamp_max", "aten.clamp_max_",
      examples=lambda draw: [
          example(draw(3, 5), 0), example(draw(3, 5), -0.4), example(draw(3, 5), -0.5, 0.5), example(draw(3, 5), None, 0.0),
          example(draw(3, 5), 1e-5), example(draw(3, 5), draw(3, 5) - 1), example(draw(3, 5), None, draw(5) + 1),
          example(draw(3, 5), min=-0.1, max=0.8),
      ])  # fmt: skip
def clamp(call: Call) -> Law:
    """``clamp(x, low, high)``: relu where the only bound is zero, odd between opposite ones; a tiny lower one is an epsilon."""
    only_high = "clamp_max" in str(call.target)
    low = None if only_high else call.get(1, "min")
    high = call.get(1, "max") if only_high else call.get(2, "max")
    if not (isinstance(low, Operand) or isinstance(high, Operand)):
        return _bounded(call, low, high)
    shape = call.shapes[0] or ()
    numbers = [bound for bound in (low, high) if isinstance(bound, int | float) and bound != 0]
    entry = GENERIC if numbers else POSITIVELY_HOMOGENEOUS
    terms = tuple(Term(((operand.index, entry),)) for operand in call.operands)
    return Law(broadcast(call.operands, shape), (lettered(shape),), terms)


def broadcast(operands: tuple[Operand, ...], shape: tuple[int, ...]) -> tuple[Pattern, ...]:
    """Patterns of operands that are broadcast to ``shape``: trailing axes align, size one carries no letter."""
    patterns = []
    for operand in operands:
        offset = len(shape) - operand.rank
        patterns.append(tuple(() if size == 1 else f"a{offset + axis}" for axis, size in enumerate(operand.shape)))
    return tuple(patterns)
