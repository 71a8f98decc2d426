"""Permutations and sign flips that a spec does not have: the part of completeness that no Jacobian shows.

Looked for are involutions that do the same at several places (:mod:`symgraph.verify.places`) of one size: swap the indices i
and j, or negate the index i. Which places is a vector S over GF(2), and the function itself gives linear equations for it. At
weights w0 that all places leave as they are, let g be the gradient of a random combination of outputs, and p and q parts of
two tensors that are even or odd under every place (characters of the group that the places generate). If S preserves the
function, then

    the q-part of g at w0 is not zero                            =>   S . q = 0
    the q-part of g(w0 + p) - g(w0 - p) is not zero              =>   S . q = S . p
    the q-part of g(w0 + p) + g(w0 - p) is not zero              =>   S . q = 0

What solves them is little more than the symmetries themselves; it is tried on generic weights, and compared with those that
the spec has. Nothing is asked of the spec but where the words of its axes have their joints.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import chain, combinations
from operator import xor
from time import monotonic

import torch
from torch import Tensor

from symgraph.frontend.graph import Graph
from symgraph.spec.model import SymmetrySpec
from symgraph.verify.jacobian import random_inputs
from symgraph.verify.known import known
from symgraph.verify.places import READINGS, Move, Place, places
from symgraph.verify.preservation import TOLERANCE, difference

STEP = 0.5
"""Length of a probe relative to the weights."""
NOTHING = 1e-9
"""Part of a gradient that counts as none, relative to its largest entry."""
MOST_TRIED = 256
"""Most combinations of places that are tried where the equations leave several."""
PART_OF_THE_WAY = 0.37

State = dict[str, Tensor]


@dataclass(frozen=True)
class Discrete:
    """A symmetry outside of the spec: ``moves`` of ``size`` indices, done at all ``places`` together."""

    kind: str
    size: int
    places: tuple[str, ...]
    moves: tuple[Move, ...]

    def __str__(self) -> str:
        where = ", ".join(self.places)
        if self.kind == "sign":
            which = "any" if len(self.moves) == self.size else f"index {self.moves[0][0]}"
            return f"the sign of {which} of {self.size} indices of {where}"
        if len(self.moves) >= self.size - 1:
            return f"permutations of {self.size} indices of {where}"
        return f"a swap of {self.moves[0][0]} and {self.moves[0][1]} of {self.size} indices of {where}"


@dataclass
class Search:
    """What is tried on one model. ``inputs`` are several draws; ``until`` is when to stop."""

    graph: Graph
    spec: SymmetrySpec
    state: State
    inputs: list[State]
    until: float
    generator: torch.Generator
    found: list[Discrete] = field(default_factory=list)
    searched: list[str] = field(default_factory=list)
    expected: list[list[Tensor]] = field(default_factory=list)

    def run(self, state: State, number: int) -> list[Tensor]:
        """The outputs on one draw."""
        return self.graph.run(state, self.inputs[number], untie=self.spec.identity.untied)

    def preserves(self, state: State) -> bool:
        """Whether the function at these weights is that of the generic ones."""
        with torch.no_grad():
            return all(difference(self.run(state, number), expected) <= TOLERANCE
                       for number, expected in enumerate(self.expected))  # fmt: skip

    def gradient(self, state: State) -> State:
        """Of one random combination of all outputs on the first draw, by tensor."""
        leaves = {name: value.clone().requires_grad_() for name, value in state.items()}
        total = torch.zeros((), dtype=torch.float64)
        for result in self.run(leaves, 0):
            if result.is_floating_point() and result.requires_grad:
                draw = torch.Generator().manual_seed(result.numel())
                weights = torch.randn(result.shape, generator=draw, dtype=torch.float64)
                total = total + (result * weights).nan_to_num().sum()
        if not total.requires_grad:
            return {name: torch.zeros_like(value) for name, value in state.items()}
        found = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
        return {name: torch.zeros_like(state[name]) if value is None else value.nan_to_num()
                for name, value in zip(leaves, found, strict=True)}  # fmt: skip


def discrete(graph: Graph, spec: SymmetrySpec, canon: State, seconds: float, seed: int = 0) -> tuple[tuple[Discrete, ...], str]:
    """The symmetries at the generic normal form ``canon`` that the spec has not, and what was searched, in words."""
    generator = torch.Generator().manual_seed(seed)
    inputs = [random_inputs(graph, generator) for _ in range(2)]
    search = Search(graph, spec, canon, inputs, monotonic() + seconds, generator)
    with torch.no_grad():
        search.expected = [search.run(canon, number) for number in range(len(inputs))]
    if not any(bool((value != 0).any()) for value in search.expected[0]):
        return (), "nothing: the outputs are zero"
    classes = _classes(search)
    for label, there in classes:
        for swap in (True, False):
            if monotonic() < search.until:
                _search(search, there, swap)
        if monotonic() > search.until:
            break
        search.searched.append(label)
    stopped = "" if len(search.searched) == len(classes) else f", {len(classes) - len(search.searched)} more not reached"
    return tuple(search.found), f"swaps and signs of indices, axes of size {', '.join(search.searched) or 'none'}{stopped}"


def _classes(search: Search) -> list[tuple[str, list[Place]]]:
    """Sets of places of one size; axes that nothing moves are read as products last."""
    spec = search.spec
    settled = {space.name for space in spec.spaces if space.group.permutes or space.group.is_matrix}
    found: list[tuple[str, list[Place]]] = []
    for reading in READINGS:
        for size, there in places(spec, reading, settled).items():
            label = str(size) if reading == "plain" else f"{size} ({reading} part)"
            found.append((label, [place for place in there if place.tensor not in {each.source for each in spec.absorptions}]))
    return found


def _search(search: Search, there: Sequence[Place], swap: bool) -> None:
    if not there:
        return
    size = there[0].size
    moves: list[Move] = [(i, i + 1) for i in range(size - 1)] if swap else [(i,) for i in range(size)]
    for move in dict.fromkeys((moves[0], moves[-1]) if swap else moves[:1]):
        for combination in _solutions(search, there, move):
            chosen = [there[index] for index in combination]
            names = tuple(str(place) for place in chosen)
            if any(set(each.places) == set(names) and each.kind == _kind(swap) and move in each.moves for each in search.found):
                continue
            holding = tuple(each for each in moves if search.preserves(_moved(search.state, chosen, each)))
            search.found.append(Discrete(_kind(swap), size, names, holding))


def _kind(swap: bool) -> str:
    return "permutation" if swap else "sign"


def _moved(state: State, chosen: Sequence[Place], move: Move) -> State:
    result = dict(state)
    for place in chosen:
        result[place.tensor] = place.moved(result[place.tensor], move)
    return result


def _solutions(search: Search, there: Sequence[Place], move: Move) -> Iterator[list[int]]:
    """Sets of places at which a move preserves the function and is none of the spec; independent ones."""
    free = Span(_kernel(_equations(search, there, move), len(there)))
    span = Span(known(search.spec, there, move))
    for index in range(len(there)):
        vector = 1 << index
        if vector in free and vector not in span and _on_a_line(search, _moved(search.state, [there[index]], move)):
            span.add(vector)
    basis = span.complement(free)
    for tried, chosen in enumerate(chain.from_iterable(combinations(basis, length + 1) for length in range(len(basis)))):
        if tried == MOST_TRIED or monotonic() > search.until:
            return
        vector = reduce(xor, chosen)
        if vector in span:
            continue
        indices = [index for index in range(len(there)) if vector >> index & 1]
        moved = _moved(search.state, [there[index] for index in indices], move)
        if search.preserves(moved):
            span.add(vector)
            if not _on_a_line(search, moved):
                yield indices


def _on_a_line(search: Search, moved: State) -> bool:
    """Whether nothing changes there and on the way: then a translation does it, which the Jacobian has counted."""
    between = {name: value + PART_OF_THE_WAY * (moved[name] - value) for name, value in search.state.items()}
    return search.preserves(between) and search.preserves(moved)


def _equations(search: Search, there: Sequence[Place], move: Move) -> list[int]:
    """Vectors over the places (bits) that are orthogonal to every symmetry."""
    characters = list(_characters(there))
    still = {name: _part(value, there, _of(there, name), 0, move) for name, value in search.state.items()}
    equations: list[int] = []
    for name, odd in characters:
        if monotonic() > search.until:
            break
        drawn = torch.randn(still[name].shape, generator=search.generator, dtype=torch.float64)
        probe = STEP * float(search.state[name].square().mean().sqrt()) * _part(drawn, there, _of(there, name), odd, move)
        ahead = search.gradient({**still, name: still[name] + probe})
        back = search.gradient({**still, name: still[name] - probe})
        scale = max(float(value.abs().max()) for value in ahead.values() if value.numel()) or 1.0
        for other, character in characters:
            mine = _of(there, other)
            for sign, vector in ((1, character), (-1, character ^ odd)):
                part = _part(ahead[other] + sign * back[other], there, mine, character, move)
                if float(part.abs().max()) > NOTHING * scale:
                    equations.append(vector)
    return equations


def _of(there: Sequence[Place], name: str) -> list[int]:
    return [index for index, place in enumerate(there) if place.tensor == name]


def _characters(there: Sequence[Place]) -> Iterator[tuple[str, int]]:
    """For every tensor its places and pairs of them, as bits: larger sets say hardly more."""
    for name in dict.fromkeys(place.tensor for place in there):
        mine = _of(there, name)
        yield from ((name, 1 << index) for index in mine)
        yield from ((name, 1 << first | 1 << second) for first, second in combinations(mine, 2))


def _part(value: Tensor, there: Sequence[Place], mine: Sequence[int], odd: int, move: Move) -> Tensor:
    """The part that is odd under the places in ``odd`` and even under the other ones."""
    for index in mine:
        moved = there[index].moved(value, move)
        value = (value - moved) / 2 if odd >> index & 1 else (value + moved) / 2
    return value


class Span:
    """A subspace of GF(2)^n; vectors are integers."""

    def __init__(self, vectors: Sequence[int] = ()) -> None:
        self._pivots: dict[int, int] = {}
        self.vectors = list(vectors)
        for vector in vectors:
            self.add(vector)

    def add(self, vector: int) -> bool:
        """Whether the vector was not in it."""
        vector = self._reduced(vector)
        if vector:
            self._pivots[vector.bit_length()] = vector
        return bool(vector)

    def complement(self, larger: Span) -> list[int]:
        """Vectors of another subspace, light ones first, that span it together with this one."""
        both = Span(list(self._pivots.values()))
        return [vector for vector in sorted(larger.vectors, key=int.bit_count) if both.add(vector)]

    def __contains__(self, vector: int) -> bool:
        return not self._reduced(vector)

    def _reduced(self, vector: int) -> int:
        while vector and (pivot := self._pivots.get(vector.bit_length())) is not None:
            vector ^= pivot
        return vector


def _kernel(equations: Sequence[int], count: int) -> list[int]:
    """A basis of the vectors that all equations are orthogonal to."""
    basis = [1 << index for index in range(count)]
    for equation in set(equations):
        odd = [vector for vector in basis if (vector & equation).bit_count() % 2]
        if odd:
            pivot = min(odd, key=int.bit_count)
            basis = [vector ^ pivot if vector in odd and vector != pivot else vector for vector in basis if vector != pivot]
    return basis
