"""The orthogonal element of a matrix group that aligns best: ``max <C, g>`` over the compact part of the group.

``C[.., i, j] = sum a_i b_j`` is the correlation of the target's coordinate i with the moved one's j. The maximiser of
``tr(g^T C)`` over O(n) is the polar factor ``U V^T`` of C; over a subgroup it is the polar factor of the projection
of C to the subgroup's matrices:

    fixing the ones    the corner of H C H on the complement, H the frame that brings the first unit vector to the ones
    real blocks        the corner on the block's coordinates
    complex blocks     sum z_a conj(z_b) of the planes z = x[re] + i x[im], a complex matrix
"""

from __future__ import annotations

import torch
from torch import Tensor

from symgraph.algebra.elements import Matrix
from symgraph.algebra.groups import Group
from symgraph.algebra.sampling import householder_to_ones
from symgraph.match.blocks import gather, scatter
from symgraph.spec.model import Space


def procrustes(space: Space, c: Tensor) -> Matrix:
    """The best orthogonal matrices for the correlations ``c[*per, n, n]``."""
    if space.group is Group.ORTHOGONAL_FIXING_ONES:
        return Matrix(_fixing_ones(c), orthogonal=True)
    if space.blocks:
        best = torch.eye(space.size, dtype=c.dtype).expand(c.shape).clone()
        for same in gather(space, c):
            scatter(best, same, polar(same.values))
        return Matrix(best, orthogonal=True)
    return Matrix(polar(c), orthogonal=True)


def polar(c: Tensor) -> Tensor:
    """The orthogonal (unitary) polar factor of ``c[.., n, n]``."""
    u, _, vh = torch.linalg.svd(c)
    result: Tensor = u @ vh
    return result


def image(c: Tensor, rank: int) -> Tensor:
    """The projector on the image of correlations ``c[.., n, n]`` of that rank: where they tell the best match."""
    u = torch.linalg.svd(c)[0][..., :rank]
    projector: Tensor = u @ u.mT
    return projector


def _fixing_ones(c: Tensor) -> Tensor:
    n = c.shape[-1]
    frame = householder_to_ones(n).to(c)
    inner = torch.zeros_like(c)
    inner[..., 0, 0] = 1.0
    if n > 1:
        inner[..., 1:, 1:] = polar((frame @ c @ frame)[..., 1:, 1:])
    return frame @ inner @ frame
