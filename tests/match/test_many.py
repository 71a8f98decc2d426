"""Several checkpoints in one frame: planted copies meet, the spread never grows, the mean gets better."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from symgraph.errors import CheckpointError, MatchError
from symgraph.match import combine, interpolate, match, match_many, simplex
from symgraph.spec.operations import sample

from .samples import SAMPLES, inputs, state


@pytest.mark.parametrize("name", ["attention", "gates", "transformer"])
def test_moved_copies_meet(name):
    module, spec = SAMPLES[name]()
    canon = module.state_dict()
    copies = [canon, *(sample(spec, seed=seed, scale=0.7).apply(canon) for seed in range(3))]
    result = match_many(spec, copies)
    for one in result.states:
        assert all(torch.allclose(one[key], result.states[0][key], atol=1e-8) for key in canon)
    assert result.history[-1] < 1e-8 < 0.1 < result.history[0]


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_the_spread_falls_and_the_functions_stay(name):
    module, spec = SAMPLES[name]()
    states = [module.state_dict(), *(state(type(module), seed) for seed in (1, 2))]
    told = []
    result = match_many(spec, states, progress=lambda number, spread: told.append((number, spread)))
    assert all(later <= earlier * (1 + 1e-9) for earlier, later in pairwise(result.history[1:]))
    assert result.history[-1] < result.history[0]
    assert [spread for _, spread in told] == list(result.history[1:])
    for before, after, move in zip(states, result.states, result.transforms, strict=True):
        assert all(torch.equal(after[key], move.apply(before)[key]) for key in after)
        out = [torch.func.functional_call(module, weights, (inputs(name),)) for weights in (before, after)]
        assert (out[0] - out[1]).abs().max() < 1e-9 * out[0].abs().max()


def test_two_are_a_pair():
    module, spec = SAMPLES["transformer"]()
    a, b = module.state_dict(), state(type(module), 1)
    many, pair = match_many(spec, [a, b]), match(spec, a, b, "weights")
    mean = interpolate(pair.a, pair.b, 0.5)
    spread = sum(float((mean[key] - one[key]).square().sum()) for key in mean for one in (pair.a, pair.b)) / 2
    size = sum(float(value.square().sum()) for value in pair.a.values())
    assert many.history[1] == pytest.approx((spread / size) ** 0.5, rel=1e-3)


def test_the_simplex():
    module, _ = SAMPLES["perceptron"]()
    states = [module.state_dict(), *(state(type(module), seed) for seed in (1, 2))]
    x = inputs("perceptron")
    found = simplex(module, states, lambda model, batch: model(batch).square().mean(), [x], parts=2)
    assert set(found) == {(1, 0, 0), (0, 1, 0), (0, 0, 1), (0.5, 0.5, 0), (0.5, 0, 0.5), (0, 0.5, 0.5)}
    for weights, value in found.items():
        mixed = {key: sum(w * one[key] for w, one in zip(weights, states, strict=True)) for key in states[0]}
        assert value == pytest.approx(float(torch.func.functional_call(module, mixed, (x,)).square().mean()), rel=1e-9)


def test_messages():
    module, spec = SAMPLES["perceptron"]()
    a = module.state_dict()
    with pytest.raises(MatchError, match="there is nothing to align 1 checkpoint to: give two or more"):
        match_many(spec, [a])
    broken = {**a, "two.bias": torch.full((9,), float("nan"), dtype=torch.float64)}
    with pytest.raises(CheckpointError, match=r"tensor 'two.bias' of the 3. checkpoint holds NaN"):
        match_many(spec, [a, a, broken])
    with pytest.raises(MatchError, match="2 checkpoints need as many weights that sum to one"):
        combine([a, a], [0.5, 0.6])
