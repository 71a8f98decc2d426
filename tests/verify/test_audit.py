"""The count of directions: known totals, complete families, and what happens when a spec loses something."""

from __future__ import annotations

import re
from functools import cache, partial

import pytest
import torch
from torch import nn

import symgraph as sg
from symgraph.algebra import lie
from symgraph.algebra.groups import Group
from symgraph.errors import SymgraphError
from symgraph.spec.transform import words_of
from symgraph.verify.audit import cut
from tests.infer.samples import graph_of, spec_of

audit = partial(sg.audit, seconds=0)  # permutations and signs have tests of their own


@pytest.mark.parametrize(
    ("name", "changes", "total"),
    [("gpt_neox", {}, 219), ("llama", {"vocab_size": 11}, 79), ("qwen3", {"vocab_size": 11}, 80), ("llama_tied", {}, 43)],
)
def test_known_totals(name, changes, total):
    report = audit(graph_of(name, **changes), spec_of(name, **changes))
    assert report.complete, report.summary
    assert report.dimension == report.rank == report.nullity == total


@pytest.mark.parametrize("name", ["mistral", "olmo", "olmo2", "mixtral", "t5", "gptj"])
def test_families_are_complete(name):
    spec = spec_of(name)
    report = audit(graph_of(name), spec)
    assert report.complete, report.summary
    # epsilons are zero in an audit, and `dimension` counts what holds with them
    assert report.dimension + len(spec.approximate) == report.rank == report.nullity
    assert report.gap > 3
    assert report.residual < 1e-6


class Small(nn.Module):
    """Attention with biases and a gated layer behind a norm: spaces, scales, shifts and an absorption at once."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.out = nn.Linear(5, 6), nn.Linear(5, 6), nn.Linear(5, 8), nn.Linear(8, 5)
        self.norm = nn.RMSNorm(5, eps=0.0)
        self.gate, self.up, self.down = nn.Linear(5, 7, False), nn.Linear(5, 7, False), nn.Linear(7, 5, False)

    def forward(self, x):
        def heads(z):
            return z.unflatten(-1, (2, -1)).transpose(1, 2)

        mixed = nn.functional.scaled_dot_product_attention(*(heads(f(x)) for f in (self.query, self.key, self.value)))
        z = self.norm(self.out(mixed.transpose(1, 2).flatten(2)))
        return self.down(nn.functional.silu(self.gate(z)) * self.up(z))


@cache
def small():
    torch.manual_seed(0)
    graph = sg.trace(Small().eval(), kwargs={"x": torch.randn(2, 4, 5)})
    return graph, sg.discover(graph)


def carriers(spec, name):
    return {tensor.name for tensor in spec.tensors if name in {f.space for word in words_of(tensor) for f in word.factors()}}


def without_space(spec, name):
    """The same spec with nothing but the identity on one space, which is what a discovery that misses it would say."""
    still = {"group": Group.TRIVIAL, "scales": (), "blocks": (), "partition": ()}
    spaces = tuple(each.model_copy(update=still) if each.name == name else each for each in spec.spaces)
    return spec.model_copy(update={"spaces": spaces, "tensors": tuple(plain(each, name) for each in spec.tensors)})


def plain(tensor, name):
    """A tensor whose words put no weights on a space."""
    weights = re.compile(re.escape(name) + r"\[[^]]*\]")
    axes = tuple(weights.sub(name, axis) for axis in tensor.axes)
    return tensor.model_copy(update={"axes": axes, "scale": weights.sub(name, tensor.scale)})


def continuous(spec):
    return [space.name for space in spec.spaces if lie.dimension(space, spec.space_map)]


def lost(changed):
    graph, _ = small()
    report = audit(graph, changed)
    assert not report.complete
    assert report.rank < report.nullity
    assert report.missing
    return set(report.missing)


def test_the_whole_is_complete():
    graph, spec = small()
    report = audit(graph, spec)
    assert report.complete, report.summary
    assert len(continuous(spec)) >= 4
    assert spec.shifts
    assert spec.absorptions


def test_every_lost_space_is_noticed():
    _, spec = small()
    for name in continuous(spec):
        assert lost(without_space(spec, name)) & carriers(spec, name), name


def test_every_lost_shift_is_noticed():
    _, spec = small()
    for shift in spec.shifts:
        changed = spec.model_copy(update={"shifts": tuple(each for each in spec.shifts if each is not shift)})
        assert lost(changed) & {term.target.tensor for term in shift.terms}, shift.name


def test_every_lost_absorption_is_noticed():
    _, spec = small()
    for absorption in spec.absorptions:
        changed = spec.model_copy(update={"absorptions": tuple(each for each in spec.absorptions if each is not absorption)})
        concerned = {absorption.source, *(target.tensor for target in absorption.targets)}
        assert lost(changed) & concerned, absorption.source


def test_a_claim_that_is_wrong_is_called_unsound():
    graph, spec = small()
    name = next(space.name for space in spec.spaces if space.group.value == "orthogonal")
    larger = tuple(each.model_copy(update={"group": Group.GENERAL_LINEAR}) if each.name == name else each
                   for each in spec.spaces)  # fmt: skip
    report = audit(graph, spec.model_copy(update={"spaces": larger}))
    assert not report.complete
    assert "unsound" in report.summary


def test_the_level_of_log_softmax():
    torch.manual_seed(0)
    graph = sg.trace(nn.Linear(4, 3), args=(torch.randn(5, 4),))
    spec = sg.discover(graph)
    assert audit(graph, spec).nullity == 0
    assert audit(graph, spec, level="log_softmax").nullity == 5


def test_too_large_a_model():
    graph = sg.trace(nn.Linear(100, 100), args=(torch.randn(2, 100),))
    with pytest.raises(SymgraphError, match="10100 parameters"):
        audit(graph, sg.discover(graph))


@pytest.mark.parametrize(
    ("values", "rank"), [((3.0, 1.0, 1e-3, 1e-14, 1e-15), 3), ((1.0, 0.5), 2), ((0.0, 0.0), 0), ((5.0, 1e-9, 1e-10, 1e-16), 1)]
)
def test_the_cut_is_at_the_largest_gap(values, rank):
    assert cut(torch.tensor(values, dtype=torch.float64))[0] == rank
