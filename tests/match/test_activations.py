"""Activation matching: planted solutions are found, types are put to the test, and weight matching may start from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import symgraph as sg
from symgraph.errors import MatchError
from symgraph.match import activations
from symgraph.match.selection import select
from symgraph.spec.state import State
from symgraph.spec.transform import Transform

from .samples import Centred, Gates, Perceptron, Transformer, made, state

KINDS: dict[str, tuple[type[nn.Module], Callable[[torch.Generator], Tensor]]] = {
    "perceptron": (Perceptron, lambda g: torch.randn(64, 7, generator=g, dtype=torch.float64)),
    "gates": (Gates, lambda g: torch.randn(64, 7, generator=g, dtype=torch.float64)),
    "transformer": (Transformer, lambda g: torch.randint(31, (16, 9), generator=g)),
    "centred": (Centred, lambda g: torch.randn(64, 15, generator=g, dtype=torch.float64)),
}


def pair(name: str) -> tuple[nn.Module, sg.SymmetrySpec, State, list[Tensor]]:
    kind, draw = KINDS[name]
    module, generator = made(kind), torch.Generator().manual_seed(0)
    batches = [draw(generator) for _ in range(3)]
    return module, sg.discover(module, args=(batches[0],)), state(kind, 1), batches


def loss(model: Any, batch: Tensor) -> Tensor:
    value: Tensor = model(batch).square().mean()
    return value


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", KINDS)
def test_planted_elements_are_found(name: str, seed: int) -> None:
    module, spec, _, batches = pair(name)
    canon = sg.canonicalize(spec, module.state_dict())
    moved = sg.sample(spec, seed=seed, scale=0.5).apply(canon)
    result = sg.match(spec, canon, moved, "activations", module=module, loss=loss, batches=batches)
    assert result.distance_before > 0.3
    assert result.distance_after < 1e-6


@pytest.mark.parametrize("name", KINDS)
def test_activations_come_closer_and_the_functions_stay(name: str) -> None:
    module, spec, b, batches = pair(name)
    a = module.state_dict()
    result = sg.match(spec, a, b, "activations", module=module, loss=loss, batches=batches)
    before, after = (apart(spec, module, batches, *ends) for ends in ((a, b), (result.a, result.b)))
    assert after < before
    assert after == pytest.approx(result.history[-1], rel=1e-9)
    for ends in ((a, result.a), (b, result.b)):
        out = [torch.func.functional_call(module, dict(weights), (batches[0],)) for weights in ends]
        assert (out[0] - out[1]).abs().max() < 1e-9 * out[0].abs().max()


def apart(spec: sg.SymmetrySpec, module: nn.Module, batches: list[Tensor], a: State, b: State) -> float:
    """The squared distance of all activations, each with norm one."""
    graph = sg.trace(module, (batches[0],))
    inputs = [dict.fromkeys(graph.inputs, batch) for batch in batches]
    generator = torch.Generator().manual_seed(0)
    watched = activations._tested(spec, graph, sg.canonicalize(spec, a), inputs[0], select(spec), generator)
    return sum(float((x - y).square().sum()) for x, y in activations._gathered(spec, graph, (a, b), inputs, watched))


def test_weight_matching_starts_where_activations_end() -> None:
    module, spec, b, batches = pair("transformer")
    a, data = module.state_dict(), {"module": module, "loss": loss, "batches": batches}
    plain = sg.match(spec, a, b, "weights")
    only = sg.match(spec, a, b, "activations", **data)
    both = sg.match(spec, a, b, "weights", start="activations", **data)
    assert both.distance_after < only.distance_after
    assert any(not torch.equal(both.b[key], plain.b[key]) for key in b)
    again = sg.match(spec, a, b, "weights", start="activations", **data)
    assert all(torch.equal(both.b[key], again.b[key]) for key in b)


def test_learning_starts_from_any_match() -> None:
    module, spec, b, batches = pair("transformer")
    a, data = module.state_dict(), {"module": module, "loss": loss, "batches": batches}
    for start in ("weights", "activations", "naive"):
        learned = sg.match(spec, a, b, "dual", start=start, steps=0, **data)
        expected = {} if start == "weights" else data
        if start == "naive":
            assert learned.distance_after > sg.match(spec, a, b, "weights").distance_after
        else:
            assert learned.distance_after == pytest.approx(sg.match(spec, a, b, start, **expected).distance_after, rel=1e-9)


def test_an_activation_that_moves_otherwise_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the two dimensions of an activation exchanged in its type, the test element finds it out."""
    module, spec, _, _ = pair("perceptron")
    right = activations.activations

    def wrong(graph: sg.Graph, given: sg.SymmetrySpec) -> Any:
        found = right(graph, given)
        return (
            *found[:1],
            *(type(one)(one.node, tuple((name, size) for name, size in reversed(one.dims))) for one in found[1:]),
        )

    graph = sg.trace(module, (torch.randn(11, 7, dtype=torch.float64),))  # as many rows as hidden units
    inputs = dict(graph.inputs)
    canon = sg.canonicalize(spec, module.state_dict())
    arguments = (spec, graph, canon, inputs, select(spec), torch.Generator().manual_seed(0))
    nodes = [one.activation.node for one in activations._tested(*arguments)]
    assert len(nodes) > 2
    monkeypatch.setattr(activations, "activations", wrong)
    assert [one.activation.node for one in activations._tested(*arguments)] == nodes[:1]


