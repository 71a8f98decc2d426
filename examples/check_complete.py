"""Count the symmetries of small modules and models, and compare with what a spec has.

    python examples/check_complete.py               # a Markdown table
    python examples/check_complete.py mha rope mla  # some rows

For every row: the dimension that the literature or a count by hand predicts (where there is one), ``dimension.total`` of the
discovered spec, the rank of its orbit directions, the nullity of the Jacobian at generic weights, and the gap of the singular
values at the cut, in decades. The three agree where the spec is complete, but for scales that only an epsilon breaks: these are
in the rank and not in the dimension, since epsilons are zero in an audit.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import torch
import transformers as tr
from torch import Tensor, nn
from torch.nn import functional

import symgraph as sg

Case = tuple[nn.Module, dict[str, Tensor]]
CASES: dict[str, tuple[Callable[[], Case], int | None]] = {}


def case(name: str, predicted: int | None = None) -> Callable[[Callable[[], Case]], Callable[[], Case]]:
    def register(build: Callable[[], Case]) -> Callable[[], Case]:
        CASES[name] = (build, predicted)
        return build

    return register


class Function(nn.Module):
    """A module from a function of itself and its input."""

    def __init__(self, function: Callable[[Any, Tensor], Tensor], **parts: nn.Module | nn.Parameter) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


def vector(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.rand(shape) + 0.5)


def x(*shape: int) -> dict[str, Tensor]:
    return {"x": torch.randn(*shape)}


def feed_forward(name: str, predicted: int, activation: Callable[[Tensor], Tensor]) -> None:
    @case(name, predicted)
    def build() -> Case:
        return Function(lambda m, z: m.down(activation(m.up(z))), up=nn.Linear(5, 7), down=nn.Linear(7, 3)), x(4, 5)


feed_forward("relu", 7, torch.relu)
feed_forward("gelu", 0, functional.gelu)
feed_forward("tanh", 0, torch.tanh)
feed_forward("relu squared", 7, lambda z: torch.relu(z) ** 2)


@case("linear-linear", 12)
def linear_linear() -> Case:
    return Function(lambda m, z: m.b(m.a(z)), a=nn.Linear(5, 3), b=nn.Linear(3, 4)), x(4, 5)


def gated(name: str, predicted: int, activation: Callable[[Tensor], Tensor], width: int = 6) -> None:
    @case(name, predicted)
    def build() -> Case:
        parts = {"g": nn.Linear(7, width, False), "u": nn.Linear(7, width, False), "d": nn.Linear(width, 6, False)}
        return Function(lambda m, z: m.d(activation(m.g(z)) * m.u(z)), **parts), x(4, 7)


gated("SwiGLU", 6, functional.silu)
gated("ReGLU", 12, torch.relu)
gated("bilinear GLU", 6, lambda z: z, width=3)


class Attention(nn.Module):
    """Heads of size k for keys and v for values on width 6, with what the options add."""

    def __init__(self, bias: bool = False, k: int = 3, v: int = 4, groups: int = 2, **options: Any) -> None:
        super().__init__()
        self.k, self.v, self.options = k, v, options
        self.query, self.key = nn.Linear(6, 2 * k, bias), nn.Linear(6, groups * k, bias)
        self.value, self.out = nn.Linear(6, groups * v, bias), nn.Linear(2 * v, 6, bias)
        for name in {"sink", "heat"} & options.keys():
            setattr(self, name, vector(2))
        self.gains = nn.ParameterList([vector(k), vector(k)] if options.get("gains") else [])
        self.table = nn.Parameter(torch.randn(2, 11)) if options.get("table") else None

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        if self.options.get("norm"):
            gains = list(self.gains) or [None, None]
            q, k = (functional.rms_norm(z, (self.k,), gain, 0.0) for z, gain in zip((q, k), gains, strict=True))
        if self.options.get("rotary"):
            q, k = (rotate(z, self.options.get("part", self.k), self.options.get("frequencies", (1.0, 0.3))) for z in (q, k))
        k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
        scores = q @ k.transpose(-1, -2) * self.k**-0.5
        places = torch.arange(q.shape[-2])
        if self.table is not None:
            scores = scores + self.table[:, places[:, None] - places[None] + 5]
        if self.options.get("causal"):
            scores = scores.masked_fill(places[None] > places[:, None], float("-inf"))
        if self.options.get("heat"):
            scores = scores * self.heat[:, None, None]
        if self.options.get("slopes"):
            scores = scores + torch.tensor([0.5, 0.25])[:, None, None] * (places[None] - places[:, None])
        return 5 * torch.tanh(scores / 5) if self.options.get("cap") else scores

    def forward(self, x: Tensor) -> Tensor:
        def heads(z: Tensor, size: int) -> Tensor:
            return z.unflatten(-1, (-1, size)).transpose(1, 2)

        scores = self.scores(heads(self.query(x), self.k), heads(self.key(x), self.k))
        v = heads(self.value(x), self.v)
        v = v.repeat_interleave(2 // v.shape[1], 1)
        if self.options.get("sink"):
            extra = self.sink[None, :, None, None].expand(*scores.shape[:-1], 1)
            weights = torch.cat([scores, extra], -1).softmax(-1)[..., :-1]
        else:
            weights = scores if self.options.get("linear") else scores.softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


def rotate(z: Tensor, part: int, frequencies: Sequence[float]) -> Tensor:
    """The first ``part`` coordinates by pairs (i, i + part / 2), the others left alone."""
    half = part // 2
    angles = torch.arange(z.shape[-2])[:, None] * torch.tensor(frequencies)[:half]
    first, second, rest = z[..., :half], z[..., half:part], z[..., part:]
    turned = first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()
    return torch.cat([*turned, rest], -1)


def attention(name: str, predicted: int, **options: Any) -> None:
    @case(name, predicted)
    def build() -> Case:
        return Attention(**options), x(2, 6, 6)


attention("MHA", 50)
attention("MHA, biases", 64, bias=True)
attention("MHA, rotary, biases", 48, bias=True, rotary=True, k=4)
attention("MHA, logit soft-cap, biases", 58, bias=True, cap=True)
attention("MHA, learned sink, biases", 50, bias=True, sink=True)
attention("MHA, learned temperature", 52, heat=True)
attention("MHA, ALiBi, biases", 64, bias=True, slopes=True)
attention("MHA, QK-norm without gain", 42, norm=True)
attention("linear attention", 52, linear=True)
attention("MHA, causal, biases", 64, bias=True, causal=True)
attention("MHA, rotary", 40, rotary=True, k=4)
attention("MHA, rotary on a part, biases", 56, bias=True, rotary=True, k=4, part=2)
attention("MHA, rotary, a frequency twice", 48, rotary=True, k=4, frequencies=(0.5, 0.5))
attention("MHA, rotary, a frequency of zero", 44, rotary=True, k=4, frequencies=(0.5, 0.0))
attention("MHA, learned table of relative positions", 52, table=True)
attention("MHA, QK-norm with gains", 39, norm=True, gains=True)
attention("MHA, QK-norm, rotary", 40, norm=True, rotary=True, k=4)
attention("MHA, QK-norm with gains, rotary", 38, norm=True, gains=True, rotary=True, k=4)
attention("grouped queries", 25, groups=1)
attention("grouped queries, biases", 32, groups=1, bias=True)
attention("grouped queries, rotary", 20, groups=1, rotary=True, k=4)


@case("nn.MultiheadAttention", 48)
def packed() -> Case:
    part = nn.MultiheadAttention(6, 2, batch_first=True)
    return Function(lambda m, z: m.part(z, z, z, need_weights=False)[0], part=part), x(2, 5, 6)


@case("LayerNorm between linear layers", 33)
def layer_norm() -> Case:
    parts = {"a": nn.Linear(5, 6), "n": nn.LayerNorm(6, eps=0.0), "b": nn.Linear(6, 4)}
    return Function(lambda m, z: m.b(m.n(m.a(z))), **parts), x(4, 5)


@case("RMSNorm between linear layers", 22)
def rms_norm() -> Case:
    parts: dict[str, Any] = {"a": nn.Linear(5, 6), "g": vector(6), "b": nn.Linear(6, 4)}
    return Function(lambda m, z: m.b(functional.rms_norm(m.a(z), (6,), m.g, 0.0)), **parts), x(4, 5)


@case("weight norm", 6)
def weight_norm() -> Case:
    first = nn.utils.parametrizations.weight_norm(nn.Linear(5, 6))
    return Function(lambda m, z: m.b(functional.gelu(m.a(z))), a=first, b=nn.Linear(6, 3)), x(4, 5)


@case("mixture of experts, dense", 6)
def experts() -> Case:
    def run(m: Any, z: Tensor) -> Tensor:
        hidden = functional.gelu(torch.einsum("bd,efd->bef", z, m.up))
        return torch.einsum("bef,eof,be->bo", hidden, m.down, m.router(z).softmax(-1))

    parts = {"router": nn.Linear(5, 3), "up": vector(3, 4, 5), "down": vector(3, 6, 4)}
    return Function(run, **parts), x(4, 5)


@case("linear state space", 16)
def state_space() -> Case:
    def run(m: Any, z: Tensor) -> Tensor:
        state, outputs = z.new_zeros(z.shape[0], 4), []
        for step in range(z.shape[1]):
            state = state @ m.a.T + z[:, step] @ m.b.T
            outputs.append(state @ m.c.T)
        return torch.stack(outputs, 1)

    return Function(run, a=vector(4, 4), b=vector(4, 3), c=vector(2, 4)), x(2, 5, 3)


@case("two towers and a temperature", 8)
def towers() -> Case:
    def run(m: Any, z: Tensor) -> Tensor:
        return functional.normalize(m.a(z), dim=-1, eps=0) @ functional.normalize(m.b(z), dim=-1, eps=0).T * m.heat.exp()

    return Function(run, a=nn.Linear(5, 4, False), b=nn.Linear(5, 4, False), heat=vector()), x(4, 5)


def simple(name: str, predicted: int, forward: Callable[[Any, Tensor], Tensor], shape: tuple[int, ...],
           **parts: Callable[[], nn.Module | nn.Parameter]) -> None:  # fmt: skip
    @case(name, predicted)
    def build() -> Case:
        return Function(forward, **{key: make() for key, make in parts.items()}), x(*shape)


def dense(inner: int, outer: int, bias: bool = True) -> Callable[[], nn.Linear]:
    return lambda: nn.Linear(inner, outer, bias)


def conv(inner: int, outer: int, size: int, groups: int = 1, bias: bool = True) -> Callable[[], nn.Conv2d]:
    return lambda: nn.Conv2d(inner, outer, size, groups=groups, bias=bias)


UNIT = {"a": dense(5, 7), "b": dense(7, 3)}
simple("sigmoid", 0, lambda m, z: m.b(torch.sigmoid(m.a(z))), (4, 5), **UNIT)
simple("sine", 0, lambda m, z: m.b(torch.sin(m.a(z))), (4, 5), **UNIT)
simple("absolute value", 7, lambda m, z: m.b(m.a(z).abs()), (4, 5), **UNIT)
simple("cube", 7, lambda m, z: m.b(m.a(z) ** 3), (4, 5), **UNIT)
simple("PReLU, a slope per unit", 7, lambda m, z: m.b(m.p(m.a(z))), (4, 5), p=lambda: nn.PReLU(7), **UNIT)
simple("SwiGLU, biases", 6, lambda m, z: m.d(functional.silu(m.g(z)) * m.u(z)), (4, 7),
       g=dense(7, 6), u=dense(7, 6), d=dense(6, 6))  # fmt: skip
simple("LayerNorm without gain", 4, lambda m, z: m.b(m.n(z)), (4, 6), n=lambda: nn.LayerNorm(6, 0.0, False), b=dense(6, 4))
simple("LayerNorm, no bias after it", 12, lambda m, z: m.b(m.n(z)), (4, 6), n=lambda: nn.LayerNorm(6, 0.0),
       b=dense(6, 4, False))  # fmt: skip
simple("LayerNorm, no bias after it, wide", 12, lambda m, z: m.b(m.n(z)), (4, 6), n=lambda: nn.LayerNorm(6, 0.0),
       b=dense(6, 9, False))  # fmt: skip
simple("LayerScale before a norm", 12,
       lambda m, z: m.o(functional.rms_norm(z + m.s * m.b(functional.gelu(m.a(z))), (6,), m.g, 0.0)), (4, 6),
       a=dense(6, 4), b=dense(4, 6), s=lambda: vector(6), g=lambda: vector(6), o=dense(6, 3))  # fmt: skip
simple("BatchNorm in training", 8,
       lambda m, z: m.d(functional.gelu(functional.batch_norm(m.c(z), None, None, m.w, m.b, True))), (3, 2, 6, 6),
       c=conv(2, 4, 3), w=lambda: vector(4), b=lambda: vector(4), d=conv(4, 3, 3))  # fmt: skip
simple("BatchNorm, stored statistics counted too", 20, lambda m, z: m.d(torch.relu(m.n(m.c(z)))), (3, 2, 6, 6),
       c=conv(2, 4, 3), n=lambda: nn.BatchNorm2d(4), d=conv(4, 3, 3))  # fmt: skip
simple("GroupNorm", 8, lambda m, z: m.d(torch.relu(m.n(m.c(z)))), (3, 2, 6, 6), c=conv(2, 4, 3),
       n=lambda: nn.GroupNorm(2, 4), d=conv(4, 3, 3))  # fmt: skip
simple("depthwise, pointwise", 4, lambda m, z: m.d(m.c(z)), (3, 2, 6, 6), c=conv(2, 2, 3, 2), d=conv(2, 3, 1))
simple("pointwise, depthwise, pointwise with ReLU", 8, lambda m, z: m.d(torch.relu(m.c(torch.relu(m.a(z))))), (3, 2, 6, 6),
       a=conv(2, 4, 1), c=conv(4, 4, 3, 4), d=conv(4, 3, 1))  # fmt: skip
simple("grouped convolution of the input", 6, lambda m, z: m.d(torch.relu(m.c(z))), (3, 2, 6, 6), c=conv(2, 6, 3, 2),
       d=conv(6, 3, 1))  # fmt: skip
simple("LSTM", 16, lambda m, z: m.o(m.r(z)[0]), (2, 4, 3), r=lambda: nn.LSTM(3, 4, batch_first=True), o=dense(4, 2))
simple("GRU", 8, lambda m, z: m.o(m.r(z)[0]), (2, 4, 3), r=lambda: nn.GRU(3, 4, batch_first=True), o=dense(4, 2))
simple("RNN, ReLU", 8, lambda m, z: m.o(m.r(z)[0]), (2, 4, 3),
       r=lambda: nn.RNN(3, 4, batch_first=True, nonlinearity="relu"), o=dense(4, 2))  # fmt: skip
simple("LoRA alone", 4, lambda m, z: m.b(m.a(z)), (4, 6), a=dense(6, 2, False), b=dense(2, 5, False))
simple("adapter", 0, lambda m, z: z + m.b(functional.gelu(m.a(z))), (4, 6), a=dense(6, 3), b=dense(3, 6))
simple("a scale per row", 5, lambda m, z: functional.linear(z, m.w * m.s[:, None]), (4, 6), w=lambda: vector(5, 6),
       s=lambda: vector(5))  # fmt: skip
simple("softmax at the end", 6, lambda m, z: m.a(z).softmax(-1), (4, 5), a=dense(5, 4))


class Diagonal(nn.Module):
    """A diagonal state-space layer, unrolled."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = vector(4), nn.Parameter(torch.randn(4, 3)), nn.Parameter(torch.randn(2, 4))

    def forward(self, x: Tensor) -> Tensor:
        state, outputs = x.new_zeros(x.shape[0], 4), []
        for step in range(x.shape[1]):
            state = state * self.a + x[:, step] @ self.b.T
            outputs.append(state @ self.c.T)
        return torch.stack(outputs, 1)


