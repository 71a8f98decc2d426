"""The whole zoo of parametrizations: start at the identity, land in the group, exact inverse, gradients."""

from __future__ import annotations

import pytest
import torch

from symgraph.algebra.elements import Matrix
from symgraph.algebra.sampling import conditioned, haar
from symgraph.errors import MatchError
from symgraph.match.charts import charts
from symgraph.match.parametrizations import INVERTIBLE, ORTHOGONAL, named
from symgraph.match.selection import select

from .samples import SAMPLES

ZOO = [(name, True) for name in ORTHOGONAL] + [(name, False) for name in INVERTIBLE]
EPS = torch.finfo(torch.float64).eps


def drawn(latents, part, scale=0.3):
    generator = torch.Generator().manual_seed(0)
    return {
        key: value if key in part.fixed else scale * torch.randn(value.shape, generator=generator, dtype=torch.float64)
        for key, value in latents.items()
    }


@pytest.mark.parametrize("over_complex", [False, True])
@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize(("name", "orthogonal"), ZOO)
def test_walk_through_the_zoo(name, orthogonal, size, over_complex):
    part = named(name, orthogonal, size)
    dtype = torch.complex128 if over_complex else torch.float64
    eye = torch.eye(size, dtype=dtype).expand(3, size, size)
    zero = part.zero((3, size, size), over_complex, torch.float64)
    assert (part.forward(zero) - eye).abs().max() <= 4 * size * EPS
    latents = drawn(zero, part)
    matrix = part.forward(latents)
    if orthogonal or name == "cayley":
        assert (matrix @ matrix.mH - eye).abs().max() <= 40 * size * EPS
    assert float(torch.linalg.svdvals(matrix).min()) > 1e-3
    moving = [key for key in latents if key not in part.fixed]

    def forward(*values):
        return part.forward({**latents, **dict(zip(moving, values, strict=True))})

    assert torch.autograd.gradcheck(forward, [latents[key].clone().requires_grad_() for key in moving])


@pytest.mark.parametrize("over_complex", [False, True])
@pytest.mark.parametrize(("name", "orthogonal"), [one for one in ZOO if one[0] != "householder"])
def test_inverse(name, orthogonal, over_complex):
    """Back and forth, on the image: all orthogonal and all invertible matrices for cayley, polar and direct."""
    part = named(name, orthogonal, 5)
    generator = torch.Generator().manual_seed(1)
    dtype = torch.complex128 if over_complex else torch.float64
    if name in ("cayley", "svd"):
        matrix = haar((8,), 5, generator, dtype)
    elif name in ("polar", "direct"):
        matrix = conditioned((8,), 5, generator, 1.0, dtype)
    else:
        matrix = part.forward(drawn(part.zero((8, 5, 5), over_complex, torch.float64), part))
    assert (part.forward(part.right_inverse(matrix)) - matrix).abs().max() < 1e-9


@pytest.mark.parametrize("size", [2, 5, 6])
def test_householder_reaches_every_rotation(size):
    """Also those that fix some coordinates, or turn two of them round; reflections are refused."""
    part = named("householder", True, size)
    matrices = haar((8,), size, torch.Generator().manual_seed(0))
    rotations = matrices * torch.where(torch.linalg.det(matrices) < 0, -1.0, 1.0)[:, None, None] ** torch.eye(size)[0]
    turned = torch.eye(size, dtype=torch.float64)
    turned[0, 0] = turned[1, 1] = -1
    near = part.forward({"x": 1e-9 * torch.randn(size, size, generator=torch.Generator().manual_seed(1)).double()})
    for matrix in (rotations, torch.eye(size, dtype=torch.float64), turned, near, part.forward(drawn({"x": matrices}, part))):
        found = part.right_inverse(matrix)
        assert (part.forward(found) - matrix).abs().max() < 20 * size * EPS
        assert found["x"].shape == matrix.shape
    turned[1, 1] = 1
    with pytest.raises(MatchError, match="a reflection is no product of an even number of mirrors"):
        part.right_inverse(turned)
    with pytest.raises(MatchError, match="householder coordinates of a complex matrix start at the identity only"):
        part.right_inverse(haar((), size, torch.Generator().manual_seed(0), torch.complex128))


def test_cayley_reaches_minus_one():
    """Every sign pattern, and reflections, whose Cayley transform does not exist without the sign matrix."""
    part = named("cayley", True, 3)
    signs = torch.cartesian_prod(*[torch.tensor([1.0, -1.0], dtype=torch.float64)] * 3)
    for matrix in (torch.diag_embed(signs), -haar((4,), 3, torch.Generator().manual_seed(0))):
        assert (part.forward(part.right_inverse(matrix)) - matrix).abs().max() < 1e-12


def test_unknown_names_are_refused():
    with pytest.raises(MatchError, match="no parametrization 'polar' of orthogonal matrices: choose cayley, exp"):
        named("polar", True, 4)


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_charts_stay_in_their_groups(name):
    """Elements at random latents are in the group of their space: the function does not see them."""
    from symgraph.spec.stages import Stage
    from symgraph.spec.transform import Transform

    from .samples import inputs

    module, spec = SAMPLES[name]()
    canon = module.state_dict()
    expected = torch.func.functional_call(module, canon, (inputs(name),))
    generator = torch.Generator().manual_seed(0)
    found = charts(spec.space_map, select(spec).spaces)
    assert found
    for scale in (0.0, 0.3):
        elements = {}
        for key, chart in found.items():
            latents = {
                one: value + (scale * torch.randn(value.shape, generator=generator).double() if chart.learned(one) else 0)
                for one, value in chart.zero(torch.float64, torch.device("cpu")).items()
            }
            elements[key] = chart.element(latents)
        moved = Transform(spec, (Stage(elements),)).apply(canon)
        gap = max(float((moved[key] - canon[key]).abs().max()) for key in canon)
        assert gap < 1e-14 if scale == 0 else gap > 0.1
        out = torch.func.functional_call(module, moved, (inputs(name),))
        assert (out - expected).abs().max() < 1e-10 * expected.abs().max()
        assert all(one.matrix.shape[-1] == spec.space(key).size for key, one in elements.items() if isinstance(one, Matrix))
