"""Tiny models of every family, from their configs; all sizes of one model are different where the family allows."""

from __future__ import annotations

from functools import cache

import torch
import transformers as tr

import symgraph as sg

PLAIN = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 6, "vocab_size": 23,
         "max_position_embeddings": 32, "pad_token_id": None, "bos_token_id": 1, "eos_token_id": 2}  # fmt: skip
ROOT = {**PLAIN, "num_key_value_heads": 1, "rms_norm_eps": 0.0, "tie_word_embeddings": False}
MEAN = {**PLAIN, "layer_norm_eps": 0.0}
OLD = {"n_embd": 8, "n_layer": 1, "n_head": 2, "n_inner": 6, "n_positions": 16, "layer_norm_epsilon": 0.0,
       "bos_token_id": 1, "eos_token_id": 2}  # fmt: skip
IMAGE = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 6, "image_size": 4,
         "patch_size": 2, "num_channels": 1, "num_labels": 3, "layer_norm_eps": 0.0}  # fmt: skip

FAMILIES = {
    "gpt_neox": ("GPTNeoXForCausalLM", {**MEAN, "vocab_size": 40, "rotary_pct": 0.5, "use_parallel_residual": True,
                                        "tie_word_embeddings": False}),
    "llama": ("LlamaForCausalLM", ROOT),
    "llama_tied": ("LlamaForCausalLM", {**ROOT, "tie_word_embeddings": True}),
    "mistral": ("MistralForCausalLM", ROOT),
    "qwen2": ("Qwen2ForCausalLM", ROOT),
    "qwen3": ("Qwen3ForCausalLM", {**ROOT, "head_dim": 4}),
    "olmo": ("OlmoForCausalLM", {**PLAIN, "num_key_value_heads": 1, "tie_word_embeddings": False}),
    "olmo2": ("Olmo2ForCausalLM", ROOT),
    "gemma2": ("Gemma2ForCausalLM", {**ROOT, "head_dim": 4, "tie_word_embeddings": True}),
    "gpt2": ("GPT2LMHeadModel", {**OLD, "n_positions": 8, "vocab_size": 23}),
    "gptj": ("GPTJForCausalLM", {**OLD, "rotary_dim": 2, "vocab_size": 40, "tie_word_embeddings": False}),
    "phi": ("PhiForCausalLM", {**MEAN, "vocab_size": 40, "partial_rotary_factor": 0.5, "tie_word_embeddings": False}),
    "bert": ("BertForMaskedLM", {**MEAN, "num_hidden_layers": 2, "max_position_embeddings": 8}),
    "vit": ("ViTForImageClassification", IMAGE),
    # its class token is zero at first: without an epsilon its norm is 0 / 0, with a tiny one rounding errors grow
    "deit": ("DeiTForImageClassification", {**IMAGE, "layer_norm_eps": 1e-6}),
    "t5": ("T5ForConditionalGeneration", {"d_model": 8, "d_kv": 3, "num_heads": 2, "d_ff": 6, "num_layers": 1, "vocab_size": 23,
                                          "layer_norm_epsilon": 0.0, "tie_word_embeddings": False, "pad_token_id": None,
                                          "relative_attention_num_buckets": 8}),
    "mixtral": ("MixtralForCausalLM", {**ROOT, "num_local_experts": 3, "intermediate_size": 4}),
}  # fmt: skip


@cache
def graph_of(name, attention=None, **changes):
    """The traced graph of a family; ``changes`` of its config."""
    class_, settings = FAMILIES[name]
    architecture = getattr(tr, class_)
    config = architecture.config_class(**{**settings, **changes})
    if attention:
        config._attn_implementation = attention
    torch.manual_seed(0)
    return sg.trace(architecture(config).eval(), kwargs=inputs(config))


@cache
def spec_of(name, attention=None, untie=False, **changes):
    return sg.discover(graph_of(name, attention, **changes), untie=untie)


def inputs(config):
    if hasattr(config, "image_size"):
        return {"pixel_values": torch.randn(2, 1, 4, 4)}
    found = {"input_ids": torch.randint(0, config.vocab_size, (2, 8))}
    if config.is_encoder_decoder:
        found["decoder_input_ids"] = torch.randint(0, config.vocab_size, (2, 6))
    return found


def with_role(spec, role):
    return [space for space in spec.spaces if space.role == role]


def blocks(space):
    """Field and size of every block."""
    return sorted((block.field, len(block.coordinates)) for block in space.blocks)
