"""What a rule says about one operator call: a *law*.

A law types every tensor of a call with letters, einops-like, and says how the result depends on the operands as a sum of
monomials. Two letters that are equal name the same index space. Everything the engine needs follows from that alone:

    linear   x[b, t, k], w[n, k], c[n] -> y[b, t, n]      y = x^1 w^1 + c^1

`k` stands on two operands of a monomial and not on the result, so it is a contraction: g on one side, g^-T on the
other, nothing else is asked of its group. `n` stands on one operand and on the result: it passes. Had a letter stood on
two operands *and* the result (a product along the axis) its coordinates would be used; had it stood on one operand only
(a sum) the vector of ones would be. See :meth:`Law.structures`.

An axis is a letter, a tuple of axes (their row-major product; the empty tuple is an axis of size one), or a
:class:`Cat` of axes (a direct sum).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

import torch


@dataclass(frozen=True)
class Cat:
    """A direct sum of axes, one after the other."""

    parts: tuple[Axis, ...]


Axis = str | tuple[Any, ...] | Cat
Pattern = tuple[Axis, ...]


def letters_of(axis: Axis) -> Iterator[str]:
    """All letters of an axis, from left to right."""
    if isinstance(axis, str):
        yield axis
    else:
        for part in axis.parts if isinstance(axis, Cat) else axis:
            yield from letters_of(part)


@lru_cache(maxsize=4096)
def pattern_letters(pattern: Pattern) -> tuple[str, ...]:
    """All letters of a tensor's pattern."""
    return tuple(letter for axis in pattern for letter in letters_of(axis))


def _summands(axis: Axis) -> Iterator[str]:
    """Letters that stand on a part of a direct sum."""
    if isinstance(axis, Cat):
        yield from letters_of(axis)
    elif isinstance(axis, tuple):
        for part in axis:
            yield from _summands(part)


class Structure(str, Enum):
    """What an operator uses of an axis; the group of the space keeps all of it."""

    COORDINATES = "coordinates"
    ONES = "vector of ones"
    INNER = "inner product"
    FIXED = "every index"
    ANCHOR = "scale"
    OPERATOR = "fixed operators"


@dataclass(frozen=True)
class Power:
    """How an operand enters a monomial.

    ``degree`` is the power its magnitude enters with (``None``: not homogeneous, the magnitude is used as it is);
    ``parity`` says what a sign does: 1 passes to the result, 0 disappears, ``None`` is not allowed.
    """

    degree: Fraction | None
    parity: int | None

    @property
    def linear(self) -> bool:
        """Whether the operand enters as itself."""
        return self.degree == 1 and self.parity == 1


LINEAR = Power(Fraction(1), 1)
POSITIVELY_HOMOGENEOUS = Power(Fraction(1), None)
EVEN_HOMOGENEOUS = Power(Fraction(1), 0)
ODD = Power(None, 1)
EVEN = Power(None, 0)
GENERIC = Power(None, None)


def power(exponent: float | int) -> Power:
    """The power of ``x ** exponent``; signs survive odd integers, vanish in even ones and are refused otherwise."""
    exact = Fraction(exponent).limit_denominator(64)
    if float(exact) != float(exponent):
        return GENERIC
    return Power(exact, int(exact) % 2 if exact.denominator == 1 else None)


@dataclass(frozen=True)
class Term:
    """One monomial of the result: operand index to power. No operands: a nonzero constant.

    ``soft`` marks a constant that only keeps a division finite (an epsilon).
    """

    powers: tuple[tuple[int, Power], ...]
    soft: bool = False


def term(*operands: int) -> Term:
    """A product of operands, each entering as itself."""
    return Term(tuple((index, LINEAR) for index in operands))


CONSTANT = Term(())
EPSILON = Term((), soft=True)


PADDED = "padding"
"""The reason of a use along an axis of which some entries do not come from the operand."""