def test_signs_are_read_off() -> None:
    """Of a tanh unit both sides turn; of the normalized stream nothing has a sign of its own."""
    module, spec, _, batches = pair("centred")
    graph = sg.trace(module, (batches[0],))
    canon = sg.canonicalize(spec, module.state_dict())
    found = activations._tested(spec, graph, canon, dict(graph.inputs), select(spec), torch.Generator().manual_seed(0))
    signs = {one.activation.node: one.signs for one in found}
    (space,) = [space for space in spec.spaces if space.group.permutes]
    assert signs["tanh"] == ((space.name, space.scales[0].name),)
    assert any(not chosen for chosen in signs.values())


def test_covariances_do_not_depend_on_how_the_batches_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """With many rows the token axis is replaced by an R factor: the result is the same."""
    module, spec, b, _ = pair("perceptron")
    x = torch.randn(300, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = torch.cat([x, -x])
    data = {"module": module, "loss": loss, "batches": [x]}
    compressed = sg.match(spec, module.state_dict(), b, "activations", **data)
    monkeypatch.setattr(torch.linalg, "qr", lambda rows, mode: (None, rows))
    plain = sg.match(spec, module.state_dict(), b, "activations", **data)
    assert all(torch.allclose(compressed.b[key], plain.b[key]) for key in b)


def test_messages() -> None:
    module, spec, b, batches = pair("perceptron")
    a = module.state_dict()
    with pytest.raises(MatchError, match="method 'activations' looks at data: give module, loss and batches, or use 'weights'"):
        sg.match(spec, a, b, "activations")
    with pytest.raises(MatchError, match="method 'weights' does not start from 'naive'"):
        sg.match(spec, a, b, "weights", start="naive")
    data = {"module": module, "loss": loss}
    with pytest.raises(MatchError, match="there are no batches to collect activations on"):
        sg.match(spec, a, b, "activations", batches=[], **data)
    with pytest.raises(MatchError, match="no activation of the model has a space that takes part"):
        sg.match(spec, a, b, "activations", batches=batches, only=["shift"], **data)
    with pytest.raises(MatchError, match=r"loss\(model, batch\) does not call its model"):
        sg.match(spec, a, b, "activations", module=module, loss=lambda model, batch: batch.sum(), batches=batches)
    assert isinstance(sg.match(spec, a, b, "activations", batches=iter(batches), **data).transform_b, Transform)