@case("diagonal state space", 4)
def diagonal() -> Case:
    return Diagonal(), x(2, 5, 3)


class Routed(nn.Module):
    """Three experts on width 5, two of them for every token."""

    def __init__(self, gate: str, shared: bool = False, norm: bool = False) -> None:
        super().__init__()
        self.gate, self.router = gate, nn.Linear(5, 3, False)
        self.up, self.down = nn.Parameter(torch.randn(3, 4, 5)), nn.Parameter(torch.randn(3, 5, 4))
        self.shared = nn.Sequential(nn.Linear(5, 4), nn.GELU(), nn.Linear(4, 5)) if shared else None
        self.gain = vector(5) if norm else None

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.gain is None else functional.rms_norm(x, (5,), self.gain, 0.0)
        logits = self.router(x)
        values, index = (logits.softmax(-1) if self.gate == "softmax" else logits).topk(2, -1)
        values = {"softmax": lambda: values, "renormalized": lambda: values.softmax(-1), "sigmoid": values.sigmoid}[self.gate]()
        weights = torch.zeros_like(logits).scatter(-1, index, values)
        hidden = functional.gelu(torch.einsum("bd,efd->bef", x, self.up))
        mixed = torch.einsum("bef,eof,be->bo", hidden, self.down, weights)
        return mixed if self.shared is None else mixed + self.shared(x)


