"""Weight matching: planted solutions, monotone, deterministic, restarts; and the hand-written specs themselves."""

from __future__ import annotations

from itertools import pairwise, permutations

import pytest
import torch

from symgraph.algebra.elements import Monomial
from symgraph.errors import MatchError
from symgraph.match import match
from symgraph.match.selection import select
from symgraph.match.weights import match_weights
from symgraph.spec.operations import sample

from .samples import SAMPLES, inputs, state

NAMES = sorted(SAMPLES)


def output(module, weights, name):
    return torch.func.functional_call(module, weights, (inputs(name),))


@pytest.mark.parametrize("name", NAMES)
def test_the_specs_hold(name):
    module, spec = SAMPLES[name]()
    canon = module.state_dict()
    moved = sample(spec, seed=1, scale=0.7).apply(canon)
    expected = output(module, canon, name)
    assert max((moved[key] - canon[key]).abs().max() for key in canon) > 0.1
    assert (output(module, moved, name) - expected).abs().max() < 1e-10 * expected.abs().max()


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_planted_elements_are_found(name, seed):
    module, spec = SAMPLES[name]()
    canon = module.state_dict()
    result = match(spec, canon, sample(spec, seed=seed, scale=0.7).apply(canon), method="weights")
    assert result.distance_after < 1e-9
    assert result.equivalent
    assert result.summary.startswith("equivalent: relative distance")
    assert result.distance_before > 0.3


@pytest.mark.parametrize("name", NAMES)
def test_results_are_what_the_transforms_say_and_the_functions_stay(name):
    module, spec = SAMPLES[name]()
    a, b = module.state_dict(), state(type(module), 1)
    result = match(spec, a, b, method="weights")
    for key in a:
        assert torch.equal(result.a[key], result.transform_a.apply(a)[key])
        assert torch.equal(result.b[key], result.transform_b.apply(b)[key])
    for ends in ((a, result.a), (b, result.b)):
        expected = output(module, ends[0], name)
        assert (output(module, ends[1], name) - expected).abs().max() < 1e-9 * expected.abs().max()
    assert result.distance_after < result.distance_before


@pytest.mark.parametrize("name", NAMES)
def test_every_block_gains(name):
    module, spec = SAMPLES[name]()
    result = match(spec, module.state_dict(), state(type(module), 1), method="weights")
    history = result.history
    assert len(history) > 2
    assert all(later <= earlier + 1e-9 * history[0] for earlier, later in pairwise(history))


@pytest.mark.parametrize("name", NAMES)
def test_a_fine_tune_is_matched_by_the_identity(name):
    """Beside its own fine-tune nothing is exchanged and no sign turns; what is continuous stays near the identity."""
    module, spec = SAMPLES[name]()
    a = module.state_dict()
    generator = torch.Generator().manual_seed(0)
    b = {key: value + 1e-4 * torch.randn(value.shape, generator=generator, dtype=torch.float64) for key, value in a.items()}
    result = match(spec, a, b, method="weights")
    assert not result.equivalent
    assert result.summary.startswith("weights: relative distance")
    for stage in result.relative.stages:
        for element in stage.elements.values():
            if isinstance(element, Monomial):
                assert bool((element.permutation == torch.arange(element.permutation.shape[-1])).all())
                assert all(bool((sign > 0).all()) for sign in element.sign.values())
    moved = result.relative.apply(b)
    assert max(float((moved[key] - b[key]).abs().max()) for key in b) < 0.01


@pytest.mark.parametrize("name", NAMES)
def test_a_copy_is_reported_as_equivalent(name):
    module, spec = SAMPLES[name]()
    a = module.state_dict()
    b = {key: value.clone() for key, value in a.items()}
    result = match(spec, a, b, method="weights")
    assert result.equivalent
    assert result.summary.startswith("equivalent: relative distance")
    moved = result.relative.apply(b)
    assert max(float((moved[key] - b[key]).abs().max()) for key in b) < 1e-9


def test_the_history_ends_at_the_distance():
    module, spec = SAMPLES["transformer"]()
    result = match(spec, module.state_dict(), state(type(module), 1), method="weights")
    total = sum(float((result.a[key] - result.b[key]).square().sum()) for key in result.a)
    assert result.history[-1] == pytest.approx(total, rel=1e-9)


def test_deterministic_and_restarts_never_lose():
    module, spec = SAMPLES["transformer"]()
    a, b = module.state_dict(), state(type(module), 1)
    once, again = (match(spec, a, b, method="weights", restarts=2, seed=3) for _ in range(2))
    assert all(torch.equal(once.b[key], again.b[key]) for key in once.b)
    assert once.distance_after <= match(spec, a, b, method="weights").distance_after + 1e-12


def test_more_symmetry_is_closer():
    module, spec = SAMPLES["transformer"]()
    a, b = module.state_dict(), state(type(module), 1)
    distances = [
        match(spec, a, b, method="weights", only=only).distance_after
        for only in (["permutation"], ["permutation", "orthogonal"], None)
    ]
    assert distances[0] > distances[1] > distances[2]


def test_selection():
    module, spec = SAMPLES["transformer"]()
    a, b = module.state_dict(), state(type(module), 1)
    moved = match(spec, a, b, method="weights", only=["hidden"])
    assert torch.equal(moved.b["layers.0.q.weight"], b["layers.0.q.weight"])
    assert not torch.equal(moved.b["layers.0.up.weight"], b["layers.0.up.weight"])
    assert set(select(spec, without=["qk", "permutation"]).spaces) == {"residual", "ov0", "ov1", "hidden0", "hidden1"}
    assert not select(spec, without=["permutation"]).spaces["hidden0"].permutes
    with pytest.raises(MatchError, match="'heads' is no kind, role or name of a space"):
        select(spec, without=["heads"])


def test_only_permutations_is_git_rebasin():
    """With permutations alone the elements are permutations: every weight of the result is one of the given."""
    module, spec = SAMPLES["perceptron"]()
    a, b = module.state_dict(), state(type(module), 1)
    result = match(spec, a, b, method="weights", only=["permutation"])
    for key in b:
        assert torch.equal(result.a[key], a[key])
        assert torch.equal(result.b[key].flatten().sort().values, b[key].flatten().sort().values)


def test_the_best_permutation_by_brute_force():
    """One hidden layer of a matched problem is a linear assignment: no permutation does better."""
    module, spec = SAMPLES["attention"]()
    a, b = module.state_dict(), state(type(module), 1)
    selection = select(spec, only=["head", "permutation"])
    found = match_weights(spec, a, b, selection)
    values = {key: (a[key], b[key]) for key in a if key != "o.bias"}

    def objective(order):
        total = float((a["o.bias"] * b["o.bias"]).sum())
        for key, (x, y) in values.items():
            axis = 1 if key == "o.weight" else 0
            total += float(
                (x * y.unflatten(axis, (3, -1)).index_select(axis, torch.tensor(order)).flatten(axis, axis + 1)).sum()
            )
        return total

    if not any(one.matrix for one in selection.spaces.values()):
        assert found.objective == pytest.approx(max(objective(order) for order in permutations(range(3))))
