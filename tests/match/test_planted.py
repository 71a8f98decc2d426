"""Planted elements of the whole group are found again where signs of queries and of coordinates meet on one projection."""

from __future__ import annotations

import pytest
import torch
import transformers

import symgraph as sg


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_one_norm_for_all_queries(seed: int) -> None:
    config = transformers.MiniMaxM2Config(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2, head_dim=8, intermediate_size=12,
        vocab_size=61, num_local_experts=2, num_experts_per_tok=1, rotary_dim=8, tie_word_embeddings=False,
    )  # fmt: skip
    torch.manual_seed(seed)
    module = transformers.MiniMaxM2ForCausalLM(config).eval()
    for parameter in module.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    spec = sg.discover(sg.trace(module, kwargs={"input_ids": torch.arange(8)[None] % 61}))
    state = {key: value.double() for key, value in module.state_dict().items()}
    canon = sg.canonicalize(spec, state)
    result = sg.match(spec, state, sg.sample(spec, seed=seed, scale=0.5).apply(canon), method="weights")
    assert result.distance_before > 0.3
    assert result.distance_after < 1e-9
    assert result.equivalent
