import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from symgraph.algebra.elements import Matrix, identity
from symgraph.algebra.groups import Group
from symgraph.algebra.sampling import householder_to_ones, sample
from tests.algebra.samples import SPACES, Space

seeds = st.integers(0, 2**31)


def drawn(name, seed):
    return sample(SPACES[name], SPACES, torch.Generator().manual_seed(seed))


def complex_structure(space):
    j = torch.zeros(space.size, space.size, dtype=torch.float64)
    for block in space.blocks:
        for plane in block.coordinates if block.field == "complex" else ():
            j[plane[0], plane[1]], j[plane[1], plane[0]] = -1.0, 1.0
    return j


@settings(deadline=None, max_examples=20)
@given(st.sampled_from(sorted(SPACES)), seeds)
def test_elements_lie_in_their_group(name, seed):
    space, element = SPACES[name], drawn(name, seed)
    eye = torch.eye(space.size, dtype=torch.float64)
    if isinstance(element, Matrix):
        assert torch.linalg.cond(element.matrix).max() < 10
        assert torch.allclose(element.contragredient.mT @ element.matrix, eye.expand_as(element.matrix))
        if space.group.is_orthogonal:
            assert torch.allclose(element.matrix.mT @ element.matrix, eye.expand_as(element.matrix))
        if space.group is Group.ORTHOGONAL_FIXING_ONES:
            assert torch.allclose(element.matrix.sum(-1), torch.ones(space.size, dtype=torch.float64))
        if space.blocks:
            j = complex_structure(space)
            assert torch.allclose(element.matrix @ j, j @ element.matrix)
        return
    assert torch.equal(element.permutation.sort(-1).values, identity(space, SPACES).permutation)
    for scale in space.scales:
        log, sign = element.log[scale.name], element.sign[scale.name]
        assert log.shape == sign.shape == element.permutation.shape
        assert bool((log == 0).all()) == (scale.kind == "sign")
        assert set(sign.unique().tolist()) <= ({1.0} if scale.kind == "positive" else {1.0, -1.0})
        for members in space.partition:
            assert len(log[..., list(members)].unique()) == 1


@pytest.mark.parametrize("name", ["residual", "centred", "phases"])
def test_reflections_are_drawn(name):
    signs = {round(float(torch.linalg.det(drawn(name, seed).matrix).reshape(-1)[0])) for seed in range(20)}
    assert signs == {1, -1}


def test_negative_determinants_and_scales_are_drawn():
    assert {bool(torch.linalg.det(drawn("qk", seed).matrix)[0, 0] > 0) for seed in range(20)} == {True, False}
    assert {float(drawn("bands", seed).sign["a"][0]) for seed in range(20)} == {1.0, -1.0}


def test_commutants_have_phases_and_radii():
    matrix = drawn("rotary", 0).matrix
    plane = matrix[[2, 5]][:, [2, 5]]
    assert abs(float(torch.linalg.det(plane)) - 1) > 1e-3
    assert abs(float(plane[0, 1])) > 1e-3
    assert torch.equal(matrix[6], torch.eye(7, dtype=torch.float64)[6])


def test_indices_in_no_class_of_a_partition_stay():
    element = drawn("bands", 1)
    assert element.log["a"][4] == 0
    assert element.sign["a"][4] == 1


def test_every_index_of_the_outer_spaces_has_its_own_element():
    matrix = drawn("qk", 1).matrix
    assert matrix.shape == (3, 2, 4, 4)
    assert not torch.allclose(matrix[0, 0], matrix[0, 1])


def test_the_same_generator_gives_the_same_element():
    assert torch.equal(drawn("qk", 4).matrix, drawn("qk", 4).matrix)


@pytest.mark.parametrize("n", [1, 2, 7])
def test_the_frame_of_the_ones(n):
    frame = householder_to_ones(n)
    assert torch.allclose(frame[0], torch.full((n,), n**-0.5, dtype=torch.float64))
    assert torch.allclose(frame @ frame, torch.eye(n, dtype=torch.float64))


@pytest.mark.parametrize("group", [group for group in Group if group.is_matrix])
def test_size_one(group):
    space = Space("one", 1, group)
    element = sample(space, {"one": space}, torch.Generator().manual_seed(1))
    assert element.matrix.shape == (1, 1)
