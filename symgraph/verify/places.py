"""Where an index of a space, or of a plain axis, stands in the tensors of a spec.

A *place* is one leaf in one summand of the word of one axis: for every index of the leaf, the positions on the axis that carry
it. Two indices are swapped, or one is negated, at a place. For ``packed[22, 6]: ["head (qk' + qk + ov)", "6"]`` with two heads
and sizes 4, 4, 3 the places are

    head         three times, 2 indices of four, four and three positions each
    qk'          4 indices of two positions each (one in every head), qk and ov alike
    6            6 indices of one position each, on the other axis

An axis that nothing moves may hide a product: it is read as ``n x rest`` and as ``rest x n`` too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Literal

import torch
from torch import Tensor

from symgraph.algebra.words import Factor, Product, Sum, Word
from symgraph.spec.model import SymmetrySpec

Reading = Literal["plain", "outer", "inner"]
READINGS: tuple[Reading, ...] = ("plain", "outer", "inner")

Move = tuple[int, ...]
"""Two indices that are swapped, or one that is negated."""


@dataclass(frozen=True, eq=False)
class Place:
    """``positions`` [n, m] on an axis of a tensor, of the n indices of a leaf; ``space`` is empty for a plain one."""

    tensor: str
    axis: int
    space: str
    positions: Tensor

    @property
    def size(self) -> int:
        """Number of indices."""
        return int(self.positions.shape[0])

    def __str__(self) -> str:
        """``up.weight axis 0``; with the positions of the first index where these are not the first ones."""
        first = int(self.positions[0, 0])
        return f"{self.tensor} axis {self.axis}" + (f" from {first}" if first else "")

    def moved(self, value: Tensor, move: Move) -> Tensor:
        """``value`` with two indices swapped or one negated."""
        order = torch.arange(value.shape[self.axis])
        signs = torch.ones(value.shape[self.axis], dtype=value.dtype)
        if len(move) == 2:
            order[self.positions[move[0]]], order[self.positions[move[1]]] = self.positions[move[1]], self.positions[move[0]]
        else:
            signs[self.positions[move[0]]] = -1.0
        shape = [1] * value.dim()
        shape[self.axis] = -1
        return value.index_select(self.axis, order) * signs.reshape(shape)


def places(spec: SymmetrySpec, reading: Reading, settled: Collection[str]) -> dict[int, list[Place]]:
    """Places by number of indices, from two on.

    Other readings than the plain one split leaves whose indices are not ``settled``: plain axes of the spec, and spaces that
    are not known to be permuted as a whole.
    """
    sizes = spec.sizes
    leaves = [leaf for tensor in spec.tensors for axis, word in enumerate(tensor.words)
              for leaf in _leaves(word, sizes, tensor.name, axis)]  # fmt: skip
    found: dict[int, list[Place]] = {}
    for size in sorted({leaf.size for leaf in leaves} - {1}):
        split = [_read(leaf, size, reading) for leaf in leaves if reading != "plain" and leaf.size > size
                 and leaf.size % size == 0 and _name(leaf) not in settled]  # fmt: skip
        if split or reading == "plain":
            found[size] = _few([leaf for leaf in leaves if leaf.size == size] + split)
    return found


def _name(place: Place) -> str:
    return place.space or str(place)


def _few(there: list[Place]) -> list[Place]:
    """Without the tensors that have too many places: their symmetries come by the power of two."""
    count = Counter(place.tensor for place in there)
    return [place for place in there if count[place.tensor] <= MOST_PLACES]


MOST_PLACES = 5
"""Most places of one size on one tensor."""


def _leaves(word: Word, sizes: Mapping[str, int], tensor: str, axis: int) -> Iterator[Place]:
    """The places of an axis."""
    for leaves, grid in _summands(word, torch.arange(word.size(sizes)), sizes):
        for index, leaf in enumerate(leaves):
            space = leaf.space if isinstance(leaf, Factor) else ""
            yield Place(tensor, axis, space, grid.movedim(index, 0).reshape(grid.shape[index], -1))


def _summands(word: Word, positions: Tensor, sizes: Mapping[str, int]) -> Iterator[tuple[list[Word], Tensor]]:
    """Products of leaves, with the positions [*leaves] of their indices, whose direct sum a word at ``positions`` is."""
    if isinstance(word, Sum):
        parts = torch.split(positions, [part.size(sizes) for part in word.words])
        for part, rows in zip(word.words, parts, strict=True):
            yield from _summands(part, rows, sizes)
    elif isinstance(word, Product):
        factors = [list(_summands(part, torch.arange(part.size(sizes)), sizes)) for part in word.words]
        whole = positions.reshape([part.size(sizes) for part in word.words])
        for choice in product(*factors):
            grid = whole
            for axis, (_, rows) in enumerate(choice):
                grid = grid.index_select(axis, rows.flatten())
            leaves = [leaf for part, _ in choice for leaf in part]
            yield leaves, grid.reshape([leaf.size(sizes) for leaf in leaves])
    else:
        yield [word], positions


def _read(place: Place, size: int, reading: Reading) -> Place:
    """A place of ``size x rest`` or ``rest x size`` indices as one of ``size`` indices."""
    count = place.size // size
    if reading == "outer":
        return Place(place.tensor, place.axis, "", place.positions.reshape(size, -1))
    return Place(place.tensor, place.axis, "", place.positions.reshape(count, size, -1).movedim(1, 0).reshape(size, -1))
