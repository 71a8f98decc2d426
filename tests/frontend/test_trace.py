"""Tracing: the graph computes what the module computes, and knows its names, ties, values and outputs."""

import copy
import importlib.util
import json
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
import transformers
from torch import nn

from symgraph.errors import CheckpointError, TraceError
from symgraph.frontend.build import build_meta
from symgraph.frontend.trace import relative_error, trace

SHARED = Path(__file__).parents[3] / "shared"

TEXT = {"vocab_size": 61, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 20}
GROUPED = {**TEXT, "num_key_value_heads": 2, "pad_token_id": None}
IMAGE = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 20,
         "image_size": 12, "patch_size": 4}  # fmt: skip
OLDER = {"vocab_size": 61, "n_embd": 24, "n_layer": 2, "n_head": 4, "n_positions": 16}
TWO_STREAMS = {"vocab_size": 61, "d_model": 24, "d_kv": 6, "d_ff": 20, "num_layers": 2, "num_heads": 4}
CASES = {
    "llama": ("LlamaForCausalLM", GROUPED),
    "mistral": ("MistralForCausalLM", GROUPED),
    "qwen2": ("Qwen2ForCausalLM", GROUPED),
    "qwen3": ("Qwen3ForCausalLM", {**GROUPED, "head_dim": 6}),
    "olmo": ("OlmoForCausalLM", GROUPED),
    "olmo2": ("Olmo2ForCausalLM", GROUPED),
    "gemma2": ("Gemma2ForCausalLM", {**GROUPED, "head_dim": 6}),
    "mixtral": ("MixtralForCausalLM", {**GROUPED, "num_local_experts": 3}),
    "gpt_neox": ("GPTNeoXForCausalLM", TEXT),
    "phi": ("PhiForCausalLM", {**TEXT, "hidden_size": 32, "pad_token_id": None}),
    "gpt2": ("GPT2LMHeadModel", OLDER),
    "gptj": ("GPTJForCausalLM", {**OLDER, "rotary_dim": 4}),
    "bert": ("BertForMaskedLM", TEXT),
    "t5": ("T5ForConditionalGeneration", TWO_STREAMS),
    "vit": ("ViTForImageClassification", IMAGE),
    "deit": ("DeiTForImageClassification", IMAGE),
}


def build(model_type):
    """A tiny model, away from its trivial initialisation, and its example call."""
    name, options = CASES[model_type]
    torch.manual_seed(0)
    module = getattr(transformers, name)(transformers.CONFIG_MAPPING[model_type](**options)).eval()
    with torch.no_grad():
        for value in module.parameters():
            value.add_(torch.randn_like(value), alpha=0.1)
    ids = torch.randint(3, 61, (2, 8))
    if "image_size" in options:
        return module, {"pixel_values": torch.randn(2, 3, 12, 12)}
    return module, {"input_ids": ids, **({"decoder_input_ids": ids[:, :6]} if model_type == "t5" else {})}


@pytest.mark.parametrize("model_type", CASES)
def test_the_graph_is_the_model(model_type):
    module, kwargs = build(model_type)
    graph = trace(module, (), kwargs)
    with torch.no_grad():
        expected = module(**kwargs).logits
        doubled = {name: x.double() if x.is_floating_point() else x for name, x in kwargs.items()}
        exact = copy.deepcopy(module).double()
        if model_type == "mixtral":
            exact.set_experts_implementation("eager")  # the other kernels take no float64
        double = exact(**doubled).logits
    (actual,) = graph.run()
    assert actual.dtype == torch.float64
    # the module itself computes rotary tables and some softmaxes in float32
    assert relative_error(actual, double) < 1e-6
    assert relative_error(graph.run(dtype=None)[0], expected) == 0.0
    assert set(graph.parameters.values()) == {name for name, _ in module.named_parameters()}
    assert all(graph.origin(node).source for node in graph.nodes if node.op == "call_function")


@pytest.mark.parametrize("name", ["mlp", "resnet", "llama", "neox", "vit"])
def test_trained_networks(name):
    if not (SHARED / "zoo" / "zoo.py").exists():
        pytest.skip("the trained networks are not here")
    zoo = load_file("zoo", SHARED / "zoo" / "zoo.py")
    module = zoo.load(name)
    kwargs, _ = next(zoo.batches(name, n=4, size=4))
    graph = trace(module, (), kwargs)
    doubled = {key: x.double() if x.is_floating_point() else x for key, x in kwargs.items()}
    with torch.no_grad():
        result = module.double()(**doubled)
    assert relative_error(graph.run()[0], result if isinstance(result, torch.Tensor) else result.logits) < 1e-6


