"""Random elements of every group, from a generator that is passed in.

Elements are drawn from the whole group, reflections and negative scales included, and stay well conditioned: singular
values and scales lie in exp(±scale), so that float64 carries the action to 1e-12.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial

import torch
from torch import Generator, Tensor

from symgraph.algebra.elements import BlockLike, Element, Matrix, Monomial, SpaceLike, Spaces, lead
from symgraph.algebra.groups import Group


def sample(space: SpaceLike, spaces: Spaces, generator: Generator, scale: float = 1.0) -> Element:
    """A random element of the group of ``space``, drawn independently for every index of the spaces it depends on."""
    shape = lead(space, spaces)
    if space.group.is_matrix:
        return Matrix(_MATRICES[space.group](space, shape, generator, scale), space.group.is_orthogonal)
    permutation = torch.arange(space.size).expand(*shape, space.size).clone()
    if space.group.permutes:
        permutation = torch.rand(permutation.shape, generator=generator, dtype=torch.float64).argsort(-1)
    logs, signs = {}, {}
    for one in space.scales:
        values = torch.rand((2, *shape, classes(space)), generator=generator, dtype=torch.float64) * 2 - 1
        log, sign = scale * values[0], torch.where(values[1] < 0, -1.0, 1.0).double()
        logs[one.name] = spread(torch.zeros_like(log) if one.kind == "sign" else log, space)
        signs[one.name] = spread(torch.ones_like(sign) if one.kind == "positive" else sign, space, neutral=1.0)
    return Monomial(permutation, logs, signs)


def classes(space: SpaceLike) -> int:
    """Number of independent values of one scale generator."""
    return len(space.partition) or space.size


def spread(values: Tensor, space: SpaceLike, neutral: float = 0.0) -> Tensor:
    """``values[.., classes]`` written to the indices of their class: [.., n]. Indices in no class are ``neutral``."""
    if not space.partition:
        return values
    index = torch.full((space.size,), len(space.partition))
    for number, members in enumerate(space.partition):
        index[list(members)] = number
    padded = torch.cat([values, torch.full_like(values[..., :1], neutral)], dim=-1)
    return padded.index_select(-1, index.to(values.device))


def haar(shape: tuple[int, ...], n: int, generator: Generator, dtype: torch.dtype = torch.float64) -> Tensor:
    """Haar-random orthogonal (or, for a complex dtype, unitary) matrices [*shape, n, n]."""
    q, r = torch.linalg.qr(torch.randn((*shape, n, n), generator=generator, dtype=dtype))
    diagonal = r.diagonal(dim1=-2, dim2=-1)
    result: Tensor = q * (diagonal / diagonal.abs()).unsqueeze(-2)  # makes the factorization unique, hence q Haar
    return result


def conditioned(
    shape: tuple[int, ...], n: int, generator: Generator, scale: float, dtype: torch.dtype = torch.float64
) -> Tensor:
    """Random invertible matrices [*shape, n, n] with singular values in exp(±scale / 2)."""
    logs = scale * (torch.rand((*shape, n), generator=generator, dtype=torch.float64) - 0.5)
    return (haar(shape, n, generator, dtype) * logs.exp().unsqueeze(-2)) @ haar(shape, n, generator, dtype)


def householder_to_ones(n: int) -> Tensor:
    """The symmetric orthogonal matrix [n, n] that exchanges the first unit vector and 1/sqrt(n) * ones."""
    v = torch.full((n,), n**-0.5, dtype=torch.float64)
    v[0] -= 1.0
    eye = torch.eye(n, dtype=torch.float64)
    return eye - torch.outer(v, v) * (2.0 / (v @ v)) if n > 1 else eye


def _general_linear(space: SpaceLike, shape: tuple[int, ...], generator: Generator, scale: float) -> Tensor:
    return conditioned(shape, space.size, generator, scale)


def _orthogonal(space: SpaceLike, shape: tuple[int, ...], generator: Generator, scale: float) -> Tensor:
    return haar(shape, space.size, generator)


def _fixing_ones(space: SpaceLike, shape: tuple[int, ...], generator: Generator, scale: float) -> Tensor:
    """H diag(1, R) H with R in O(n - 1), where H brings the first unit vector to the ones."""
    inner = torch.zeros((*shape, space.size, space.size), dtype=torch.float64)
    inner[..., 0, 0] = 1.0
    if space.size > 1:
        inner[..., 1:, 1:] = haar(shape, space.size - 1, generator)
    frame = householder_to_ones(space.size)
    return frame @ inner @ frame


def _commutant(
    space: SpaceLike, shape: tuple[int, ...], generator: Generator, scale: float, *, orthogonal: bool
) -> Tensor:
    """Blocks of one size and field are drawn together; coordinates in no block stay."""
    matrix = torch.eye(space.size, dtype=torch.float64).expand(*shape, space.size, space.size).clone()
    alike: dict[tuple[str, int], list[BlockLike]] = defaultdict(list)
    for block in space.blocks:
        alike[block.field, len(block.coordinates)].append(block)
    for (field, m), blocks in alike.items():
        dtype = torch.complex128 if field == "complex" else torch.float64
        many = (*shape, len(blocks))
        drawn = haar(many, m, generator, dtype) if orthogonal else conditioned(many, m, generator, scale, dtype)
        places = torch.tensor([[list(one) for one in block.coordinates] for block in blocks])  # [blocks, m, 1 or 2]
        for a, b, values in _real_parts(drawn):
            matrix[..., places[:, :, None, a], places[:, None, :, b]] = values
    return matrix


def _real_parts(values: Tensor) -> list[tuple[int, int, Tensor]]:
    """A complex number acts on (re, im) by [[re, -im], [im, re]]: (row part, column part, entries)."""
    if not values.is_complex():
        return [(0, 0, values)]
    return [(0, 0, values.real), (0, 1, -values.imag), (1, 0, values.imag), (1, 1, values.real)]


_MATRICES: dict[Group, Callable[[SpaceLike, tuple[int, ...], Generator, float], Tensor]] = {
    Group.GENERAL_LINEAR: _general_linear,
    Group.ORTHOGONAL: _orthogonal,
    Group.ORTHOGONAL_FIXING_ONES: _fixing_ones,
    Group.COMMUTANT: partial(_commutant, orthogonal=False),
    Group.ORTHOGONAL_COMMUTANT: partial(_commutant, orthogonal=True),
}
