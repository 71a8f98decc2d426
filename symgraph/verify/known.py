"""Swaps and signs that a spec has, as sets of places: vectors over GF(2), bit k for the k-th place.

An element of the group of one space is made, applied to tensors, and recognised by what it does: no word is read here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, combinations
from types import EllipsisType
from typing import TypeAlias

import torch
from torch import Tensor

from symgraph.algebra import elements
from symgraph.algebra.action import act
from symgraph.algebra.elements import Element, Matrix, Monomial
from symgraph.algebra.groups import Group
from symgraph.spec.model import Space, SymmetrySpec
from symgraph.spec.transform import words_of
from symgraph.verify.places import Move, Place

COMMUTANTS = frozenset({Group.COMMUTANT, Group.ORTHOGONAL_COMMUTANT})
REVERSING = COMMUTANTS | {Group.ORTHOGONAL, Group.GENERAL_LINEAR}
"""Matrix groups that negate all indices at once."""

Where: TypeAlias = tuple[EllipsisType | slice | int, ...]


def known(spec: SymmetrySpec, there: Sequence[Place], move: Move) -> list[int]:
    """Generators of the moves of a spec at these places."""
    size = there[0].size if there else 0
    found: list[int] = []
    for space in spec.spaces:
        made = chain(
            (_swapped if len(move) == 2 else _negated)(space, spec, move) if space.size == size else (),
            _reversed(space, spec, move, size) if len(move) == 1 else (),
        )
        for element in made:
            vector = _recognised(spec, there, move, space, element)
            if vector is not None:
                found.append(vector)
    return found


def _swapped(space: Space, spec: SymmetrySpec, move: Move) -> Iterator[Element]:
    element = elements.identity(space, spec.space_map)
    first, second = move
    if isinstance(element, Monomial):
        if space.group.permutes:
            element.permutation[..., first], element.permutation[..., second] = second, first
            yield element
    elif space.group not in COMMUTANTS or _in_one_block(space, move):
        order = torch.arange(space.size)
        order[first], order[second] = second, first
        yield Matrix(element.matrix[..., order], element.orthogonal)


def _negated(space: Space, spec: SymmetrySpec, move: Move) -> Iterator[Element]:
    (index,) = move
    if space.group in COMMUTANTS:
        alone = _in_one_block(space, move)
    elif space.group.is_matrix:
        alone = space.group in REVERSING
    else:
        alone = not space.partition or (index,) in space.partition
    if alone:
        yield from _with_signs(space, spec, (..., index))


def _reversed(space: Space, spec: SymmetrySpec, move: Move, size: int) -> Iterator[Element]:
    """All indices negated, at one index of a space that this one depends on."""
    if space.group.is_matrix and space.group not in REVERSING:
        return
    for axis, outer in enumerate(space.per):
        if spec.space_map[outer].size == size:
            yield from _with_signs(space, spec, (*[slice(None)] * axis, move[0]))


def _with_signs(space: Space, spec: SymmetrySpec, where: Where) -> Iterator[Element]:
    """Elements that negate some entries [*per, n]: one for a matrix, one for every scale that has signs."""
    element = elements.identity(space, spec.space_map)
    if isinstance(element, Matrix):
        signs = torch.ones(element.matrix.shape[:-1], dtype=torch.float64)
        signs[where] = -1.0
        yield Matrix(torch.diag_embed(signs), element.orthogonal)
        return
    for scale in space.scales:
        if scale.kind != "positive":
            signs = torch.ones(element.permutation.shape, dtype=torch.float64)
            signs[where] = -1.0
            yield Monomial(element.permutation, element.log, {**element.sign, scale.name: signs})


def _in_one_block(space: Space, move: Move) -> bool:
    """Whether a real block of a commutant has all indices of a move."""
    return any(block.field == "real" and {(index,) for index in move} <= set(block.coordinates) for block in space.blocks)


def _recognised(spec: SymmetrySpec, there: Sequence[Place], move: Move, space: Space, element: Element) -> int | None:
    """The places that an element moves; None if it does what no set of them does."""
    total = 0
    for tensor in spec.tensors:
        words = words_of(tensor)
        if space.name not in {factor.space for word in words for factor in word.factors()}:
            continue
        value = torch.arange(1.0, tensor.numel + 1, dtype=torch.float64).reshape(tensor.shape)
        moved = act(value[None], words, {space.name: element}, spec.space_map)[0]
        mine = [index for index, place in enumerate(there) if place.tensor == tensor.name]
        sets = chain.from_iterable(combinations(mine, length) for length in range(len(mine) + 1))
        chosen = next((one for one in sets if torch.equal(_moved(value, [there[index] for index in one], move), moved)), None)
        if chosen is None:
            return None
        total |= sum(1 << index for index in chosen)
    return total


def _moved(value: Tensor, chosen: Sequence[Place], move: Move) -> Tensor:
    for place in chosen:
        value = place.moved(value, move)
    return value