@pytest.mark.parametrize("model_type", ["clip", "mamba", "wav2vec2", "deepseek_v3", "internvl"])
def test_architectures_of_other_kinds(model_type):
    if not (SHARED / "architectures.py").exists():
        pytest.skip("the descriptions of architectures are not here")
    architectures = load_file("architectures", SHARED / "architectures.py")
    entry = next(entry for entry in architectures.load() if entry["model_type"] == model_type)
    module, kwargs = architectures.build(entry)
    expected = architectures.outputs(entry, module(**kwargs))
    assert min(relative_error(value, expected) for value in trace(module, (), kwargs).run()) < 1e-5


def load_file(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


class Tied(nn.Module):
    """One weight under three names; two calls of one layer."""

    def __init__(self):
        super().__init__()
        self.embed, self.layer, self.head = nn.Embedding(11, 5), nn.Linear(5, 5), nn.Linear(5, 11, bias=False)
        self.again = self.layer
        self.head.weight = self.embed.weight

    def forward(self, ids):
        return self.head(self.again(self.layer(self.embed(ids)).relu()))


@pytest.mark.parametrize("context", [nullcontext, build_meta])
def test_ties_have_one_canonical_name(context):
    with context():
        module = Tied()
    graph = trace(module, (torch.tensor([[1, 2, 3]]),))
    aliases = {"embed.weight": ("head.weight",), "layer.weight": ("again.weight",), "layer.bias": ("again.bias",)}
    assert graph.aliases == aliases
    assert set(graph.parameters.values()) == set(aliases)
    assert set(graph.names.values()) == {name for key, names in aliases.items() for name in (key, *names)}
    readers = {graph.names[node.args[index].name] for node, index in by_operator(graph)}
    assert {"embed.weight", "head.weight"} < readers
    assert module.head.weight is module.embed.weight


def by_operator(graph):
    """Nodes that read a weight, with the index of the argument."""
    indices = {"aten.embedding.default": 0, "aten.linear.default": 1}
    return [(node, indices[str(node.target)]) for node in graph.nodes if str(node.target) in indices]


def test_a_state_dict_by_any_name_and_untied():
    module = Tied()
    graph = trace(module, (torch.tensor([[1, 2, 3]]),))
    full = module.state_dict()
    names = {"head.weight": "embed.weight", "again.weight": "layer.weight", "layer.bias": "layer.bias"}
    by_alias = {name: full[canonical] for name, canonical in names.items()}
    assert torch.equal(graph.run(by_alias)[0], graph.run()[0])
    other = {**full, "head.weight": 2 * full["head.weight"]}
    assert torch.equal(graph.run(other)[0], graph.run()[0])
    assert torch.allclose(graph.run(other, untie=True)[0], 2 * graph.run()[0])


def test_state_dicts_that_do_not_fit():
    graph = trace(Tied(), (torch.tensor([[1, 2, 3]]),))
    with pytest.raises(CheckpointError, match=r"^tensor 'embed.weight' is missing; the model needs 6 parameters$"):
        graph.run({})
    with pytest.raises(CheckpointError, match=r"^tensor 'embed.weight' has shape \(2, 5\), not \(11, 5\)$"):
        graph.run({**graph.state, "embed.weight": torch.zeros(2, 5)})
    with pytest.raises(TraceError, match=r"^the graph has no input 'x'; it has ids$"):
        graph.run(inputs={"x": torch.zeros(1)})


def test_another_batch_and_gradients():
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    graph = trace(module, (torch.randn(5, 3),))
    other = torch.randn(5, 3)
    assert torch.allclose(graph.run(inputs={"input": other})[0], module.double()(other.double()))
    state = {name: value.double().requires_grad_() for name, value in graph.state.items()}
    graph.run(state)[0].sum().backward()
    assert all(value.grad.abs().sum() > 0 for value in state.values())


class Casting(nn.Module):
    """Every way to leave a dtype."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 3))
        self.register_buffer("table", torch.arange(3) / 7)

    def forward(self, x):
        y = (x @ self.weight).to(torch.bfloat16).softmax(-1, dtype=torch.float32).type_as(x)
        z = y + torch.arange(3, device=x.device) / 3 + torch.full((3,), 0.1, dtype=torch.float16).float()
        return z.to(torch.float16).mean(-1, keepdim=True, dtype=torch.float32) + torch.outer(self.table, self.table)


def test_casts_are_lifted():
    torch.manual_seed(0)
    module, x = Casting(), torch.randn(3, 3)
    w, table = module.weight.detach().double(), module.table.double()
    y = (x.double() @ w).softmax(-1) + torch.arange(3).double() / 3 + 0.1
    expected = y.mean(-1, keepdim=True) + torch.outer(table, table)
    graph = trace(module, (x,))
    assert relative_error(graph.run()[0], expected) < 1e-15
    assert relative_error(graph.run(dtype=None)[0], expected) > 1e-5


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_runs_in_a_narrow_dtype(dtype):
    module, kwargs = build("llama")
    (value,) = trace(module, (), kwargs).run(dtype=dtype)
    assert value.dtype == dtype
    assert value.isfinite().all()


@pytest.mark.parametrize("layer", [nn.LayerNorm(6), nn.RMSNorm(6, eps=1e-5), nn.GroupNorm(2, 6), nn.BatchNorm1d(6)])
def test_epsilons_of_norms(layer):
    x = 1e-4 * torch.randn(8, 6)
    graph = trace(layer, (x,))
    linear = isinstance(layer, nn.BatchNorm1d)  # its statistics do not move with the input
    if linear:
        graph.state["running_var"].fill_(1e-6)
    (name,) = graph.inputs
    exact, scaled = (graph.run(inputs={name: x * factor}, epsilons=0.0)[0] for factor in (1, 1024))
    assert relative_error(exact * (1024 if linear else 1), scaled) < 1e-9
    assert relative_error(graph.run()[0], exact) > 1e-2


def test_epsilons_that_are_written_out():
    module, kwargs = build("llama")
    graph = trace(module, (), kwargs)
    small = {name: value * (1e-4 if "embed" in name else 1) for name, value in graph.state.items()}
    assert relative_error(graph.run(small)[0], graph.run(small, epsilons=0.0)[0]) > 1e-3
    large = graph.run(epsilons=0.0)[0]
    assert 0 < relative_error(graph.run()[0], large) < 1e-3


class Result(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.head, self.other = nn.Linear(3, 4), nn.Linear(4, 2), nn.Linear(3, 2)

    def forward(self, x):
        state = self.encoder(x).relu()
        logits = self.head(state)
        return {"logits": logits, "state": state, "boxes": self.other(x), "again": logits, "ids": logits.argmax(-1)}


def test_states_on_the_way_to_the_logits_are_no_outputs():
    graph = trace(Result(), (torch.randn(2, 3),))
    assert [tuple(value.shape) for value in graph.run()] == [(2, 2), (2, 2)]
    assert graph.dropped_outputs == ("state",)
    chosen = trace(Result(), (torch.randn(2, 3),), outputs=("state",))
    assert [tuple(value.shape) for value in chosen.run()] == [(2, 4)]
    with pytest.raises(TraceError, match=r"^the module returns no tensor 'loss'; it returns logits, state, boxes$"):
        trace(Result(), (torch.randn(2, 3),), outputs=("loss",))


def test_mode_and_cache_setting_are_restored():
    module, kwargs = build("llama")
    module.train()
    assert module.config.use_cache
    digest = trace(module, (), kwargs).identity["config_digest"]
    assert module.config.use_cache
    assert all(part.training for part in module.modules())
    assert digest == trace(module, (), kwargs).identity["config_digest"]
    module.config.use_cache = False
    assert digest != trace(module, (), kwargs).identity["config_digest"]


def test_a_cache_is_refused():
    module, kwargs = build("llama")
    message = r"^the module returns a cache object, which is no tensor: call it with use_cache=False$"
    with pytest.raises(TraceError, match=message):
        trace(module, (), {**kwargs, "use_cache": True})


class Branching(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


def test_what_cannot_be_exported_says_so_in_one_line(capfd):
    with pytest.raises(TraceError, match=r"^torch.export cannot trace Branching: .*$") as caught:
        trace(Branching(), (torch.randn(3),))
    assert "\n" not in str(caught.value)
    assert capfd.readouterr().err == ""


class Unfaithful(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        return self.layer(x) * (2 if torch.compiler.is_compiling() else 1)


def test_a_graph_that_is_not_the_module_is_refused():
    message = r"^the exported graph is not the module: its output '\w+' differs by 1.0e\+00$"
    with pytest.raises(TraceError, match=message):
        trace(Unfaithful(), (torch.randn(2, 3),))


def test_a_module_without_outputs():
    class Counting(nn.Module):
        def forward(self, x):
            return x.argmax(-1)

    with pytest.raises(TraceError, match=r"^the module returns no floating-point tensor$"):
        trace(Counting(), (torch.randn(2, 3),))


def test_origin_is_the_users_line():
    graph = trace(Tied(), (torch.tensor([[1, 2, 3]]),))
    origins = [graph.origin(node) for node in graph.nodes if node.op == "call_function"]
    assert origins[0].operator == "aten.embedding.default"
    assert origins[0].module == "embed"
    assert all(origin.source.startswith("test_trace.py:") for origin in origins)
    assert json.dumps(graph.identity)


def test_the_digest_is_not_that_of_the_release():
    module, kwargs = build("llama")
    digest = trace(module, (), kwargs).identity["config_digest"]
    module.config.transformers_version = "0.0.1"
    assert digest == trace(module, (), kwargs).identity["config_digest"]


def test_a_library_that_wraps_functions_is_not_the_source(tmp_path, monkeypatch):
    """The line of the module that asked counts, not that of a module of another package which passes arguments on."""
    (tmp_path / "wrapper_of_functions.py").write_text(
        "import torch\n\nclass Wrapped(torch.nn.Module):\n    def forward(self, x):\n        return wrapped(x)\n\n"
        "def wrapped(x):\n    return x.relu()\n"
    )
    (tmp_path / "net_of_somebody.py").write_text(
        "import torch\nfrom wrapper_of_functions import Wrapped\n\nhidden = Wrapped()\n\n"
        "class Net(torch.nn.Module):\n    def forward(self, x):\n        return hidden.forward(x)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    graph = trace(importlib.import_module("net_of_somebody").Net(), (torch.randn(3),))
    assert graph.origin(graph.output_nodes[0]).source == "net_of_somebody.py:8"


class InPlace(nn.Module):
    def forward(self, x):
        y = x * 2
        y[:, 1:].add_(1)
        return y


def test_only_what_writes_in_place_is_traced_anew(monkeypatch):
    anew = []
    decompose = torch.export.ExportedProgram.run_decompositions
    monkeypatch.setattr(torch.export.ExportedProgram, "run_decompositions", lambda *args: anew.append(1) or decompose(*args))
    trace(nn.Linear(3, 4), (torch.randn(2, 3),))
    assert not anew
    x = torch.randn(2, 3)
    graph = trace(InPlace(), (x,))
    assert anew
    assert torch.equal(graph.run(dtype=None)[0], InPlace()(x))
    norm = nn.BatchNorm1d(3)
    trace(norm, (torch.randn(2, 3),))
    assert len(anew) == 2


class Copies(nn.Module):
    """Every way to compute nothing, and casts written in three ways."""

    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        y = self.drop(x.clone().contiguous().detach().to(x.dtype).expand(2, 3).view(2, 3)).double()
        return y.to(torch.float32).type_as(x).relu(), x.to(torch.float64).sin()


def test_copies_leave_the_graph_and_casts_are_one_operator():
    x = torch.randn(2, 3)
    graph = trace(Copies(), (x,))
    calls = [str(node.target) for node in graph.nodes if node.op == "call_function"]
    assert calls == ["aten._to_copy.default", "aten._to_copy.default", "aten.relu.default", "aten._to_copy.default",
                     "aten.sin.default"]  # fmt: skip
    for value, expected in zip(graph.run(dtype=None), Copies().eval()(x), strict=True):
        assert torch.equal(value, expected)


def test_a_copy_that_is_returned_stays():
    class Same(nn.Module):
        def forward(self, x):
            return x.clone()

    x = torch.randn(2, 3)
    assert torch.equal(trace(Same(), (x,)).run(dtype=None)[0], x)
