"""Sparse exact linear algebra over the rationals and over GF(2), for scales and signs.

Unknowns are hashable keys. Equations come one by one; every unknown is kept as a combination of free ones, so that the
solution space can be read off at any time. Systems here are almost triangular (an operator defines its result), which keeps
the combinations short.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from fractions import Fraction
from math import gcd, lcm
from typing import Any

Row = dict[Any, Any]


def _add(row: Row, other: Mapping[Any, Any], factor: Any, modulo: int) -> None:
    """``row += factor * other`` in place."""
    for key, value in other.items():
        total = row.get(key, 0) + factor * value
        if modulo:
            total %= modulo
        if total:
            row[key] = total
        else:
            row.pop(key, None)


def _exact(value: Any) -> int | Fraction:
    """An integer where it is one: much faster to compute with than a fraction."""
    if isinstance(value, int):
        return value
    fraction = Fraction(value)
    return fraction.numerator if fraction.denominator == 1 else fraction


class Elimination:
    """Solution space of homogeneous equations; ``modulo`` is 0 for the rationals and 2 for GF(2)."""

    def __init__(self, modulo: int = 0, prefer: Callable[[Hashable], bool] | None = None) -> None:
        self.modulo = modulo
        self.prefer = prefer or (lambda _: False)
        self.rows: dict[Hashable, Row] = {}
        self.uses: dict[Hashable, set[Hashable]] = {}

    def expression(self, key: Hashable) -> Row:
        """The unknown as a combination of free unknowns."""
        if key not in self.rows:
            self.rows[key] = {key: 1}
            self.uses.setdefault(key, set()).add(key)
        return self.rows[key]

    def equation(self, combination: Iterable[tuple[Hashable, Any]]) -> bool:
        """Ask that the combination of unknowns be zero; False if it was already."""
        row: Row = {}
        for key, value in combination:
            factor = _exact(value)
            if self.modulo and not isinstance(factor, int):
                raise ValueError("GF(2) takes integers")
            _add(row, self.expression(key), factor % 2 if self.modulo else factor, self.modulo)
        if not row:
            return False
        pivot = min(row, key=lambda key: (self.prefer(key), len(self.uses[key])))
        scale = row.pop(pivot)
        solved = {key: (value if self.modulo else _exact(Fraction(-value, scale))) for key, value in row.items()}
        for user in self.uses.pop(pivot):
            target = self.rows[user]
            factor = target.pop(pivot, None)
            if factor is None:  # the unknown cancelled from this row since
                continue
            _add(target, solved, factor, self.modulo)
            for key in solved:
                if key in target:
                    self.uses.setdefault(key, set()).add(user)
        return True

    def basis(self, keys: Iterable[Hashable]) -> list[Row]:
        """A basis of the solutions restricted to the given unknowns: integer rows, reduced and without repeats."""
        columns: dict[Hashable, Row] = {}
        for key in keys:
            for free, value in self.rows.get(key, {key: 1}).items():
                columns.setdefault(free, {})[key] = value
        span = Span(self.modulo)
        return [integral(row) if not self.modulo else row for row in columns.values() if span.add(row)]


class Span:
    """A subspace given by generators; says whether a vector adds to it."""

    def __init__(self, modulo: int = 0) -> None:
        self.modulo = modulo
        self.pivots: dict[Hashable, Row] = {}

    def residual(self, row: Mapping[Any, Any]) -> Row:
        """The vector reduced by the subspace; empty if it lies in it."""
        rest = {key: (value % 2 if self.modulo else _exact(value)) for key, value in row.items()}
        rest = {key: value for key, value in rest.items() if value}
        pending = [key for key in rest if key in self.pivots]
        while pending:
            key = pending.pop()
            if key in rest:
                before = set(rest)
                _add(rest, self.pivots[key], -rest[key] if not self.modulo else 1, self.modulo)
                pending += [new for new in rest if new not in before and new in self.pivots]
        return rest

    def add(self, row: Mapping[Any, Any]) -> bool:
        """Enlarge the subspace; False if the vector lay in it."""
        rest = self.residual(row)
        if not rest:
            return False
        pivot = next(iter(rest))
        scale = rest[pivot]
        self.pivots[pivot] = rest if self.modulo else {key: _exact(Fraction(value) / scale) for key, value in rest.items()}
        return True


def integral(row: Mapping[Any, Any]) -> Row:
    """The shortest integer multiple, first entry positive."""
    if not row:
        return {}
    denominator = lcm(*(Fraction(value).denominator for value in row.values()))
    numbers = {key: int(value * denominator) for key, value in row.items()}
    divisor = gcd(*numbers.values())
    sign = 1 if next(iter(numbers.values())) > 0 else -1
    return {key: sign * value // divisor for key, value in numbers.items()}
