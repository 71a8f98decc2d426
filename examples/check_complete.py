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

    def __init__(self, bias: bool = False, k: int = 3, v: int = 4, **options: bool) -> None:
        super().__init__()
        self.k, self.v, self.options = k, v, options
        self.query, self.key = nn.Linear(6, 2 * k, bias), nn.Linear(6, 2 * k, bias)
        self.value, self.out = nn.Linear(6, 2 * v, bias), nn.Linear(2 * v, 6, bias)
        for name in {"sink", "heat"} & options.keys():
            setattr(self, name, vector(2))

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        if self.options.get("norm"):
            q, k = functional.rms_norm(q, (self.k,), None, 0.0), functional.rms_norm(k, (self.k,), None, 0.0)
        if self.options.get("rotary"):
            q, k = rotate(q), rotate(k)
        scores = q @ k.transpose(-1, -2) * self.k**-0.5
        if self.options.get("heat"):
            scores = scores * self.heat[:, None, None]
        if self.options.get("slopes"):
            places = torch.arange(q.shape[-2])
            scores = scores + torch.tensor([0.5, 0.25])[:, None, None] * (places[None] - places[:, None])
        return 5 * torch.tanh(scores / 5) if self.options.get("cap") else scores

    def forward(self, x: Tensor) -> Tensor:
        def heads(z: Tensor) -> Tensor:
            return z.unflatten(-1, (2, -1)).transpose(1, 2)

        scores, v = self.scores(heads(self.query(x)), heads(self.key(x))), heads(self.value(x))
        if self.options.get("sink"):
            extra = self.sink[None, :, None, None].expand(*scores.shape[:-1], 1)
            weights = torch.cat([scores, extra], -1).softmax(-1)[..., :-1]
        else:
            weights = scores if self.options.get("linear") else scores.softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


def rotate(z: Tensor) -> Tensor:
    half = z.shape[-1] // 2
    angles = torch.arange(z.shape[-2])[:, None] * torch.tensor([1.0, 0.3])[:half]
    cos, sin = torch.cat([angles.cos()] * 2, -1), torch.cat([angles.sin()] * 2, -1)
    return z * cos + torch.cat([-z[..., half:], z[..., :half]], -1) * sin


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
