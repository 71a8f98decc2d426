"""The action of group elements on one tensor, axis by axis.

>>> act(weight, (parse("head (qk + ov)"), parse("residual'")), elements, spaces)      # doctest: +SKIP

Axes are reshaped to the factors of their products and split along their direct sums until every dimension is one
space or pinned; there a space acts by one matmul, one ``index_select`` or one product with a vector. A space acts
before the spaces it depends on, at their old index. Everything is differentiable in the elements and in the tensor,
and works under ``torch.func``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import torch
from torch import Tensor

from symgraph.algebra.elements import Element, Elements, Matrix, Spaces, depth
from symgraph.algebra.words import Factor, Pinned, Product, Sum, Word
from symgraph.errors import SpecError

Dims = tuple[tuple[Word, int], ...]  # the word of every dimension, and the axis that it was split from


def act(tensor: Tensor, words: Sequence[Word], elements: Elements, spaces: Spaces) -> Tensor:
    """The tensor transformed by ``elements``; spaces without an element stay. Returns ``tensor`` itself if all do."""
    moved = {factor.space for word in words for factor in word.factors()} & elements.keys()
    if not moved:
        return tensor
    relevant = moved.union(*(spaces[name].per for name in moved))
    dims = tuple((_simplify(word, relevant, spaces), axis) for axis, word in enumerate(words))
    return _act(tensor, dims, elements, spaces)


def leaves(words: Sequence[Word]) -> Iterator[Dims]:
    """All combinations of summands: the dimensions (with their axis) on which :func:`act` finally works."""
    for choice in product(*(list(_summands(word)) for word in words)):
        yield tuple((word, axis) for axis, dims in enumerate(choice) for word in dims)


def outer_positions(position: int, dims: Dims, spaces: Spaces) -> tuple[int, ...]:
    """Where the spaces stand that the space at ``position`` depends on: on its own axis if there, else on another.

    Raises :class:`~symgraph.errors.SpecError` if one stands nowhere, or in several places.
    """
    factor, axis = dims[position]
    assert isinstance(factor, Factor)
    found = []
    for name in spaces[factor.space].per:
        places = [k for k, (word, _) in enumerate(dims) if isinstance(word, Factor) and word.space == name]
        places = [k for k in places if dims[k][1] == axis] or places
        if len(places) != 1:
            where = "does not stand on the same tensor" if not places else "stands on several axes of the same tensor"
            raise SpecError(f"space {factor.space!r} depends on {name!r}, which {where}")
        found.append(places[0])
    return tuple(found)


def _summands(word: Word) -> Iterator[tuple[Word, ...]]:
    """The products of plain factors that the word is a direct sum of."""
    if isinstance(word, Sum):
        for part in word.words:
            yield from _summands(part)
    elif isinstance(word, Product):
        for choice in product(*(list(_summands(part)) for part in word.words)):
            yield tuple(factor for factors in choice for factor in factors)
    else:
        yield (word,)


def _sizes(words: Sequence[Word], spaces: Spaces) -> list[int]:
    sizes = {factor.space: spaces[factor.space].size for word in words for factor in word.factors()}
    return [word.size(sizes) for word in words]


def _simplify(word: Word, relevant: set[str], spaces: Spaces) -> Word:
    """The word with everything that takes no part in the action pinned."""
    if isinstance(word, Pinned) or not any(factor.space in relevant for factor in word.factors()):
        return Pinned(_sizes([word], spaces)[0])
    if isinstance(word, (Product, Sum)):
        return type(word)(tuple(_simplify(part, relevant, spaces) for part in word.words))
    return word


def _act(tensor: Tensor, dims: Dims, elements: Elements, spaces: Spaces) -> Tensor:
    """Reshape along products and split along sums, until every dimension is a factor."""
    while any(isinstance(word, Product) for word, _ in dims):
        dims = tuple(
            (part, axis) for word, axis in dims for part in (word.words if isinstance(word, Product) else (word,))
        )
    shape = tensor.shape
    x = tensor.reshape(_sizes([word for word, _ in dims], spaces))
    for k, (word, axis) in enumerate(dims):
        if isinstance(word, Sum):
            pieces = torch.split(x, _sizes(word.words, spaces), dim=k)
            parts = [
                _act(piece, (*dims[:k], (part, axis), *dims[k + 1 :]), elements, spaces)
                for piece, part in zip(pieces, word.words, strict=True)
            ]
            return torch.cat(parts, dim=k).reshape(shape)
    return _act_on_factors(x, dims, elements, spaces).reshape(shape)


def _act_on_factors(x: Tensor, dims: Dims, elements: Elements, spaces: Spaces) -> Tensor:
    """Inner spaces first: an element is indexed by the old index of the spaces that it depends on."""
    places = [(k, word) for k, (word, _) in enumerate(dims) if isinstance(word, Factor) and word.space in elements]
    for k, factor in sorted(places, key=lambda place: -depth(place[1].space, spaces)):
        x = _act_on_one(x, k, outer_positions(k, dims, spaces), factor, elements[factor.space])
    return x


def _act_on_one(x: Tensor, k: int, outer: tuple[int, ...], factor: Factor, element: Element) -> Tensor:
    """One space on dimension ``k``; ``outer`` are the dimensions of the spaces that it depends on."""
    if isinstance(element, Matrix):
        return _multiply(x, k, outer, element.operator(factor.contravariant, x))
    scale = element.scale(factor.weights)
    if scale is not None:
        x = x * _broadcast(scale.to(device=x.device, dtype=x.dtype), (*outer, k), x.ndim)
    return _permute(x, k, outer, element.permutation.to(x.device)) if element.moves else x


def _multiply(x: Tensor, k: int, outer: tuple[int, ...], matrix: Tensor) -> Tensor:
    """``new[.., i, ..] = sum_j matrix[*outer, i, j] x[.., j, ..]`` with j on dimension k."""
    if not outer and k == x.ndim - 1:
        return x @ matrix.mT
    if not outer:
        before, n = x.shape[:k], x.shape[k]
        return (matrix @ x.reshape(*before, n, -1)).reshape(x.shape)
    new, dims = x.ndim, list(range(x.ndim))
    return torch.einsum(matrix, [*outer, new, k], x, dims, [*dims[:k], new, *dims[k + 1 :]])


def _broadcast(values: Tensor, places: tuple[int, ...], ndim: int) -> Tensor:
    """``values`` with its axes at ``places``, of size one elsewhere."""
    order = sorted(range(len(places)), key=lambda axis: places[axis])
    shape = [1] * ndim
    for axis, place in enumerate(places):
        shape[place] = values.shape[axis]
    return values.permute(order).reshape(shape)


def _permute(x: Tensor, k: int, outer: tuple[int, ...], permutation: Tensor) -> Tensor:
    """``new[.., i, ..] = x[.., permutation[*outer, i], ..]`` with i on dimension k."""
    if not outer:
        return x.index_select(k, permutation)
    order = (*outer, k, *(dim for dim in range(x.ndim) if dim not in outer and dim != k))
    front = x.permute(order)
    rows = permutation.reshape(-1, x.shape[k])
    offsets = torch.arange(len(rows), device=rows.device)[:, None] * x.shape[k]
    flat = front.reshape(rows.numel(), *front.shape[len(outer) + 1 :])
    inverse = sorted(range(x.ndim), key=lambda place: order[place])
    return flat.index_select(0, (rows + offsets).reshape(-1)).reshape(front.shape).permute(inverse)