def routed(name: str, predicted: int, **options: Any) -> None:
    @case(name, predicted)
    def build() -> Case:
        return Routed(**options), x(6, 5)


routed("mixture of experts, top 2", 5, gate="softmax")
routed("mixture of experts, top 2 renormalized", 5, gate="renormalized")
routed("mixture of experts, sigmoid gates", 0, gate="sigmoid")
routed("mixture of experts, a shared one", 5, gate="softmax", shared=True)
routed("mixture of experts after a norm", 10, gate="softmax", norm=True)


LANGUAGE = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 6, "vocab_size": 40,
            "max_position_embeddings": 32, "tie_word_embeddings": False, "pad_token_id": None}  # fmt: skip
GROUPED = {**LANGUAGE, "num_key_value_heads": 1, "rms_norm_eps": 0.0, "vocab_size": 23}
IMAGE = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 6, "image_size": 4,
         "patch_size": 2, "num_channels": 1, "num_labels": 3, "layer_norm_eps": 0.0}  # fmt: skip
OLD = {"n_embd": 8, "n_layer": 1, "n_head": 2, "n_inner": 6, "n_positions": 8, "layer_norm_epsilon": 0.0, "pad_token_id": None,
       "bos_token_id": 1, "eos_token_id": 2}  # fmt: skip


