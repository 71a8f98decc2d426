"""Balancing: the least norm, equal Gram matrices, the same point from everywhere on an orbit up to compact groups."""

from __future__ import annotations

import pytest
import torch

from symgraph.algebra.sampling import conditioned
from symgraph.match.balance import balance, balancer, least_scales
from symgraph.match.gauge import gauge
from symgraph.match.selection import select
from symgraph.spec.model import Shift, ShiftTerm, View
from symgraph.spec.operations import sample

from .samples import SAMPLES, inputs

NAMES = sorted(SAMPLES)


def norm(weights):
    return float(sum(value.square().sum() for value in weights.values()))


@pytest.mark.parametrize("name", NAMES)
def test_same_norm_from_everywhere_and_never_more(name):
    module, spec = SAMPLES[name]()
    canon = module.state_dict()
    linear = [space.name for space in spec.spaces]
    norms = []
    for seed in range(3):
        moved = sample(spec, seed=seed, scale=0.7, only=linear).apply(canon)
        transform = balance(spec, moved, select(spec))
        norms.append(norm(transform.apply(moved)))
        assert norms[-1] <= norm(moved) * (1 + 1e-12)
    assert norms == pytest.approx([norms[0]] * 3, rel=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_the_function_stays(name):
    module, spec = SAMPLES[name]()
    canon = module.state_dict()
    for transform in (balance(spec, canon, select(spec)), gauge(spec, canon)):
        moved = transform.apply(canon)
        out = [torch.func.functional_call(module, weights, (inputs(name),)) for weights in (canon, moved)]
        assert (out[0] - out[1]).abs().max() < 1e-10 * out[0].abs().max()


def test_gram_matrices_are_equal():
    module, spec = SAMPLES["attention"]()
    canon = gauge(spec, module.state_dict()).apply(module.state_dict())
    moved = balance(spec, canon, select(spec)).apply(canon)
    v = torch.cat([moved["v.weight"], moved["v.bias"][:, None]], 1).unflatten(0, (3, 2))
    o = moved["o.weight"].unflatten(1, (3, 2)).permute(1, 2, 0)
    assert torch.allclose(v @ v.mT, o @ o.mT, atol=1e-10)


def test_gauge_sets_to_zero_what_it_can():
    module, spec = SAMPLES["attention"]()
    canon = module.state_dict()
    moved = gauge(spec, sample(spec, seed=0, only=["key", "value"]).apply(canon))
    freed = moved.apply(sample(spec, seed=0, only=["key", "value"]).apply(canon))
    assert freed["v.bias"].abs().max() < 1e-13
    assert freed["qk.bias"].unflatten(0, (3, 8))[:, 4:].abs().max() < 1e-13
    plain = gauge(spec, canon).apply(canon)
    assert torch.allclose(freed["o.bias"], plain["o.bias"], atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_balancer(dtype):
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(2, 4, 9, generator=generator, dtype=dtype) for _ in range(2))
    p, q = x @ x.mH, y @ y.mH
    s = balancer(p, q)
    inverse = torch.linalg.inv(s)
    assert torch.allclose(s @ p @ s.mH, inverse @ q @ inverse, atol=1e-9)
    alone = balancer(p, torch.zeros_like(q))
    assert torch.allclose(alone @ p @ alone, torch.eye(4, dtype=dtype).expand(2, 4, 4), atol=1e-9)
    assert torch.allclose(balancer(0 * p, 0 * q), torch.eye(4, dtype=dtype).expand(2, 4, 4))


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize(("r", "s"), [(2, 6), (6, 2), (2, 3), (5, 4), (2, 0), (0, 3)])
def test_balancer_of_deficient_sides(r, s, dtype):
    """From everywhere on the orbit the same Gram matrices up to a unitary; nothing moves that is balanced."""
    n, generator = 6, torch.Generator().manual_seed(r + 10 * s)
    x, y = (torch.randn(2, n, k, generator=generator, dtype=dtype) for k in (r, s))
    spectra = []
    for seed in range(3):
        g = conditioned((2,), n, torch.Generator().manual_seed(seed), 1.0, dtype)
        p, q = g @ x @ x.mH @ g.mH, torch.linalg.inv(g).mH @ y @ y.mH @ torch.linalg.inv(g)
        found = balancer(p, q, ranks=(r, s))
        inverse = torch.linalg.inv(found)
        p, q = found @ p @ found.mH, inverse.mH @ q @ inverse
        spectra.append(torch.linalg.eigvalsh(torch.cat([p, q], -1) @ torch.cat([p, q], -1).mH))
        assert (balancer(p, q, ranks=(r, s)) - torch.eye(n, dtype=dtype)).abs().max() < 1e-6
        both = (p @ q - q @ p).abs().max()  # equal where both are, and apart where only one is
        assert both < 1e-8
    assert torch.allclose(spectra[0], spectra[1], atol=1e-8)
    assert torch.allclose(spectra[0], spectra[2], atol=1e-8)


def test_scales_by_newton_and_closed_form():
    generator = torch.Generator().manual_seed(0)
    w = torch.tensor([[1.0, 0.0], [-1.0, 1.0], [0.0, -2.0], [1.0, 1.0]], dtype=torch.float64)
    c = torch.rand(5, 4, generator=generator, dtype=torch.float64) + 0.01
    x = least_scales(w, c)
    values = c * (2 * x @ w.T).exp()
    assert (values @ w).abs().max() < 1e-10
    one = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    x = least_scales(one, c[:, :2])
    assert torch.allclose(c[:, 0] * (2 * x[:, 0]).exp(), c[:, 1] * (-2 * x[:, 0]).exp())
    x = least_scales(one, torch.tensor([[4.0, 0.0]], dtype=torch.float64))
    assert float(4.0 * (2 * x).exp()) == pytest.approx(1.0)


def test_overlapping_shifts_are_removed_together():
    """Four coordinates of a bias, and its mean: together all of it, one after the other only in the limit."""
    module, spec = SAMPLES["attention"]()
    part = View(tensor="o.bias", shape=(5,), window=((0, 4),))
    whole = View(tensor="o.bias", shape=(5,), window=((0, 5),))
    shifts = (
        Shift(name="part", shape=(4,), terms=(ShiftTerm(target=part, equation="a->a"),), kind="ignored", dimension=4),
        Shift(name="mean", shape=(1,), terms=(ShiftTerm(target=whole, equation="T->T"),), kind="ignored", dimension=1),
    )
    spec = spec.model_copy(update={"shifts": shifts})
    canon = module.state_dict()
    freed = gauge(spec, canon).apply(canon)
    assert freed["o.bias"].abs().max() < 1e-12
    assert torch.equal(freed["v.bias"], canon["v.bias"])
