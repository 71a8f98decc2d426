"""What is taken out of a graph before its Jacobian is counted, and which entries an example can read."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import symgraph as sg
from symgraph.errors import SymgraphError
from symgraph.verify.jacobian import idealized, read_entries
from symgraph.verify.preservation import random_state


class Divided(nn.Module):
    """Vectors over their length; the epsilon stands before the division, not under the root."""

    def __init__(self, eps=1e-6, clamp=False):
        super().__init__()
        self.a, self.b, self.eps, self.clamp = nn.Linear(5, 4, False), nn.Linear(4, 3, False), eps, clamp

    def forward(self, x):
        z = self.a(x)
        length = z.norm(dim=-1, keepdim=True)
        return self.b(z / (length.clamp_min(self.eps) if self.clamp else length + self.eps))


def audited(module, **kwargs):
    torch.manual_seed(0)
    graph = sg.trace(module.eval(), kwargs=kwargs)
    spec = sg.discover(graph)
    return sg.audit(graph, spec, seconds=0), spec


@pytest.mark.parametrize("clamp", [False, True])
def test_an_epsilon_before_a_division_is_none(clamp):
    report, spec = audited(Divided(clamp=clamp), x=torch.randn(6, 5))
    # O(4), and the length of a's output, which the epsilon alone breaks
    assert report.nullity == 6 + 1
    assert report.dimension + len(spec.approximate) >= 6


def test_a_summand_that_is_no_epsilon_stays():
    report, _ = audited(Divided(eps=0.5), x=torch.randn(6, 5))
    assert report.nullity == 6
    assert report.complete, report.summary


class Padded(nn.Module):
    def __init__(self, padding):
        super().__init__()
        self.embed, self.out = nn.Embedding(9, 3, padding_idx=padding), nn.Linear(3, 11, False)

    def forward(self, ids):
        return self.out(self.embed(ids))


@pytest.mark.parametrize("padding", [None, 0])
def test_the_padding_row_moves_like_all_others(padding):
    report, _ = audited(Padded(padding), ids=torch.randint(0, 9, (4, 6)))
    assert report.complete, report.summary
    assert report.nullity == 9


def test_the_graph_itself_keeps_what_is_taken_out():
    graph = sg.trace(Divided(eps=1e-4).eval(), kwargs={"x": torch.randn(6, 5)})
    before = graph.run()
    ideal = idealized(graph)
    assert torch.equal(graph.run()[0], before[0])
    assert not torch.allclose(ideal.run()[0], before[0], rtol=1e-6, atol=0.0)


class Positions(nn.Module):
    """A table of ten positions, of which the example reads the first six."""

    def __init__(self):
        super().__init__()
        self.token, self.place, self.out = nn.Embedding(7, 3), nn.Embedding(10, 3), nn.Linear(3, 13, False)

    def forward(self, ids):
        return self.out(torch.tanh(self.token(ids) + self.place(torch.arange(ids.shape[1]))))


def test_positions_beyond_the_example_are_not_read():
    torch.manual_seed(0)
    graph = sg.trace(Positions().eval(), kwargs={"ids": torch.randint(0, 7, (8, 6))})
    spec = sg.discover(graph)
    names = [tensor.name for tensor in spec.tensors]
    read = read_entries(graph, names, {tensor.name: torch.Size(tensor.shape) for tensor in spec.tensors}, False)
    state = random_state(graph, spec)
    marks = dict(zip(names, torch.split(read, [state[name].numel() for name in names]), strict=True))
    assert marks["place.weight"].reshape(10, 3).all(1).tolist() == [True] * 6 + [False] * 4
    assert marks["token.weight"].all()
    report = sg.audit(graph, spec, seconds=0)
    assert report.complete, report.summary
    assert report.dimension + report.approximate - report.surplus - report.unread == report.rank


class Silent(nn.Module):
    """Parameters that the outputs never see."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 3)

    def forward(self, x):
        return torch.zeros(2) + 0 * self.a(x).sum()


def test_outputs_that_are_zero():
    report, _ = audited(Silent(), x=torch.randn(5, 4))
    assert report.nullity == 15
    assert not report.complete


class Nowhere(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 3)

    def forward(self, x):
        return self.a(x) / (x - x).sum()


def test_outputs_that_are_nowhere_finite():
    with pytest.raises(SymgraphError, match="nowhere finite"):
        audited(Nowhere(), x=torch.randn(5, 4))