def model(name: str, class_: str, config: dict[str, Any], predicted: int | None = None) -> None:
    @case(name, predicted)
    def build() -> Case:
        architecture = getattr(tr, class_)
        settings = architecture.config_class(**config)
        module = architecture(settings).eval()
        if "image_size" in config:
            return module, {"pixel_values": torch.randn(2, 1, 4, 4)}
        ids = torch.randint(0, settings.vocab_size, (2, 8))
        inputs: dict[str, Any] = {"input_ids": ids}
        if settings.is_encoder_decoder:
            inputs["decoder_input_ids"] = torch.randint(0, settings.vocab_size, (2, 6))
        return module, inputs


model("gpt_neox", "GPTNeoXForCausalLM",
      {**LANGUAGE, "rotary_pct": 0.5, "layer_norm_eps": 0.0, "use_parallel_residual": True}, 219)  # fmt: skip
model("llama", "LlamaForCausalLM", GROUPED, 79)
model("llama (tied)", "LlamaForCausalLM", {**GROUPED, "tie_word_embeddings": True}, 43)
model("mistral", "MistralForCausalLM", GROUPED, 79)
model("qwen2", "Qwen2ForCausalLM", GROUPED)
model("qwen3", "Qwen3ForCausalLM", {**GROUPED, "head_dim": 4}, 80)
model("olmo", "OlmoForCausalLM", {**LANGUAGE, "num_key_value_heads": 1, "vocab_size": 23})
model("olmo2", "Olmo2ForCausalLM", GROUPED)
model("gemma2", "Gemma2ForCausalLM", {**GROUPED, "head_dim": 4, "tie_word_embeddings": True})
model("gpt2", "GPT2LMHeadModel", {**OLD, "vocab_size": 23})
model("gpt2 (untied)", "GPT2LMHeadModel", {**OLD, "vocab_size": 40, "tie_word_embeddings": False})
model("gptj", "GPTJForCausalLM", {**OLD, "n_positions": 16, "rotary_dim": 2, "vocab_size": 40, "tie_word_embeddings": False})
model("phi", "PhiForCausalLM", {**LANGUAGE, "partial_rotary_factor": 0.5, "layer_norm_eps": 0.0})
model("bert", "BertForMaskedLM", {**{key: value for key, value in LANGUAGE.items() if key != "tie_word_embeddings"},
                                  "num_hidden_layers": 2, "vocab_size": 23, "max_position_embeddings": 8,
                                  "type_vocab_size": 1, "layer_norm_eps": 0.0})  # fmt: skip
