"""Compile a small model of every architecture that the README lists, and check the result.

    python examples/check_models.py               # a Markdown table
    python examples/check_models.py llama gpt2    # some of them

For every model: the group of its residual stream, the number of continuous symmetry directions, the largest relative
change of its outputs under random elements of the whole group (float64), and how far weight matching brings a randomly
moved copy back to the original.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import torch
import transformers
from torch import Tensor

import symgraph as sg
from symgraph.frontend.inputs import example_inputs
from symgraph.spec.render import group_text

SMALL = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 36, "vocab_size": 61,
         "max_position_embeddings": 32}  # fmt: skip
GROUPED = {**SMALL, "num_key_value_heads": 2, "head_dim": 8, "tie_word_embeddings": False}
IMAGES = {**SMALL, "image_size": 16, "patch_size": 4, "num_channels": 1, "num_labels": 7}
OLD = {"n_embd": 24, "n_layer": 2, "n_head": 4, "n_positions": 32, "vocab_size": 61}

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt_neox": ("GPTNeoXForCausalLM", {**SMALL, "hidden_size": 32, "tie_word_embeddings": False}),
    "llama": ("LlamaForCausalLM", GROUPED),
    "llama (tied)": ("LlamaForCausalLM", {**GROUPED, "tie_word_embeddings": True}),
    "mistral": ("MistralForCausalLM", GROUPED),
    "qwen2": ("Qwen2ForCausalLM", GROUPED),
    "qwen3": ("Qwen3ForCausalLM", GROUPED),
    "olmo": ("OlmoForCausalLM", {**SMALL, "hidden_size": 32, "tie_word_embeddings": False}),
    "olmo2": ("Olmo2ForCausalLM", {**SMALL, "hidden_size": 32, "tie_word_embeddings": False}),
    "gemma2": ("Gemma2ForCausalLM", GROUPED),
    "gpt2": ("GPT2LMHeadModel", OLD),
    "gptj": ("GPTJForCausalLM", {**OLD, "n_embd": 32, "rotary_dim": 4, "tie_word_embeddings": False}),
    "phi": ("PhiForCausalLM", {**SMALL, "hidden_size": 32, "tie_word_embeddings": False}),
    "bert": ("BertForMaskedLM", SMALL),
    "vit": ("ViTForImageClassification", IMAGES),
    "deit": ("DeiTForImageClassification", IMAGES),
    "t5": ("T5ForConditionalGeneration",
           {"d_model": 24, "d_kv": 8, "d_ff": 36, "num_layers": 2, "num_heads": 3, "vocab_size": 61,
            "decoder_start_token_id": 0}),
    "mixtral": ("MixtralForCausalLM", {**GROUPED, "num_local_experts": 4}),
}  # fmt: skip


def build(name: str, attention: str | None = None, seed: int = 0) -> tuple[transformers.PreTrainedModel, dict[str, Tensor]]:
    """A small model with random weights, gains and biases among them, and an example call."""
    cls_name, settings = MODELS[name]
    cls = getattr(transformers, cls_name)
    torch.manual_seed(seed)
    config = cls.config_class(**settings, attn_implementation=attention)
    module = cls(config).eval()
    for parameter in module.parameters():
        if parameter.dim() < 2:
            parameter.data.add_(0.3 * torch.randn_like(parameter))
    return module, example_inputs(module, config)


def recovered(spec: sg.SymmetrySpec, canon: dict[str, Tensor]) -> float:
    """Relative distance that weight matching leaves between the weights and a randomly moved copy of them."""
    moved = sg.sample(spec, seed=1).apply(canon)
    result = sg.match(spec, canon, moved, method="weights")
    names = [tensor.name for tensor in spec.tensors]
    off = sum(float((result.a[name] - result.b[name]).square().sum()) for name in names)
    size = sum(float(result.a[name].square().sum()) for name in names)
    return (off / size) ** 0.5


def row(name: str) -> dict[str, str]:
    module, kwargs = build(name)
    graph = sg.trace(module, kwargs=kwargs)
    spec = sg.discover(graph)
    report = sg.verify(graph, spec)
    state = {key: value.double() for key, value in module.state_dict().items()}
    streams = [space for space in spec.spaces if space.role == "residual"]
    return {
        "model": name,
        "residual stream": ", ".join(dict.fromkeys(group_text(space, spec.space_map) for space in streams)),
        "dimension": f"{spec.dimension.total:,}",
        "outputs move by": f"{report.max_relative_error:.1e}",
        "planted match is off by": f"{recovered(spec, sg.canonicalize(spec, state)):.1e}",
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"of {', '.join(MODELS)}; all if none are given")
    headings = None
    for name in parser.parse_args(arguments).names or MODELS:
        cells = row(name)
        if headings is None:
            headings = list(cells)
            print(f"| {' | '.join(headings)} |\n|{'---|' * len(headings)}")
        print(f"| {' | '.join(cells.values())} |", flush=True)


if __name__ == "__main__":
    main()
