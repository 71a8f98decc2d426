"""Isotypic blocks against the commutant computed as a null space."""

from __future__ import annotations

import pytest
import torch

from symgraph.algebra.commutant import coordinate_classes, isotypic_blocks


def rotations(size, frequencies, interleaved=False, positions=5):
    """Rotary operators [positions, size, size]; what the planes leave over stays."""
    half = len(frequencies)
    planes = [(2 * k, 2 * k + 1) if interleaved else (k, k + half) for k in range(half)]
    result = torch.eye(size, dtype=torch.float64).repeat(positions, 1, 1)
    for (i, j), frequency in zip(planes, frequencies, strict=True):
        angle = torch.arange(positions, dtype=torch.float64) * frequency
        result[:, i, i] = result[:, j, j] = angle.cos()
        result[:, j, i], result[:, i, j] = angle.sin(), -angle.sin()
    return result


def measured(matrices):
    """Dimension of the commutant."""
    size = matrices.shape[-1]
    eye = torch.eye(size, dtype=torch.float64)
    rows = torch.cat([torch.kron(each, eye) - torch.kron(eye, each.T.contiguous()) for each in matrices])
    return size * size - int(torch.linalg.matrix_rank(rows))


def claimed(blocks):
    return sum(len(coordinates) ** 2 * (2 if field == "complex" else 1) for field, coordinates in blocks)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(
    ("size", "frequencies"),
    [(2, (1.0,)), (4, (1.0, 0.3)), (6, (1.0, 0.3)), (6, (0.7, 0.7, 0.2)), (6, (0.7, -0.7)), (8, (0.5, 0.5, 0.5, 0.5))],
)
def test_rotary_operators(size, frequencies, interleaved):
    matrices = rotations(size, frequencies, interleaved)
    assert claimed(isotypic_blocks(matrices)) == measured(matrices)


def test_planes_follow_the_layout():
    split, interleaved = (isotypic_blocks(rotations(5, (1.0, 0.3), each)) for each in (False, True))
    assert split == [("complex", ((0, 2),)), ("complex", ((1, 3),)), ("real", ((4,),))]
    assert interleaved == [("complex", ((0, 1),)), ("complex", ((2, 3),)), ("real", ((4,),))]


def test_a_plane_that_turns_the_other_way_is_turned_over():
    assert isotypic_blocks(rotations(4, (0.7, -0.7))) == [("complex", ((0, 2), (3, 1)))]


def test_equal_diagonal_operators_are_one_block():
    matrices = torch.diag_embed(torch.tensor([[1.0, 2.0, 1.0], [3.0, 3.0, 3.0]]))
    assert isotypic_blocks(matrices) == [("real", ((0,), (2,))), ("real", ((1,),))]
    assert measured(matrices.double()) == 5


def test_a_table_in_single_precision():
    matrices = rotations(8, (1.0, 0.1, 0.01, 0.001)).float()
    assert len(isotypic_blocks(matrices)) == 4


@pytest.mark.parametrize(
    "matrices",
    [torch.ones(1, 3, 3), torch.tensor([[[1.0, 2.0], [3.0, 4.0]]]), torch.tensor([[[1.0, 0.5], [0.0, 1.0]]])],
    ids=["three coupled", "no complex number", "shear"],
)
def test_operators_that_are_not_aligned(matrices):
    assert isotypic_blocks(matrices) is None


def test_classes_of_coordinates():
    matrices = torch.zeros(2, 4, 4)
    matrices[0, 0, 2] = matrices[1, 2, 3] = 1.0
    assert sorted(map(sorted, coordinate_classes(matrices))) == [[0, 2, 3], [1]]
