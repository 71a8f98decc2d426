import pytest
import torch

from symgraph.algebra import lie
from symgraph.algebra.elements import Matrix
from symgraph.algebra.sampling import sample
from tests.algebra.samples import SPACES

EXPECTED = {
    "expert": 0, "head": 0, "qk": 6 * 16, "ov": 6 * 2 * 3, "hidden": 3 * 5, "residual": 10, "centred": 3,
    "rotary": 8 + 2, "phases": 3 * (4 + 1), "bands": 2, "whole": 1, "still": 0,
}  # fmt: skip


def basis(space):
    zero = torch.zeros(lie.dimension(space, SPACES), dtype=torch.float64)
    return torch.func.jacfwd(lambda c: lie.first_order(space, SPACES, c).matrix)(zero).movedim(-1, 0)


@pytest.mark.parametrize("name", sorted(SPACES))
def test_dimension(name):
    assert lie.dimension(SPACES[name], SPACES) == EXPECTED[name]


@pytest.mark.parametrize("name", [name for name, space in sorted(SPACES.items()) if space.group.is_matrix])
def test_the_algebra_is_independent_and_stable_under_the_group(name):
    space = SPACES[name]
    directions = basis(space)
    flat = directions.flatten(1)
    assert torch.linalg.matrix_rank(flat) == len(flat)
    g = sample(space, SPACES, torch.Generator().manual_seed(2)).matrix
    moved = (g @ directions @ torch.linalg.inv(g)).flatten(1)
    assert torch.linalg.matrix_rank(torch.cat([flat, moved]), rtol=1e-9) == len(flat)


@pytest.mark.parametrize("name", [name for name, space in sorted(SPACES.items()) if space.group.is_matrix])
def test_exponentials_lie_in_the_group(name):
    """A curve from the algebra keeps what the sampled elements keep: orthogonality and the ones."""
    space = SPACES[name]
    step = torch.einsum("k...,k->...", basis(space), torch.linspace(-1, 1, len(basis(space))).double())
    g = torch.linalg.matrix_exp(step)
    eye = torch.eye(space.size, dtype=torch.float64)
    if space.group.is_orthogonal:
        assert torch.allclose(g.mT @ g, eye.expand_as(g))
    if name == "centred":
        assert torch.allclose(g.sum(-1), torch.ones(space.size, dtype=torch.float64))


def test_first_order_of_scales():
    element = lie.first_order(SPACES["ov"], SPACES, torch.arange(36.0))
    assert not isinstance(element, Matrix)
    assert element.log["a"].shape == (2, 3, 3)
    assert element.log["b"][0, 0].tolist() == [3.0, 4.0, 5.0]
