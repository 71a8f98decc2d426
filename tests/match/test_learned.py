"""Learning: it helps, dual is single, the start is the weight match, resume equals an uninterrupted run."""

from __future__ import annotations

import pytest
import torch

from symgraph.errors import MatchError
from symgraph.match import barrier, match
from symgraph.match.resume import chained

from .samples import SAMPLES, inputs, state


def pair(name):
    """Two models of one kind, and a loss that each is perfect at: distance to the mean of their outputs."""
    module, spec = SAMPLES[name]()
    a, b = module.state_dict(), state(type(module), 1)
    x = inputs(name)
    target = sum(torch.func.functional_call(module, one, (x,)) for one in (a, b)) / 2
    batches = [(x[k : k + 2], target[k : k + 2]) for k in range(0, len(x) - 1, 2)]
    return module, spec, a, b, batches


def loss(model, batch):
    x, y = batch
    return (model(x) - y).square().mean()


def learn(name, method="dual", **options):
    module, spec, a, b, batches = pair(name)
    return match(spec, a, b, method, module=module, loss=loss, batches=batches, **{"steps": 12, **options})


@pytest.mark.parametrize("method", ["dual", "learned"])
@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_learning_lowers_the_loss_of_the_middle(name, method):
    module, spec, a, b, batches = pair(name)
    start = match(spec, a, b, "weights")
    end = match(spec, a, b, method, module=module, loss=loss, batches=batches, steps=60, line=(0.5, 0.5))
    middle = [barrier(module, one.a, one.b, loss, batches, points=3).losses[1] for one in (start, end)]
    assert middle[1] < middle[0]
    for key in a:
        assert torch.equal(end.a[key], end.transform_a.apply(a)[key])
        if method == "learned":
            assert torch.allclose(end.a[key], start.a[key], atol=1e-12)


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_dual_is_single(name):
    """The line from gA A to gB B has the losses of the line from A to gA^-1 gB B."""
    module, _, a, b, batches = pair(name)
    result = learn(name)
    dual = barrier(module, result.a, result.b, loss, batches, points=5).losses
    single = barrier(module, a, result.relative.apply(b), loss, batches, points=5).losses
    assert dual == pytest.approx(single, rel=1e-9)


def test_deterministic():
    once, again = (learn("transformer", seed=4) for _ in range(2))
    assert once.history == again.history
    assert all(torch.equal(once.b[key], again.b[key]) for key in once.b)
    assert learn("transformer", seed=5).history != once.history


class KilledError(Exception):
    pass


def killed(path, stop, **options):
    def callback(step, steps, value):
        if step == stop:
            raise KilledError

    with pytest.raises(KilledError):
        learn("transformer", callback=callback, checkpoint=path, **options)


@pytest.mark.parametrize("seed", range(3))
def test_resume_equals_uninterrupted(tmp_path, seed):
    """Killed at a random step, in the middle of what is not saved yet."""
    held_out = pair("transformer")[4]
    options = {
        "checkpoint_every": 2,
        "held_out": held_out,
        "judge_every": 3,
        "accumulate": 2,
        "start": ["naive", "weights"][seed % 2],
    }
    whole = learn("transformer", **options)
    path = tmp_path / "run.safetensors"
    killed(path, int(torch.randint(3, 12, (), generator=torch.Generator().manual_seed(seed))), **options)
    resumed = learn("transformer", checkpoint=path, **options)
    assert resumed.history == whole.history
    assert resumed.judged == whole.judged
    assert all(torch.equal(resumed.b[key], whole.b[key]) for key in whole.b)
    again = learn("transformer", checkpoint=path, **options)
    assert all(torch.equal(again.b[key], whole.b[key]) for key in whole.b)


def test_a_run_is_resumed_only_as_it_was(tmp_path):
    path = tmp_path / "run.safetensors"
    killed(path, 7, checkpoint_every=2)
    module, spec, a, b, batches = pair("transformer")
    data = {"module": module, "loss": loss, "checkpoint": path, "steps": 12}
    with pytest.raises(MatchError, match="belongs to a run with other options or ends"):
        match(spec, a, b, batches=batches, **data, lr=1e-2)
    with pytest.raises(MatchError, match="belongs to a run with other options or ends"):
        match(spec, a, state(type(module), 2), batches=batches, **data)
    for others in (batches[::-1], [(x, y + 1e-9) for x, y in batches], batches[:1]):
        with pytest.raises(MatchError, match="was learned on other batches: give the same ones in the same order"):
            match(spec, a, b, batches=others, **data)
    assert len(match(spec, a, b, batches=batches, **data).history) == 12
    path.write_bytes(b"no")
    with pytest.raises(MatchError, match="is no checkpoint of a learning run"):
        match(spec, a, b, batches=batches, **data)


def test_digests_see_what_is_in_a_batch():
    x = torch.arange(6.0)
    batches = [
        x,
        x.reshape(2, 3),
        x.double(),
        {"a": x, "n": 3},
        {"a": x, "n": 4},
        [x.numpy(), "s"],
        x.bfloat16(),
        [None, object()],
    ]
    assert len({chained("", batch) for batch in batches}) == len(batches)
    assert chained("", (x, 1)) == chained("", (x.clone(), 1))
    assert chained(chained("", x), x) != chained("", x)


def test_early_stopping_returns_the_best():
    module, _, _, _, batches = pair("transformer")
    result = learn("transformer", steps=40, lr=0.5, held_out=batches, judge_every=2, patience=2)
    assert len(result.history) < 40
    middle = barrier(module, result.a, result.b, loss, batches, points=3).losses[1]
    assert middle == pytest.approx(min(value for _, value in result.judged), rel=1e-6)


def test_parametrizations_and_rates_are_used():
    base = learn("transformer").history
    assert learn("transformer", parametrizations={"orthogonal": "exp"}).history != base
    assert learn("transformer", parametrizations={"general_linear": "cayley"}).history != base
    assert learn("transformer", rates={"commutant": 0.1}).history != base


def test_autocast_runs_the_model_in_bfloat16():
    _, spec, a, b, batches = pair("perceptron")
    module = SAMPLES["perceptron"]()[0].float()
    a, b = ({key: value.float() for key, value in one.items()} for one in (a, b))
    batches = [(x.float(), y.float()) for x, y in batches]
    seen = set()

    def judged(model, batch):
        out = model(batch[0])
        seen.add(out.dtype)
        return (out.float() - batch[1]).square().mean()

    given = {"module": module, "loss": judged, "batches": batches, "steps": 30}
    plain = match(spec, a, b, **given)
    assert seen == {torch.float32}
    cast = match(spec, a, b, autocast=True, **given)
    assert seen == {torch.float32, torch.bfloat16}
    assert cast.history != plain.history
    assert cast.history == pytest.approx(plain.history, rel=0.1)
    assert {value.dtype for value in cast.b.values()} == {torch.float32}


def test_options_are_checked():
    module, spec, a, b, _ = pair("transformer")
    with pytest.raises(MatchError, match="method 'dual' learns on data: give module, loss and batches"):
        match(spec, a, b)
    with pytest.raises(MatchError, match="no option 'stepz'"):
        learn("transformer", stepz=3)
    with pytest.raises(MatchError, match="no method 'best': choose naive"):
        match(spec, a, b, "best")
    with pytest.raises(MatchError, match="there is nothing to learn"):
        learn("transformer", only=["permutation"])
    with pytest.raises(MatchError, match="there are no batches to learn on"):
        match(spec, a, b, module=module, loss=loss, batches=[])
