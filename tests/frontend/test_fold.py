"""Folding, and tracing without weights."""

import resource
import time

import pytest
import torch
import transformers
from torch import nn

from symgraph.frontend import fold
from symgraph.frontend.build import LARGEST_REAL, build_meta
from symgraph.frontend.trace import trace


class Masked(nn.Module):
    """A causal mask, a frequency table, a lifted constant, a persistent and a transient buffer."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(13, 4)
        self.register_buffer("frequencies", 1 / torch.arange(1.0, 3.0), persistent=False)
        self.register_buffer("offset", torch.tensor([1.0, 2.0, 3.0, 4.0]))
        self.plain = torch.tensor([0.5, 1.0, 1.5, 2.0])

    def forward(self, ids):
        position = torch.arange(ids.shape[1], device=ids.device)
        angles = position[:, None] * self.frequencies
        mask = torch.full((ids.shape[1],) * 2, -1e9).triu(1) + (ids == 3)[:, None, :] * -5.0
        x = self.embed(ids) * torch.cat((angles, angles), -1).cos() + 2 * self.offset + self.plain.exp()
        return (x @ x.mT + mask).softmax(-1) @ x


IDS = torch.tensor([[1, 3, 2], [4, 5, 3]])


@pytest.fixture(params=["cpu", "meta"])
def graph(request):
    if request.param == "cpu":
        return trace(Masked(), (IDS,))
    with build_meta():
        module = Masked()
    return trace(module, (IDS,))


def by_operator(graph, operator):
    return [node for node in graph.nodes if str(node.target) == operator]


def test_constants_have_their_values(graph):
    (cosine,) = by_operator(graph, "aten.cos.default")
    table = torch.arange(3.0)[:, None] / torch.arange(1.0, 3.0)
    assert torch.equal(graph.folded[cosine.name], torch.cat((table, table), -1).cos())
    (exponential,) = by_operator(graph, "aten.exp.default")
    assert torch.equal(graph.folded[exponential.name], torch.tensor([0.5, 1.0, 1.5, 2.0]).exp())
    (equal,) = by_operator(graph, "aten.eq.Scalar")
    assert torch.equal(graph.folded[equal.name], IDS == 3)
    assert all(value.device.type == "cpu" for value in graph.folded.values())


def test_what_depends_on_parameters_is_not_folded(graph):
    for operator in ("aten.embedding.default", "aten.matmul.default", "aten.softmax.int"):
        assert all(node.name not in graph.folded for node in by_operator(graph, operator))
    assert not graph.unfolded


def test_persistent_buffers_are_named(graph):
    assert set(graph.folded_from.values()) == {frozenset({"offset"})}
    assert graph.persistent == {"b_offset"}
    assert graph.constants["b_frequencies"].tolist() == [1.0, 0.5]


def test_float_inputs_are_unknown():
    class Shifted(nn.Module):
        def forward(self, x, n):
            return x.exp() * n

    assert not trace(Shifted(), (torch.randn(3), torch.tensor([1, 2, 3]))).folded


def test_random_numbers_are_unknown_and_repeatable():
    class Noisy(nn.Module):
        def forward(self, x):
            return x + torch.rand(3).exp()

    graph = trace(Noisy(), (torch.randn(3),))
    assert not graph.folded
    assert torch.equal(graph.run()[0], graph.run()[0])


def test_large_constants_are_left_and_said(monkeypatch):
    monkeypatch.setattr(fold, "LARGEST_FOLDED", 8)
    graph = trace(Masked(), (IDS,))
    (equal,) = by_operator(graph, "aten.eq.Scalar")
    assert equal.name in graph.folded
    (triangle,) = by_operator(graph, "aten.triu.default")
    assert triangle.name in graph.unfolded
    assert not set(graph.unfolded) & set(graph.folded)


def test_checks_leave_the_graph(graph):
    assert not [node for node in graph.nodes if "assert" in str(node.target)]


def test_the_structure_alone_gives_the_same_graph():
    config = transformers.LlamaConfig(hidden_size=24, num_hidden_layers=2, num_attention_heads=4,
                                      num_key_value_heads=2, intermediate_size=20, vocab_size=61)  # fmt: skip
    real = transformers.LlamaForCausalLM(config)
    with build_meta():
        meta = transformers.LlamaForCausalLM(config)
    kwargs = {"input_ids": torch.randint(0, 61, (2, 8))}
    graph, other = trace(real, (), kwargs), trace(meta, (), kwargs)
    assert [str(node) for node in graph.nodes] == [str(node) for node in other.nodes]
    assert all(torch.equal(value, other.folded[name]) for name, value in graph.folded.items())
    assert other.state is None
    assert all(value.is_meta for value in meta.parameters())
    assert torch.equal(graph.run()[0], other.run(real.state_dict())[0])


def test_parameters_go_to_meta_and_small_buffers_stay():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))
            self.register_buffer("small", torch.ones(3))
            self.register_buffer("large", torch.zeros(LARGEST_REAL // 2, 3))
            self.same = self.weight

    with build_meta():
        module = Mixed()
        nn.init.normal_(module.weight)
    assert module.weight.is_meta
    assert module.same is module.weight
    assert module.large.is_meta
    assert torch.equal(module.small, torch.ones(3))
    assert not nn.Parameter(torch.ones(2)).is_meta


def test_a_model_of_hundreds_of_billions_of_parameters_needs_no_memory():
    config = transformers.LlamaConfig(hidden_size=16384, num_hidden_layers=4, num_attention_heads=128,
                                      num_key_value_heads=8, intermediate_size=53248, vocab_size=128256)  # fmt: skip
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    with build_meta():
        module = transformers.LlamaForCausalLM(config)
    graph = trace(module, (), {"input_ids": torch.randint(0, 1000, (2, 8))})
    assert sum(value.numel() for value in module.parameters()) > 16e9
    assert len(graph.parameters) == 4 * 9 + 3
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1e6  # kB
    assert time.perf_counter() - start < 60