@dataclass(frozen=True)
class Use:
    """A structure that the operator uses along a letter, in words; ``operators`` are matrices [k, n, n] along it."""

    letter: str
    structure: Structure
    reason: str
    operators: torch.Tensor | None = field(default=None, compare=False, hash=False)


def pin(letter: str, reason: str) -> tuple[Use, Use]:
    """Nothing may move along the letter, nor scale it."""
    return Use(letter, Structure.FIXED, reason), Use(letter, Structure.ANCHOR, reason)


@dataclass(frozen=True)
class Law:
    """The answer of a rule. ``operands`` and ``results`` hold one pattern a tensor (``None``: carries no axis to type).

    ``terms`` are the monomials of every result. ``mixes`` are letters along which entries influence each other while
    the letter stays on the result (softmax, cumsum): nothing else may depend on such an index. ``sizes`` gives the
    sizes of letters that never stand alone on an axis. ``points`` says of integer results what they mean: (kind, letter of
    the space that they point to). ``implies`` pairs letters (s, e): every index of s belongs to one index of e;
    ``follows``: and the order along s is that of e. ``uniform``: what is the same at every position along the pinned or
    summed letters of the first operand comes out the same at every position; as it is, if the monomial has no other factor
    (an average), and times the sum of the others over those letters if it has (a convolution without padding).
    """

    operands: tuple[Pattern | None, ...]
    results: tuple[Pattern | None, ...]
    terms: tuple[Term, ...]
    uses: tuple[Use, ...] = ()
    mixes: tuple[str, ...] = ()
    sizes: tuple[tuple[str, int], ...] = ()
    points: tuple[tuple[str, str] | None, ...] = ()
    implies: tuple[tuple[str, str], ...] = ()
    follows: tuple[tuple[str, str], ...] = ()
    uniform: bool = False

    @cached_property
    def summands(self) -> frozenset[str]:
        """Letters on a part of a direct sum: on the other parts they are absent, not summed or repeated."""
        patterns = [pattern for pattern in (*self.operands, *self.results) if pattern is not None]
        return frozenset(letter for pattern in patterns for axis in pattern for letter in _summands(axis))

    def structures(self, patterns: tuple[Pattern | None, ...]) -> Iterator[tuple[str, Structure, str]]:
        """Structures that follow from where the letters stand: (letter, structure, reason).

        ``patterns`` are the operands' patterns, less the axes along which a constant is uniform.
        """
        summands = self.summands
        for result in self.results:
            if result is None:
                continue
            kept = set(pattern_letters(result))
            for monomial in self.terms:
                owned = {letter for index, _ in monomial.powers for letter in pattern_letters(self.operands[index] or ())}
                uniform = owned & kept - _present(monomial, patterns)
                for letter, structure, reason in _of_term(monomial, patterns, kept):
                    if structure is not Structure.ONES or letter not in summands or letter in uniform:
                        yield letter, structure, reason


def _present(monomial: Term, patterns: tuple[Pattern | None, ...]) -> set[str]:
    return {letter for index, _ in monomial.powers for letter in pattern_letters(patterns[index] or ())}


def _of_term(
    monomial: Term, patterns: tuple[Pattern | None, ...], kept: set[str]
) -> Iterator[tuple[str, Structure, str]]:
    where: dict[str, list[Power]] = {}
    for index, entry in monomial.powers:
        for letter in set(pattern_letters(patterns[index] or ())):
            where.setdefault(letter, []).append(entry)
    for letter, powers in where.items():
        linear = all(entry.linear for entry in powers)
        if letter in kept and not (linear and len(powers) == 1):
            reason = "product along the axis" if linear else "elementwise function"
            yield letter, Structure.COORDINATES, reason
        elif letter not in kept and not linear:
            yield letter, Structure.COORDINATES, "elementwise function"
        elif letter not in kept and len(powers) == 1:
            yield letter, Structure.ONES, "sum over the axis"
        elif letter not in kept and len(powers) > 2:
            yield letter, Structure.COORDINATES, "product of more than two factors, summed"
    for letter in kept - set(where):
        yield letter, Structure.ONES, "the same value at every index"
