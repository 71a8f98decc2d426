"""Scale and sign generators, each counted once.

The same scaling can come from several places: multiplying all of head_dim by a number, head by head, is in GL(head_dim) and
is also a scale of the head axis; the same number for all heads is also a scale of whole tensors. A generator is a weight
for every block of every tensor, and a *domain*: the leaves on whose index the number depends. Going from the largest domains to
the smallest, a generator is kept if it is independent of those with a larger or equal domain that were kept before.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from symgraph.algebra.groups import Group
from symgraph.infer.equations import Block, Slot
from symgraph.infer.linear import Row, Span
from symgraph.infer.solve import Leaf, Solution
from symgraph.infer.spaces import IndexSpace

Vector = dict[tuple[int, Block], int]
Domain = frozenset[IndexSpace]


@dataclass(eq=False)
class Generator:
    """A scale (or sign) freedom. ``weights`` are by slot; ``leaf`` is None for one of whole blocks."""

    leaf: IndexSpace | None
    kind: str
    weights: dict[Slot, int]
    domain: Domain


def select(solution: Solution) -> list[Generator]:
    """Independent generators of all leaves and of whole tensors."""
    leaves = sorted(solution.leaves.values(), key=lambda leaf: -len(domain_of(leaf)))
    kept: list[Generator] = []
    real, sign = _Pool(0), _Pool(2)
    for leaf in leaves:
        _contained(leaf, solution, real, sign)
    for leaf in leaves:
        if not leaf.group.is_matrix:
            found = _independent(leaf.space, leaf.exponents, leaf.signs, domain_of(leaf), real, sign)
            kept += found
    kept += _independent(None, solution.exponents, solution.signs, frozenset(), real, sign)
    return kept


def approximate(solution: Solution, kept: Iterable[Generator]) -> list[Row]:
    """Whole-tensor generators that hold up to an epsilon only."""
    real, sign = _Pool(0), _Pool(2)
    for leaf in solution.leaves.values():
        _contained(leaf, solution, real, sign)
    for generator in kept:
        if generator.kind != "sign":
            real.add(_blocks(generator.weights), generator.domain)
    return [row for row in solution.approximate if real.independent(_blocks(row), frozenset())]


def domain_of(leaf: Leaf) -> Domain:
    """Leaves on whose index a scale of this leaf depends."""
    return frozenset(leaf.per) | {leaf.space}


def _blocks(weights: Row) -> Vector:
    """The generator with one number for all indices: its weight on every block."""
    found: Vector = {}
    for (value, block, _, _), weight in weights.items():
        found[value, block] = found.get((value, block), 0) + weight
    return {key: weight for key, weight in found.items() if weight}


class _Pool:
    """Kept generators by leaf of their domain, so that those with a larger domain are found at once."""

    def __init__(self, modulo: int) -> None:
        self.modulo = modulo
        self.by_leaf: dict[IndexSpace | None, list[tuple[Domain, Vector]]] = {}
        self.spans: dict[Domain, tuple[Span, int]] = {}

    def add(self, vector: Vector, domain: Domain) -> None:
        for leaf in (*domain, None):
            self.by_leaf.setdefault(leaf, []).append((domain, vector))

    def independent(self, vector: Vector, domain: Domain) -> bool:
        """Whether the vector is no combination of kept generators of larger or equal domain; it is not kept yet."""
        span, read = self.spans.get(domain, (Span(self.modulo), 0))
        anywhere = self.by_leaf.get(next(iter(domain), None), [])
        for other, each in anywhere[read:]:
            if other >= domain:
                span.add(each)
        self.spans[domain] = (span, len(anywhere))
        return bool(span.residual(vector))


def _contained(leaf: Leaf, solution: Solution, real: _Pool, sign: _Pool) -> None:
    """Multiples of the identity that the matrix group of a leaf contains already."""
    if not leaf.group.is_matrix or leaf.group is Group.ORTHOGONAL_FIXING_ONES:
        return
    weights = leaf.variance or {slot: 1 for tensor in solution.carriers[leaf.space] for entries in tensor.blocks.values()
                                for slot, space in entries if space is leaf.space}  # fmt: skip
    vector = _blocks(dict(weights))
    sign.add(vector, frozenset(leaf.per))
    if leaf.group in (Group.GENERAL_LINEAR, Group.COMMUTANT):
        real.add(vector, frozenset(leaf.per))


def _independent(
    leaf: IndexSpace | None, exponents: list[Row], signs: list[Row], domain: Domain, real: _Pool, sign: _Pool
) -> list[Generator]:
    found: list[Generator] = []
    allowed = Span(2)
    for row in signs:
        allowed.add(row)
    for row in exponents:
        vector = _blocks(row)
        if not real.independent(vector, domain):
            continue
        real.add(vector, domain)
        odd = {slot: weight % 2 for slot, weight in row.items() if weight % 2}
        flips = bool(odd) and not allowed.residual(odd)
        if flips:
            sign.add(_blocks(odd), domain)
        found.append(Generator(leaf, "real" if flips else "positive", dict(row), domain))
    for row in signs:
        vector = _blocks(row)
        if sign.independent(vector, domain):
            sign.add(vector, domain)
            found.append(Generator(leaf, "sign", dict(row), domain))
    return found
