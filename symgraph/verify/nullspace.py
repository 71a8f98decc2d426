"""The null space of a matrix with many rows, cut off at the largest gap of its singular values.

The triangular factor of the rows has their singular values. Pivoting sorts its diagonal by size; the columns behind the
first entry that is small, and a few before it, span a subspace with the null space in it. On this small subspace the singular
values are taken exactly, so that what is null (1e-16) stands clear of what is only weak (1e-9): the square of the matrix, whose
eigenvalues would be had more cheaply, cannot tell these apart. In front of them stand the pivots, which are the singular values
up to a small factor.

Rows are drawn until as many fresh ones again do not see the null space: a unit that is hardly ever active takes many inputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, log10, sqrt

import numpy as np
import scipy.linalg
import torch
from torch import Tensor

OVERSAMPLED = 1.3
"""Rows per column before the first count."""
CONFIRMED = 1.0
"""Fresh rows per column that have to agree with a count."""
MORE = 0.5
"""Rows per column that are added when they do not."""
SMALL = 1e-5
"""Pivots below this, relative to the first, are looked at exactly."""
BEFORE = 8
"""Columns before the first small pivot that are looked at exactly, too."""
FLOOR = 1e-17
"""Singular values below this, relative to the largest, count as this."""


@dataclass(frozen=True)
class NullSpace:
    """An orthonormal basis [n, nullity] of the null space of ``matrix``.

    ``scale`` is the largest singular value, ``gap`` the gap at the cut in decades, ``threshold`` the middle of it.
    """

    matrix: Tensor
    basis: Tensor
    scale: float
    gap: float
    threshold: float


def cut(values: Tensor) -> tuple[int, float]:
    """How many singular values (descending) are above the largest gap of their logarithms, and the gap in decades.

    A spectrum without zeros ends in a gap to :data:`FLOOR`.
    """
    if not len(values) or float(values[0]) == 0.0:
        return 0, float("inf")
    scaled = [max(float(value) / float(values[0]), FLOOR) for value in values] + [FLOOR]
    gaps = [log10(a / b) for a, b in pairwise(scaled)]
    best = max(range(len(gaps)), key=lambda index: gaps[index])
    return best + 1, gaps[best]


def null_space(matrix: Tensor) -> NullSpace:
    """The null space of matrix[m, n], m >= n."""
    count = matrix.shape[1]
    triangle, order = scipy.linalg.qr(matrix.numpy(), mode="r", pivoting=True, check_finite=False)
    pivots = np.abs(np.diag(triangle))
    if not count or pivots[0] == 0:
        return NullSpace(matrix, torch.eye(count, dtype=torch.float64), 0.0, float("inf"), 0.0)
    large = max(1, int((pivots > SMALL * pivots[0]).sum()) - BEFORE)
    candidates = np.zeros((count, count - large))
    candidates[order[:large]] = -scipy.linalg.solve_triangular(triangle[:large, :large], triangle[:large, large:])
    candidates[order[large:]] = np.eye(count - large)
    subspace = torch.linalg.qr(torch.from_numpy(candidates)).Q
    _, small, right = torch.linalg.svd(matrix @ subspace, full_matrices=False)
    ceiling = torch.from_numpy(np.minimum.accumulate(pivots[:large]))
    values = torch.cat([ceiling, small.clamp(max=float(ceiling[-1]))])
    kept, gap = cut(values)
    null = max(0, kept - large)
    threshold = float(values[kept - 1]) / 10 ** (gap / 2)
    return NullSpace(matrix, subspace @ right[null:].mT, float(values[0]), gap, threshold)


def settled(blocks: Iterator[Tensor], count: int) -> NullSpace:
    """The null space of so many rows [*, count] that as many fresh ones do not see it."""
    triangle = _triangle(drawn(blocks, ceil(OVERSAMPLED * count) + 8))
    while True:
        found = null_space(triangle)
        if not found.basis.shape[1]:
            return found
        fresh = drawn(blocks, ceil(CONFIRMED * count))
        # a row is as long as the largest singular value over the root of their number, at most
        if float((fresh @ found.basis).norm(dim=1).max()) <= found.threshold / sqrt(count):
            return found
        triangle = _triangle(torch.cat([triangle, fresh, drawn(blocks, ceil(MORE * count))]))


def _triangle(rows: Tensor) -> Tensor:
    """A matrix [n, n] with the singular values and the null space of ``rows``."""
    factor: Tensor = torch.linalg.qr(rows, mode="r").R
    return factor


def drawn(blocks: Iterator[Tensor], goal: int) -> Tensor:
    """At least ``goal`` rows."""
    found: list[Tensor] = []
    while sum(len(block) for block in found) < goal:
        found.append(next(blocks))
    return torch.cat(found)