model("vit", "ViTForImageClassification", IMAGE)
model("t5", "T5ForConditionalGeneration",
      {"d_model": 8, "d_kv": 3, "num_heads": 2, "d_ff": 6, "num_layers": 1, "vocab_size": 23, "layer_norm_epsilon": 0.0,
       "tie_word_embeddings": False, "pad_token_id": None, "relative_attention_num_buckets": 8})  # fmt: skip
model("mixtral", "MixtralForCausalLM", {**GROUPED, "num_local_experts": 3, "intermediate_size": 4})
model("mamba", "MambaForCausalLM", {"hidden_size": 6, "num_hidden_layers": 1, "vocab_size": 23, "state_size": 3, "expand": 2,
                                    "time_step_rank": 2, "conv_kernel": 3, "tie_word_embeddings": False,
                                    "layer_norm_epsilon": 0.0, "pad_token_id": None})  # fmt: skip


def row(name: str) -> list[str]:
    build, predicted = CASES[name]
    torch.manual_seed(0)
    module, kwargs = build()
    graph = sg.trace(module.eval(), kwargs=kwargs)
    spec = sg.discover(graph)
    report = sg.audit(graph, spec)
    expected = "" if predicted is None else str(predicted)
    counts = [str(report.dimension), str(report.rank), str(report.nullity)]
    verdict = "yes" if report.complete else f"{report.nullity - report.rank} missing"
    return [name, expected, *counts, f"{report.gap:.1f}", verdict]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="rows (default: all)")
    names = parser.parse_args(arguments).names or list(CASES)
    print("| | predicted | dimension | rank | nullity | gap | complete |")
    print("|---|---|---|---|---|---|---|")
    for name in names:
        print("| " + " | ".join(row(name)) + " |", flush=True)


if __name__ == "__main__":
    main()
