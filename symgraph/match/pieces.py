"""Tensors cut into pieces on which every axis is one space or pinned.

A tensor with the axes ``head (qk' + ov), residual`` has two pieces, ``head qk' residual`` and ``head ov residual``. On
pieces everything that a matcher needs is one line: the inner product, the correlation along a space, a Gram matrix.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import torch
from torch import Tensor

from symgraph.algebra.action import Dims, act, outer_positions
from symgraph.algebra.elements import Elements
from symgraph.algebra.words import Factor, Pinned, Product, Sum, Word
from symgraph.spec.model import Space, SymmetrySpec
from symgraph.spec.state import State, fetch, names
from symgraph.spec.transform import words_of


@dataclass(frozen=True)
class Occurrence:
    """One place where a space stands: dimension ``k`` of a piece; ``outer`` are the spaces that it depends on."""

    piece: int
    k: int
    outer: tuple[int, ...]
    factor: Factor


@dataclass(frozen=True)
class Shape:
    """The type of a piece: a space or a number on every dimension, and the tensor that it was cut from."""

    tensor: str
    dims: Dims
    sizes: tuple[int, ...]

    @cached_property
    def spaces(self) -> frozenset[str]:
        """Names of the spaces that stand on it."""
        return frozenset(word.space for word, _ in self.dims if isinstance(word, Factor))

    @cached_property
    def words(self) -> tuple[Word, ...]:
        """The word of every axis of the tensor, as far as it belongs to this piece."""
        axes: dict[int, list[Word]] = defaultdict(list)
        for word, axis in self.dims:
            axes[axis].append(word)
        return tuple(Product(tuple(words)) if len(words) > 1 else words[0] for words in axes.values())

    @cached_property
    def axis_sizes(self) -> tuple[int, ...]:
        """Sizes of the axes that :attr:`words` describe."""
        axes: dict[int, int] = {}
        for (_, axis), size in zip(self.dims, self.sizes, strict=True):
            axes[axis] = axes.get(axis, 1) * size
        return tuple(axes.values())


class Pieces:
    """The shapes of all pieces of a spec, and where every space stands on them."""

    def __init__(self, spaces: Mapping[str, Space], shapes: Sequence[Shape]) -> None:
        self.spaces, self.shapes = spaces, tuple(shapes)
        self.occurrences: dict[str, list[Occurrence]] = defaultdict(list)
        for number, shape in enumerate(self.shapes):
            for k, (word, _) in enumerate(shape.dims):
                if isinstance(word, Factor):
                    outer = outer_positions(k, shape.dims, spaces)
                    self.occurrences[word.space].append(Occurrence(number, k, outer, word))

    @classmethod
    def of(cls, spec: SymmetrySpec, state: State) -> tuple[Pieces, list[Tensor]]:
        """All pieces of the float parameters that the state holds, in float64."""
        spaces, shapes, values = spec.space_map, [], []
        for tensor in spec.tensors:
            if tensor.kind != "parameter" or not names(tensor, state):
                continue
            value = fetch(tensor, state)
            if not value.is_floating_point():
                continue
            dims = tuple((word, axis) for axis, word in enumerate(words_of(tensor)))
            for found, piece in _cut(value.detach().double()[None], dims, spaces):
                shapes.append(Shape(tensor.name, found, tuple(piece.shape)))
                values.append(piece)
        return cls(spaces, shapes), values

    def touching(self, name: str) -> list[int]:
        """The pieces on which a space stands."""
        return sorted({one.piece for one in self.occurrences[name]})

    def subset(self, chosen: Iterable[int]) -> Pieces:
        """Only the chosen pieces, in their order."""
        return Pieces(self.spaces, [self.shapes[number] for number in chosen])

    def apply(self, elements: Elements, values: list[Tensor]) -> list[Tensor]:
        """All pieces moved by ``elements``."""
        moved = elements.keys()
        return [
            self._act(shape, elements, value) if shape.spaces & moved else value
            for shape, value in zip(self.shapes, values, strict=True)
        ]

    def _act(self, shape: Shape, elements: Elements, value: Tensor) -> Tensor:
        return act(value.reshape(shape.axis_sizes), shape.words, elements, self.spaces).reshape(shape.sizes)


def correlation(a: Tensor, b: Tensor, one: Occurrence) -> Tensor:
    """``C[*outer, i, j] = sum a[.., i, ..] b[.., j, ..]`` over all dimensions but the occurrence's and its outer ones."""
    x, y = front(a, one), front(b, one)
    return x.flatten(len(one.outer) + 1) @ y.flatten(len(one.outer) + 1).mT


def front(x: Tensor, one: Occurrence) -> Tensor:
    """The piece with the outer dimensions first, then the occurrence's: [*outer, n, rest..] with at least one rest."""
    rest = [dim for dim in range(x.ndim) if dim not in one.outer and dim != one.k]
    return x.permute(*one.outer, one.k, *rest).unsqueeze(-1)


def per_index(product: Tensor, one: Occurrence) -> Tensor:
    """``product`` summed over all dimensions but the occurrence's and its outer ones: [*outer, n]."""
    return front(product, one).flatten(len(one.outer) + 1).sum(-1)


def anchored(shape: Shape, settled: Collection[str], name: str) -> bool:
    """Whether all other spaces on the piece are settled."""
    return all(other == name or other in settled for other in shape.spaces)


def _cut(x: Tensor, dims: Dims, spaces: Mapping[str, Space]) -> Iterator[tuple[Dims, Tensor]]:
    """Reshape along products and split along sums, until every dimension is a factor or pinned."""
    while any(isinstance(word, Product) for word, _ in dims):
        dims = tuple((part, axis) for word, axis in dims for part in (word.words if isinstance(word, Product) else (word,)))
    x = x.reshape([_size(word, spaces) for word, _ in dims])
    for k, (word, axis) in enumerate(dims):
        if isinstance(word, Sum):
            parts = torch.split(x, [_size(part, spaces) for part in word.words], dim=k)
            for piece, part in zip(parts, word.words, strict=True):
                yield from _cut(piece, (*dims[:k], (part, axis), *dims[k + 1 :]), spaces)
            return
    yield dims, x.contiguous()


def _size(word: Word, spaces: Mapping[str, Space]) -> int:
    if isinstance(word, Pinned):
        return word.length
    if isinstance(word, Factor):
        return spaces[word.space].size
    parts = [_size(part, spaces) for part in (word.words if isinstance(word, (Product, Sum)) else ())]
    return prod(parts) if isinstance(word, Product) else sum(parts)
