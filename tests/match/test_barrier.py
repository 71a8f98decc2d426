"""Barriers and interpolation; and the ways in which checkpoints do not fit."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import symgraph as sg
from symgraph.errors import CheckpointError, MatchError
from symgraph.match import BarrierCurve, barrier, interpolate, match

from .samples import SAMPLES, inputs, state


def loss(model, batch):
    return model(batch).square().mean()


def test_definition():
    curve = BarrierCurve((0.0, 0.5, 1.0), (1.0, 4.0, 2.0))
    assert curve.barrier == pytest.approx(2.5)
    assert BarrierCurve((0.0, 0.5, 1.0), (1.0, 0.5, 2.0)).barrier == 0.0


def test_curve_is_the_loss_along_the_line():
    module, _ = SAMPLES["perceptron"]()
    a, b, x = module.state_dict(), state(type(module), 1), inputs("perceptron")
    curve = barrier(module, a, b, loss, lambda: iter([x[:8], x[8:]]), points=3)
    assert curve.alphas == (0.0, 0.5, 1.0)
    other = type(module)().double()
    for alpha, value in zip(curve.alphas, curve.losses, strict=True):
        other.load_state_dict({key: (1 - alpha) * a[key] + alpha * b[key] for key in a})
        assert value == pytest.approx(float(loss(other, x).detach()), rel=1e-12)
    assert torch.equal(module.state_dict()["one.weight"], a["one.weight"])


def test_a_barrier_needs_points_and_batches():
    module, _ = SAMPLES["perceptron"]()
    with pytest.raises(MatchError, match="a curve needs at least 2 points"):
        barrier(module, module.state_dict(), module.state_dict(), loss, [], points=1)
    with pytest.raises(MatchError, match="there are no batches to judge on"):
        barrier(module, module.state_dict(), module.state_dict(), loss, [])


def test_interpolate_keeps_ties_and_integers():
    x, y = torch.zeros(2), torch.ones(2)
    merged = interpolate({"u": x, "v": x, "n": torch.tensor(3)}, {"u": y, "v": y, "n": torch.tensor(9)}, 0.25)
    assert merged["u"] is merged["v"]
    assert torch.equal(merged["u"], torch.full((2,), 0.25))
    assert int(merged["n"]) == 3
    with pytest.raises(CheckpointError, match="tensor 'u' has shape"):
        interpolate({"u": x}, {"u": torch.ones(3)}, 0.5)
    with pytest.raises(CheckpointError, match="tensor 'u' is missing from the second checkpoint"):
        interpolate({"u": x}, {}, 0.5)


def test_buffers_take_part():
    module = nn.BatchNorm1d(3).eval()
    a = module.state_dict()
    b = {**a, "running_mean": torch.full((3,), 2.0)}
    curve = barrier(module, a, b, lambda model, x: model(x).mean(), [torch.zeros(4, 3)], points=3)
    assert curve.losses[1] == pytest.approx(-1.0, rel=1e-4)


class Normed(nn.Module):
    """5 -> 4, batch norm, ReLU -> 2: a scale of the hidden units is undone by new statistics."""

    def __init__(self):
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(5, 4, bias=False), nn.BatchNorm1d(4), nn.Linear(4, 2, bias=False)

    def forward(self, x):
        return self.down(nn.functional.relu(self.norm(self.up(x))))


def normed(seed):
    torch.manual_seed(seed)
    module = Normed().double()
    with torch.no_grad():
        module(3 * torch.randn(64, 5).double() + 1)
        module.norm.weight.uniform_(0.5, 2)
    return module.eval()


def test_statistics_are_taken_anew_at_every_point():
    module, other = normed(0), normed(1)
    a, b = module.state_dict(), other.state_dict()
    x = 3 * torch.randn(200, 5, generator=torch.Generator().manual_seed(0)).double() + 1
    kept = {key: value.clone() for key, value in a.items()}
    curve = barrier(module, a, b, loss, [x], points=3, statistics=lambda: iter([x]))
    for alpha, value in zip(curve.alphas, curve.losses, strict=True):
        point = normed(2)
        point.load_state_dict(interpolate(a, b, alpha))
        with torch.no_grad():
            expected = point.train()(x).square().mean()
        assert value == pytest.approx(float(expected), rel=0.02)  # the running variance is the unbiased one
    assert curve.losses != barrier(module, a, b, loss, [x], points=3).losses
    assert all(torch.equal(value, kept[key]) for key, value in module.state_dict().items())
    assert all(torch.equal(value, kept[key]) for key, value in a.items())
    assert not module.norm.training


def test_new_statistics_leave_a_match_with_batch_statistics_alone():
    """The ends keep their losses; with the scales of buffers they would not."""
    module, other = normed(0), normed(1)
    x = 3 * torch.randn(200, 5, generator=torch.Generator().manual_seed(0)).double() + 1
    spec = sg.discover(sg.trace(module, kwargs={"x": x[:4]}))
    a, b = module.state_dict(), other.state_dict()
    expected = barrier(module, a, b, loss, [x], points=2, statistics=[x]).losses
    data = {"module": module, "loss": loss, "batches": [x], "steps": 5}
    for method, options in (("weights", {}), ("dual", data)):
        result = match(spec, a, b, method, batch_statistics=True, **options)
        found = barrier(module, result.a, result.b, loss, [x], points=2, statistics=[x]).losses
        assert found == pytest.approx(expected, rel=1e-3)
    scaled = match(spec, a, b, "weights")
    assert barrier(module, scaled.a, scaled.b, loss, [x], points=2, statistics=[x]).losses[0] != pytest.approx(
        expected[0], rel=1e-2
    )
    assert (module.norm.training, module.norm.track_running_stats) == (False, True)


def test_wrong_checkpoints_are_named():
    module, spec = SAMPLES["perceptron"]()
    a = module.state_dict()
    for change, message in [
        (
            {"two.bias": torch.full((9,), float("nan"), dtype=torch.float64)},
            "tensor 'two.bias' of the second checkpoint holds NaN",
        ),
        ({"two.bias": torch.zeros(8, dtype=torch.float64)}, r"tensor 'two.bias' has shape \(8,\)"),
    ]:
        with pytest.raises(CheckpointError, match=message):
            match(spec, a, {**a, **change}, "weights")
    with pytest.raises(CheckpointError, match=r"tensor 'two\.bias' of the spec is missing"):
        match(spec, a, {key: value for key, value in a.items() if key != "two.bias"}, "weights")


def test_a_fine_tune_is_near_the_identity():
    module, spec = SAMPLES["transformer"]()
    a = module.state_dict()
    generator = torch.Generator().manual_seed(0)
    b = {key: value + 1e-3 * torch.randn(value.shape, generator=generator, dtype=torch.float64) for key, value in a.items()}
    result = match(spec, a, b, "weights")
    moved = result.relative.apply(b)
    assert max(float((moved[key] - b[key]).abs().max()) for key in b) < 0.02
    assert result.distance_after < 0.01
    assert not result.equivalent
    assert match(spec, a, a, "weights").summary.startswith("equivalent: relative distance")


def test_naive_moves_nothing():
    module, spec = SAMPLES["transformer"]()
    a, b = module.state_dict(), state(type(module), 1)
    result = match(spec, a, b, "naive")
    assert all(torch.equal(result.b[key], b[key]) for key in b)
    assert result.distance_before == result.distance_after
