"""Lie algebras: the continuous directions of every group.

Each group's algebra has coordinates c[*per, D]; :func:`first_order` is the element ``1 + c`` to first order, linear in
c, so that its derivative at 0 gives one orbit direction per coordinate. A matrix entry of an algebra element is a
coordinate up to sign, or zero, which is what a :class:`Pattern` records:

    GL(n)       every entry its own coordinate                     n^2
    O(n)        A[i, j] = -A[j, i]                                 n (n - 1) / 2
    O fixing 1  the same on the complement of the ones             (n - 1) (n - 2) / 2
    commutant   the same for every block, real or complex          m^2 | 2 m^2, orthogonal: m (m - 1) / 2 | m^2
    scales      one per index, or per class of the partition       for every generator that is positive or real
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from symgraph.algebra.elements import Element, Matrix, Monomial, SpaceLike, Spaces, lead
from symgraph.algebra.groups import Group
from symgraph.algebra.sampling import classes, householder_to_ones, spread


@dataclass(frozen=True)
class Pattern:
    """Entry [i, j] of an algebra element is ``sign[i, j] * c[index[i, j]]``; ``index == dimension`` means zero."""

    index: Tensor
    sign: Tensor
    dimension: int

    def matrix(self, coordinates: Tensor) -> Tensor:
        """``c[*per, D] -> A[*per, n, n]``."""
        padded = torch.cat([coordinates, torch.zeros_like(coordinates[..., :1])], -1) if self.dimension else None
        n = len(self.index)
        if padded is None:
            return torch.zeros(*coordinates.shape[:-1], n, n, dtype=coordinates.dtype, device=coordinates.device)
        entries = padded.index_select(-1, self.index.reshape(-1).to(coordinates.device))
        sign = self.sign.to(coordinates)
        return entries.reshape(*coordinates.shape[:-1], n, n) * sign


def dimension(space: SpaceLike, spaces: Spaces) -> int:
    """Dimension of the continuous group of a space, for all indices of the spaces that it depends on."""
    return prod(lead(space, spaces)) * coordinates(space)


def coordinates(space: SpaceLike) -> int:
    """Dimension of the continuous group at one index of the spaces that it depends on; no matrix is built."""
    n, orthogonal = space.size, space.group.is_orthogonal
    if space.group is Group.GENERAL_LINEAR:
        return n * n
    if space.group is Group.ORTHOGONAL:
        return n * (n - 1) // 2
    if space.group is Group.ORTHOGONAL_FIXING_ONES:
        return (n - 1) * (n - 2) // 2
    if space.group.is_matrix:
        sizes = [(len(block.coordinates), block.field == "complex") for block in space.blocks]
        return sum(_unitary(m, over_c) if orthogonal else m * m * (1 + over_c) for m, over_c in sizes)
    return classes(space) * sum(scale.kind != "sign" for scale in space.scales)


def _unitary(m: int, over_complex: bool) -> int:
    return m * m if over_complex else m * (m - 1) // 2


def pattern(space: SpaceLike) -> Pattern:
    """The algebra of a matrix group, in the frame of :func:`symgraph.algebra.sampling.householder_to_ones` if the
    ones are fixed."""
    n = space.size
    index, sign = torch.full((n, n), coordinates(space)), torch.zeros(n, n, dtype=torch.float64)
    if space.group.is_orthogonal and space.group is not Group.ORTHOGONAL_COMMUTANT:
        first = 1 if space.group is Group.ORTHOGONAL_FIXING_ONES else 0
        blocks = [("real", torch.arange(first, n)[:, None])]
    elif space.group is Group.GENERAL_LINEAR:
        blocks = [("real", torch.arange(n)[:, None])]
    else:
        blocks = [(block.field, torch.tensor([list(one) for one in block.coordinates])) for block in space.blocks]
    used = 0
    for field, places in blocks:
        used = _fill(index, sign, used, places, field == "complex", space.group.is_orthogonal)
    return Pattern(index, sign, used)


def _fill(index: Tensor, sign: Tensor, used: int, places: Tensor, over_complex: bool, orthogonal: bool) -> int:
    """Write one block with its coordinates at ``places[m, 1 or 2]``; returns the number of coordinates used so far."""
    m = len(places)
    for part in range(1 + over_complex):  # real part, then imaginary part
        parity = -1 if part == 0 else 1  # of an antihermitian matrix under transposition
        numbers, signs = _symmetric(m, parity) if orthogonal else (torch.arange(m * m).reshape(m, m), torch.ones(m, m))
        for row in range(1 + over_complex):
            column = row ^ part
            where = (places[:, None, row], places[None, :, column])
            index[where] = torch.where(signs != 0, numbers + used, index[where])
            sign[where] = signs.double() * (-1 if part and row == 0 else 1)
        used += int(numbers.max()) + 1 if bool((signs != 0).any()) else 0
    return used


def _symmetric(m: int, parity: int) -> tuple[Tensor, Tensor]:
    """Numbers and signs of a symmetric (parity 1) or antisymmetric (parity -1) m x m matrix."""
    rows, columns = torch.triu_indices(m, m, offset=0 if parity == 1 else 1)
    numbers, signs = torch.zeros(m, m, dtype=torch.int64), torch.zeros(m, m)
    numbers[rows, columns] = numbers[columns, rows] = torch.arange(len(rows))
    signs[rows, columns], signs[columns, rows] = 1.0, float(parity)
    if parity == 1:
        signs.fill_diagonal_(1.0)
    return numbers, signs


def first_order(space: SpaceLike, spaces: Spaces, values: Tensor) -> Element:
    """The element ``1 + c`` for coordinates ``values[dimension]``: matrices linear in c, logs equal to c."""
    shape = lead(space, spaces)
    values = values.reshape(*shape, coordinates(space))
    if space.group.is_matrix:
        step = pattern(space).matrix(values)
        if space.group is Group.ORTHOGONAL_FIXING_ONES:
            frame = householder_to_ones(space.size).to(step)
            step = frame @ step @ frame
        return Matrix(torch.eye(space.size).to(step) + step)
    logs, ones = {}, torch.ones((*shape, space.size), dtype=values.dtype, device=values.device)
    rest = values
    for scale in space.scales:
        count = 0 if scale.kind == "sign" else classes(space)
        own, rest = rest[..., :count], rest[..., count:]
        logs[scale.name] = spread(own, space) if count else torch.zeros_like(ones)
    permutation = torch.arange(space.size).expand(*shape, space.size)
    return Monomial(permutation, logs, {scale.name: ones for scale in space.scales})
