"""The commutant of fixed linear operators, where they are aligned with coordinates.

The operators of a rotary embedding act on coordinate planes: for a plane (i, j) and every position they are
``a I + b J``, multiplication by the complex number ``a + i b``. Planes with the same numbers (up to conjugation) form one
isotypic block, on which GL(m, C) commutes with all operators; coordinates on which all operators are the same real number
form a block with GL(m, R). Schur's lemma says that there is nothing else.

>>> import torch
>>> rotation = torch.tensor([[[0.6, -0.8, 0.0], [0.8, 0.6, 0.0], [0.0, 0.0, 1.0]]])
>>> isotypic_blocks(rotation)
[('complex', ((0, 1),)), ('real', ((2,),))]
"""

from __future__ import annotations

import torch
from scipy.sparse.csgraph import connected_components
from torch import Tensor

Blocks = list[tuple[str, tuple[tuple[int, ...], ...]]]

SAME = 1e-5
"""Two characters are the same if they differ by less than this relative to their size: tables are float32."""


def coordinate_classes(matrices: Tensor) -> list[list[int]]:
    """Classes of coordinates that the operators [k, n, n] connect."""
    touching = (matrices != 0).any(0)
    count, labels = connected_components((touching | touching.T).numpy(), directed=False)
    classes: list[list[int]] = [[] for _ in range(count)]
    for index, label in enumerate(labels.tolist()):
        classes[label].append(index)
    return classes


def isotypic_blocks(matrices: Tensor) -> Blocks | None:
    """Isotypic blocks of operators [k, n, n]: (field, coordinates). None where they are not aligned with coordinates."""
    matrices = matrices.double()
    real: list[tuple[int, ...]] = []
    planes: list[tuple[int, ...]] = []
    for members in coordinate_classes(matrices):
        if len(members) > 2:
            return None
        (real if len(members) == 1 else planes).append(tuple(members))
    characters = _planes(matrices, planes)
    if characters is None:
        return None
    numbers = torch.stack([matrices[:, i, i] for (i,) in real]).to(torch.complex128) if real else None
    found = [*_grouped("complex", planes, characters), *_grouped("real", real, numbers)]
    return sorted(found, key=lambda block: block[1])


def _planes(matrices: Tensor, planes: list[tuple[int, ...]]) -> Tensor | None:
    """The complex numbers [planes, k] by which the operators multiply planes, or None where they do not."""
    if not planes:
        return torch.zeros(0, len(matrices), dtype=torch.complex128)
    i, j = (torch.tensor(side) for side in zip(*planes, strict=True))
    a, b, c, d = matrices[:, i, i].T, matrices[:, j, i].T, matrices[:, i, j].T, matrices[:, j, j].T
    scale = torch.stack([a, b, c, d]).abs().amax(0)
    wrong = torch.maximum((a - d).abs(), (b + c).abs())
    return None if bool((wrong > SAME * scale).any()) else torch.complex(a, b)


def _equal(first: Tensor, second: Tensor) -> Tensor:
    """Which characters [m, k] and [m, k] agree at every position, pairwise [m, m]; each part at its own scale."""
    same = torch.ones(len(first), len(second), dtype=torch.bool)
    for a, b in ((first.real, second.real), (first.imag, second.imag)):
        one, other = a[:, None], b[None]
        same &= ((one - other).abs() <= SAME * torch.maximum(one.abs(), other.abs())).all(-1)
    return same


def _grouped(field: str, coordinates: list[tuple[int, ...]], characters: Tensor | None) -> Blocks:
    """Coordinates with equal characters together; a plane with the conjugate one is turned over."""
    if characters is None or not coordinates:
        return []
    same = _equal(characters, characters).tolist()
    turned = _equal(characters.conj(), characters).tolist()
    groups: dict[int, list[tuple[int, ...]]] = {}
    for index, members in enumerate(coordinates):
        leader = next((first for first in groups if same[first][index] or turned[first][index]), index)
        groups.setdefault(leader, []).append(members if same[leader][index] else members[::-1])
    return [(field, tuple(members)) for members in groups.values()]
