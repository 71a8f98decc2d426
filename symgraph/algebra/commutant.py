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
    found: list[tuple[str, Tensor, list[tuple[int, ...]]]] = []
    for members in coordinate_classes(matrices):
        if len(members) == 1:
            _join(found, "real", matrices[:, members[0], members[0]].to(torch.complex128), (members[0],))
        elif len(members) == 2:
            character = _plane(matrices, *members)
            if character is None:
                return None
            _join(found, "complex", character, (members[0], members[1]))
        else:
            return None
    return [(field, tuple(coordinates)) for field, _, coordinates in found]


def _plane(matrices: Tensor, i: int, j: int) -> Tensor | None:
    """The complex numbers [k] by which the operators multiply a plane, or None where they do not."""
    a, b = matrices[:, i, i], matrices[:, j, i]
    scale = matrices[:, [i, j]][:, :, [i, j]].abs().amax((1, 2))
    wrong = torch.maximum((a - matrices[:, j, j]).abs(), (b + matrices[:, i, j]).abs())
    return None if bool((wrong > SAME * scale).any()) else torch.complex(a, b)


def _equal(first: Tensor, second: Tensor) -> bool:
    """Whether two characters agree, real and imaginary parts each at its own scale."""
    for a, b in ((first.real, second.real), (first.imag, second.imag)):
        if bool(((a - b).abs() > SAME * torch.maximum(a.abs(), b.abs())).any()):
            return False
    return True


def _join(
    found: list[tuple[str, Tensor, list[tuple[int, ...]]]], field: str, character: Tensor, coordinates: tuple[int, ...]
) -> None:
    for other_field, other, members in found:
        if other_field != field:
            continue
        if _equal(character, other):
            members.append(coordinates)
            return
        if field == "complex" and _equal(character.conj(), other):
            members.append(coordinates[::-1])
            return
    found.append((field, character, [coordinates]))
