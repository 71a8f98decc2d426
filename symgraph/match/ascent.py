"""Block coordinate ascent on ``sum <A, g B>`` over the compact parts of all groups.

``B`` is moved step by step: a block solves for the best *increment* at one space, with everything else where it is,
so the identity is always feasible and no step can lose. Three ingredients make it find planted solutions:

* A space that others depend on is assigned over the best inner match. ``A`` is rolled along it, r = 0, 1, ..: for
  every roll the dependent spaces are matched as in any other problem, and the inner products per index are one
  cyclic diagonal of the profit matrix. Dependent spaces of dependent spaces recurse by themselves.
* The first sweep uses *anchored* evidence only: pieces whose other spaces are all settled. An embedding, with a pinned
  vocabulary, settles the stream; the stream settles keys and values; these the queries.
* Signs of whole tensors are decided together with the first space that meets them; signs of a space together with what
  stands beside them, when sweeps over single spaces gain little.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

import torch
from torch import Generator, Tensor

from symgraph.algebra import sampling
from symgraph.algebra.elements import Element, Elements, Matrix, Monomial, compose, depth, lead
from symgraph.match.assignment import Correlations, Parity, assign, monomial, solve
from symgraph.match.pieces import Occurrence, Pieces, anchored, correlation, front, per_index
from symgraph.match.procrustes import image, procrustes
from symgraph.match.selection import Freedom
from symgraph.match.signs import beside, couplings, together, turned
from symgraph.spec.model import Space

SLACK = 1e-12  # a step may lose this much of the norm of what it moves, by rounding
INNER_SWEEPS = 3  # over the dependent spaces, for every pairing of the outer indices
MOST_SIGNS = 5  # of whole tensors, that are tried in all combinations
STUCK = 1e-2  # a sweep that gains less of the squared distance calls for joint moves
FLOOR = 1e-26  # of the squared norm: nothing is left to gain


@dataclass
class Ascent:
    """``a`` and ``b`` piece by piece, the freedom of every space, and the element found so far (``b`` is moved by it).

    As the norms do not change, ``sum <A, g B>`` is followed through ``sum |A - g B|^2``, which has no cancellation.
    """

    pieces: Pieces
    a: list[Tensor]
    b: list[Tensor]
    freedom: Mapping[str, Freedom]
    elements: dict[str, Element] = field(default_factory=dict)
    history: list[float] = field(default_factory=list)
    complete: bool = True  # whether :meth:`settle` had all pieces for every space
    unknown: list[str] = field(default_factory=list)  # spaces that sign whole tensors, not decided yet
    seen: list[Tensor] = field(default_factory=list)  # ``a`` as far as its matrix spaces are determined by now

    def distance(self, chosen: Iterable[int] | None = None) -> float:
        """``sum |A - g B|^2`` over the chosen pieces."""
        numbers = range(len(self.a)) if chosen is None else chosen
        return sum(float((self.a[number] - self.b[number]).square().sum()) for number in numbers)

    @property
    def perfect(self) -> bool:
        """Whether nothing is left to gain."""
        return self.distance() < FLOOR * self.bound

    @property
    def bound(self) -> float:
        """The largest objective that there can be."""
        return sum(float(a.norm() * b.norm()) for a, b in zip(self.a, self.b, strict=True)) or 1.0

    def objective(self) -> float:
        """``sum <A, g B>``."""
        return sum(float((a * b).sum()) for a, b in zip(self.a, self.b, strict=True))

    def run(self, order: Sequence[str], sweeps: int, tol: float) -> None:
        """Sweeps in the given order until one gains less than ``tol`` of the squared distance that is left."""
        bound, distance = self.bound, self.distance()
        self.history.append(distance)
        coupled, matrices = couplings(self), beside(self)
        for _ in range(sweeps):
            before = distance
            for name in order:
                distance -= self.improve(name)
                self.history.append(distance)
            stuck = before - distance <= STUCK * before
            for pair, places in coupled.items() if stuck else ():
                distance -= self.attempt(together(self, pair, places))
                self.history.append(distance)
            for (signed, name), places in matrices.items() if stuck else ():
                distance -= self.attempt(turned(self, signed, places), then=name)
                self.history.append(distance)
            distance = self.distance()
            if before - distance <= tol * before or distance < FLOOR * bound:
                break

    def improve(self, name: str) -> float:
        """One block, kept only if it does not lose; what it gained."""
        return self.attempt(best_response(self, name, self.pieces.touching(name)))

    def attempt(self, increment: Elements, then: str = "") -> float:
        """Move ``b`` further, and solve for one space after it, unless that loses; what it gained."""
        names = {*increment, *([then] if then else [])}
        touched = sorted({number for name in names for number in self.pieces.touching(name)})
        before, old, found = self.distance(touched), [self.b[number] for number in touched], dict(self.elements)
        self.move(increment)
        self.move(best_response(self, then, self.pieces.touching(then)) if then else {})
        gain = before - self.distance(touched)
        bound = sum(float(self.a[number].norm() * self.b[number].norm()) for number in touched)
        if gain < -SLACK * bound:  # a space that stands twice on one piece can, and a guess
            self.elements = found
            for number, value in zip(touched, old, strict=True):
                self.b[number] = value
            return 0.0
        return gain

    def move(self, increment: Elements) -> None:
        """Move ``b`` further."""
        if increment:
            self.b = self.pieces.apply(increment, self.b)
            self.elements = compose(increment, self.elements, self.pieces.spaces)

    def start(self) -> list[str]:
        """Settle all spaces, best anchored first, each from anchored pieces alone; returns the order."""
        active = [name for name in self.freedom if self.pieces.occurrences[name]]
        single = [name for name in active if whole(self.pieces.spaces[name])]
        self.unknown = [name for name in single if name not in self.elements and self.freedom[name].signs]
        waiting = [name for name in active if name not in single]
        return [*self.settle(waiting, set(self.pieces.spaces) - set(waiting)), *single]

    def settle(self, active: Sequence[str], settled: set[str]) -> list[str]:
        """See :meth:`start`; spaces that are not active count as settled. Dependent spaces follow theirs."""
        order: list[str] = []
        self.seen = list(self.a)
        waiting = list(active)
        while waiting:
            ready = [name for name in waiting if not set(self.pieces.spaces[name].per) & set(waiting)]
            scores = {name: self.evidence(name, settled) for name in ready}
            name = max(ready, key=lambda one: scores[one])
            known = settled | set(dependents(self, name))
            touched = self.pieces.touching(name)
            chosen = [k for k in touched if anchored(self.pieces.shapes[k], known, name)] or touched
            self.complete &= len(chosen) == len(touched)
            self.decide(name, chosen)
            settled.add(name)
            order.append(name)
            waiting.remove(name)
        return order

    def decide(self, name: str, chosen: Sequence[int]) -> None:
        """One block, with all choices for the signs of whole tensors that stand on its pieces for the first time."""
        found = [one for one in self.unknown if any(one in self.pieces.shapes[k].spaces for k in chosen)][:MOST_SIGNS]
        pieces, a = self.pieces.subset(chosen), [self.seen[k] for k in chosen]
        best: tuple[float, dict[str, Element]] | None = None
        for signs in product((1.0, -1.0), repeat=len(found)):
            flips = {one: minus(self.pieces.spaces[one]) for one, sign in zip(found, signs, strict=True) if sign < 0}
            trial = Ascent(pieces, a, pieces.apply(flips, [self.b[k] for k in chosen]), self.freedom)
            response = best_response(trial, name, range(len(chosen)))
            if not found:
                best = (0.0, response)
                break
            trial.move(response)
            distance = trial.distance()
            if best is None or distance < best[0]:
                best = (distance, {**flips, **response})
        self.move(best[1] if best else {})
        self.unknown = [one for one in self.unknown if one not in found]
        self.blur(name, chosen)

    def blur(self, name: str, chosen: Sequence[int]) -> None:
        """A matrix space with fewer columns of evidence than indices: what it was not told is not seen by the others."""
        space, pieces = self.pieces.spaces[name], self.pieces
        if not self.freedom[name].matrix or space.blocks:
            return
        places = [one for one in pieces.occurrences[name] if one.piece in set(chosen)]
        columns = [front(self.seen[one.piece], one).flatten(len(one.outer) + 1) for one in places]
        if columns and (rank := sum(one.shape[-1] for one in columns)) < space.size:
            c = torch.as_tensor(sum(correlation(self.seen[one.piece], self.b[one.piece], one) for one in places))
            within: Element = Matrix(image(c, rank), orthogonal=True)  # a projector is the same on both variances
            touched = pieces.touching(name)
            narrowed = pieces.subset(touched).apply({name: within}, [self.seen[k] for k in touched])
            for k, value in zip(touched, narrowed, strict=True):
                self.seen[k] = value

    def evidence(self, name: str, settled: set[str]) -> float:
        """Columns of anchored evidence for each index of the space; permutations need a few in all."""
        space = self.pieces.spaces[name]
        known = settled | set(dependents(self, name))
        columns = 0
        for one in self.pieces.occurrences[name]:
            shape = self.pieces.shapes[one.piece]
            if anchored(shape, known, name):
                size = float(self.a[one.piece].numel())
                for place in (one.k, *one.outer):
                    size /= shape.sizes[place]
                columns += int(size)
        return columns / (space.size if space.group.is_matrix else 8.0)


def dependents(ascent: Ascent, name: str) -> list[str]:
    """The spaces that take part and depend on this one, outer ones first."""
    spaces = ascent.pieces.spaces
    found = [other for other in ascent.freedom if name in spaces[other].per and ascent.pieces.occurrences[other]]
    return sorted(found, key=lambda other: depth(other, spaces))


def best_response(ascent: Ascent, name: str, chosen: Sequence[int]) -> dict[str, Element]:
    """The best increment at one space (and at those that depend on it), judged on the chosen pieces."""
    space, freedom = ascent.pieces.spaces[name], ascent.freedom[name]
    inner = dependents(ascent, name)
    if freedom.permutes and inner:
        return _nested(ascent, space, inner, chosen)
    occurrences = [one for one in ascent.pieces.occurrences[name] if one.piece in set(chosen)]
    if not occurrences:
        return {}
    if freedom.matrix:
        total = sum(correlation(ascent.a[one.piece], ascent.b[one.piece], one) for one in occurrences)
        return {name: procrustes(space, torch.as_tensor(total))}
    return {name: assign(space, freedom, _by_parity(ascent, freedom, occurrences))}


def _by_parity(ascent: Ascent, freedom: Freedom, occurrences: Sequence[Occurrence]) -> Correlations:
    found: dict[Parity, Tensor] = {}
    for one in occurrences:
        parity = frozenset(name for name, weight in one.factor.weights if weight % 2 and name in freedom.signs)
        c = correlation(ascent.a[one.piece], ascent.b[one.piece], one)
        found[parity] = found[parity] + c if parity in found else c
    return found


def _nested(ascent: Ascent, space: Space, inner: list[str], chosen: Sequence[int]) -> dict[str, Element]:
    """Assignment of an outer space, with its signs, over the best match of what depends on it."""
    signs = ascent.freedom[space.name].signs
    choices = list(product((1.0, -1.0), repeat=len(signs)))
    options = [(r, dict(zip(signs, choice, strict=True))) for r in range(space.size) for choice in choices]
    rolls = [_rolled(ascent, space, inner, chosen, r, choice) for r, choice in options]
    old = torch.arange(space.size)
    values = torch.stack([value for value, _ in rolls])
    values = values.reshape(space.size, len(choices), *values.shape[1:])
    best, which = values.max(1)  # [r, *per, n], over the signs
    profit = torch.zeros(*best.shape[1:], space.size, dtype=best.dtype)
    for r, value in enumerate(best):  # value[.., j] pairs a's index (j + r) % n with b's index j
        profit[..., (old + r) % space.size, old] = value
    permutation = solve(profit)
    roll = (torch.argsort(permutation, dim=-1) - old) % space.size  # for every index of b
    option = roll * len(choices) + which.gather(0, roll[None])[0]
    found = [elements for _, elements in rolls]
    result = {name: _pick([one[name] for one in found], option, space, ascent.pieces.spaces[name]) for name in found[0]}
    kept = {name: torch.tensor([choice[name] for _, choice in options], dtype=torch.float64)[option] for name in signs}
    return {**result, space.name: monomial(space, permutation, kept)}


def _rolled(
    ascent: Ascent, space: Space, inner: list[str], chosen: Sequence[int], r: int, signs: Mapping[str, float]
) -> tuple[Tensor, dict[str, Element]]:
    """``a`` rolled by r along a space, ``b`` with its signs, the dependent spaces matched.

    Returns the inner products ``[*per, n]`` by index, and the elements of the dependent spaces.
    """
    pieces = ascent.pieces.subset(chosen)
    places = pieces.occurrences[space.name]
    a, b = ([side[number] for number in chosen] for side in (ascent.a, ascent.b))
    for one in places:
        a[one.piece] = torch.roll(a[one.piece], -r, dims=one.k)
    if min(signs.values(), default=1.0) < 0:
        still = torch.arange(space.size).expand(*lead(space, pieces.spaces), space.size)
        turned = {name: torch.full(still.shape, sign, dtype=torch.float64) for name, sign in signs.items()}
        b = pieces.apply({space.name: monomial(space, still, turned)}, b)
    sub = Ascent(pieces, a, b, {name: ascent.freedom[name] for name in inner})
    order = sub.settle([name for name in inner if pieces.occurrences[name]], set(pieces.spaces) - set(inner))
    if not sub.complete:
        sub.run(order, INNER_SWEEPS, 1e-6)
    first = {one.piece: one for one in reversed(places)}
    value = sum(per_index(sub.a[k] * sub.b[k], one) for k, one in first.items())
    return torch.as_tensor(value), sub.elements


def _pick(found: Sequence[Element], option: Tensor, outer: Space, inner: Space) -> Element:
    """At every index of the outer space the element that was found for its option: ``option[*outer.per, n]``."""
    names = (*outer.per, outer.name)
    order = sorted(range(len(names)), key=lambda k: inner.per.index(names[k]))
    aligned = option.permute(order)
    lead = found[0].matrix.shape[:-2] if isinstance(found[0], Matrix) else found[0].permutation.shape[:-1]
    shape = [size if name in names else 1 for name, size in zip(inner.per, lead, strict=True)]
    which = aligned.reshape(shape).expand(lead)

    def pick(arrays: Sequence[Tensor]) -> Tensor:
        stacked = torch.stack(list(arrays))
        index = which.reshape(1, *lead, *[1] * (stacked.ndim - 1 - len(lead))).expand(1, *stacked.shape[1:])
        return stacked.gather(0, index)[0]

    if isinstance(found[0], Matrix):
        return Matrix(pick([one.matrix for one in found if isinstance(one, Matrix)]), orthogonal=True)
    many = [one for one in found if isinstance(one, Monomial)]
    return Monomial(
        pick([one.permutation for one in many]),
        {name: pick([one.log[name] for one in many]) for name in many[0].log},
        {name: pick([one.sign[name] for one in many]) for name in many[0].sign},
    )


def whole(space: Space) -> bool:
    """Whether the space scales whole tensors, with one number."""
    return space.size == 1 and not space.per


def minus(space: Space) -> Element:
    """The element of a space of whole tensors that turns the sign of everything of odd weight, for its first sign."""
    sign = next(scale.name for scale in space.scales if scale.kind != "positive")
    return monomial(space, torch.arange(space.size), {sign: -torch.ones(space.size, dtype=torch.float64)})


def random_element(space: Space, freedom: Freedom, spaces: Mapping[str, Space], generator: Generator) -> Element:
    """A random element of the compact part that takes part."""
    drawn = sampling.sample(space, spaces, generator, scale=0.0)
    if isinstance(drawn, Matrix):
        return Matrix(drawn.matrix, orthogonal=True)
    still = torch.arange(space.size).expand(drawn.permutation.shape)
    signs = {name: drawn.sign[name] for name in freedom.signs}
    return monomial(space, drawn.permutation if freedom.permutes else still, signs)
