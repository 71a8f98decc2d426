"""What a report of verify says."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import symgraph as sg
from symgraph.errors import CheckpointError, SpecError
from symgraph.verify.preservation import TOLERANCE, difference, random_state
from tests.verify.mutations import MUTATIONS
from tests.verify.samples import model


def test_given_and_random_weights_are_both_tried():
    graph, spec = model("centred")
    report = sg.verify(graph, spec)
    assert report.weights == ("given", "random")
    assert report.summary.startswith("preserved")
    assert set(report.spaces) == {space.name for space in spec.spaces} | {shift.name for shift in spec.shifts}
    assert not report.failures


def test_the_guilty_tensor_is_named():
    graph, spec = model("attention")
    report = sg.verify(graph, MUTATIONS["attention", "the embedding stays"](spec))
    assert [failure.name for failure in report.failures] == ["inner"]
    wrong = MUTATIONS["attention", "the vocabulary moves"](spec)
    (failure,) = sg.verify(graph, wrong).failures
    assert (failure.name, failure.tensors) == ("word", ("head.weight",))


def test_a_wrong_normal_form_is_told_apart():
    graph, spec = model("attention")
    report = sg.verify(graph, MUTATIONS["attention", "a reader of the norm is forgotten"](spec))
    assert report.normal_form > 1e-3
    assert "normal form" in report.summary


@pytest.mark.parametrize("seed", range(3))
def test_it_is_deterministic(seed):
    graph, spec = model("rectified")
    assert sg.verify(graph, spec, seed=seed) == sg.verify(graph, spec, seed=seed)


def test_weights_of_ones_own():
    graph, spec = model("rectified")
    state = {name: torch.randn(value.shape) for name, value in graph.state.items()}
    assert sg.verify(graph, spec, state).passed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.pop("c.bias"), "'c.bias' is missing"),
        (lambda state: state.update({"c.bias": torch.zeros(4)}), r"'c.bias' has shape \[4\]"),
        (lambda state: state.update({"c.bias": torch.full((3,), torch.nan)}), "'c.bias' has entries that are not finite"),
    ],
)
def test_weights_that_do_not_fit(change, message):
    graph, spec = model("rectified")
    state = dict(graph.state)
    change(state)
    with pytest.raises(CheckpointError, match=message):
        sg.verify(graph, spec, state)


def test_the_spec_of_another_model():
    graph, _ = model("rectified")
    with pytest.raises(SpecError, match="another model"):
        sg.verify(graph, model("experts")[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_rounding_budget_of_a_dtype(dtype):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(5, 7), nn.RMSNorm(7), nn.Linear(7, 3)).to(dtype)
    nn.init.uniform_(module[1].weight, 0.5, 1.5)
    graph = sg.trace(module, args=(torch.randn(4, 5, dtype=dtype),))
    report = sg.verify(graph, sg.discover(graph))
    assert report.passed, report.summary
    assert report.rounding is not None
    assert 0.1 < report.rounding < 10


def test_infinite_outputs_have_to_stay_where_they_are():
    a, b = torch.tensor([1.0, torch.inf]), torch.tensor([torch.inf, 1.0])
    assert difference([a], [a]) == 0.0
    assert difference([a], [b]) == float("inf")


def test_random_weights_are_generic():
    graph, spec = model("images")
    state = random_state(graph, spec)
    assert (state["norm.running_var"] > 0.4).all()
    assert {name: value.shape for name, value in state.items()} == {t.name: t.shape for t in spec.tensors}
    assert all(torch.equal(value, random_state(graph, spec)[name]) for name, value in state.items())
    assert TOLERANCE == 1e-9


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_a_weight_without_entries():
    class Empty(nn.Module):
        def __init__(self):
            super().__init__()
            self.some, self.none, self.head = nn.Linear(3, 4), nn.Linear(3, 0, bias=False), nn.Linear(4, 2)

        def forward(self, x):
            return self.head(self.some(x).relu()) + self.none(x).sum(-1, keepdim=True)

    torch.manual_seed(0)
    graph = sg.trace(Empty(), [torch.randn(5, 3)])
    report = sg.verify(graph, sg.discover(graph))
    assert report.passed
    assert report.spaces
