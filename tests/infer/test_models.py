"""Every family: the spec is sound, does not depend on how attention is written, and has the right groups."""

from __future__ import annotations

import re

import pytest

import symgraph as sg
from symgraph.algebra.groups import Group
from tests.infer.samples import FAMILIES, blocks, graph_of, spec_of, with_role

WIDE = {"rms_norm_eps": 1e-6, "hidden_size": 12, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6,
        "intermediate_size": 10}  # fmt: skip


@pytest.mark.parametrize("name", FAMILIES)
def test_the_whole_group_preserves_the_function(name):
    report = sg.verify(graph_of(name), spec_of(name))
    assert report.passed, report.summary
    assert report.max_relative_error <= 1e-9


@pytest.mark.parametrize("name", FAMILIES)
def test_no_operator_is_without_a_rule(name):
    assert not spec_of(name).pins


def content(spec):
    """All that is claimed, without where it comes from."""
    empty = {"provenance": ()}
    return (
        {space.model_copy(update=empty) for space in spec.spaces},
        {tensor.name: tensor for tensor in spec.tensors},
        {one.source: one.model_copy(update=empty) for one in spec.absorptions},
        spec.dimension.total,
    )


@pytest.mark.parametrize("name", sorted(FAMILIES.keys() - {"llama_tied", "gemma2"}))  # the library has no fused gemma2
def test_eager_and_fused_attention_give_the_same_spec(name):
    eager, fused = content(spec_of(name, "eager")), content(spec_of(name, "sdpa"))
    assert eager == fused


def test_llama():
    spec = spec_of("llama", **WIDE)
    residual = spec.space("residual")
    assert (residual.group, residual.size, residual.per) == (Group.ORTHOGONAL, 12, ())
    (head,), (query,) = with_role(spec, "kv_head"), with_role(spec, "query")
    assert (head.group, head.size, head.per) == (Group.PERMUTATION, 2, ())
    assert (query.group, query.size, query.per) == (Group.PERMUTATION, 2, (head.name,))
    (qk,), (ov,) = with_role(spec, "qk"), with_role(spec, "ov")
    assert (qk.group, qk.size, qk.per, blocks(qk)) == (Group.COMMUTANT, 6, (head.name,), [("complex", 1)] * 3)
    assert [block.coordinates for block in qk.blocks] == [((0, 3),), ((1, 4),), ((2, 5),)]
    assert (ov.group, ov.size, ov.per) == (Group.GENERAL_LINEAR, 6, (head.name,))
    (hidden,) = with_role(spec, "hidden")
    assert (hidden.group, hidden.size) == (Group.MONOMIAL, 10)
    assert [scale.kind for scale in hidden.scales] == ["real"]
    assert len(spec.spaces) == 6


def test_llama_with_tied_embeddings():
    tied, untied = spec_of("llama_tied", **WIDE), spec_of("llama_tied", untie=True, **WIDE)
    assert tied.space("residual").group is Group.SIGNED_PERMUTATION
    assert not any(space.size == 12 and space.group.is_matrix for space in tied.spaces)
    assert untied.space("residual").group is Group.ORTHOGONAL
    assert untied.identity.untied
    report = sg.verify(graph_of("llama_tied", **WIDE), untied)
    assert report.passed, report.summary


def test_gpt_neox():
    spec = spec_of("gpt_neox", hidden_size=24, num_attention_heads=3)
    residual = spec.space("residual")
    assert (residual.group, residual.size) == (Group.ORTHOGONAL_FIXING_ONES, 24)
    (head,), (qk,), (ov,) = (with_role(spec, role) for role in ("head", "qk", "ov"))
    assert (head.group, head.size) == (Group.PERMUTATION, 3)
    assert (qk.group, qk.size, qk.per) == (Group.COMMUTANT, 8, (head.name,))
    assert blocks(qk) == [("complex", 1), ("complex", 1), ("real", 4)]
    assert (ov.group, ov.size, ov.per) == (Group.GENERAL_LINEAR, 8, (head.name,))


def test_olmo2_has_no_rotation_of_its_stream():
    spec = spec_of("olmo2")
    assert spec.space("residual").group is Group.SIGNED_PERMUTATION
    text = sg.explain(spec, "residual")
    assert "post_attention_layernorm" in text
    assert "post_feedforward_layernorm" in text


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("mistral", Group.ORTHOGONAL),
        ("qwen2", Group.ORTHOGONAL),
        ("qwen3", Group.ORTHOGONAL),
        ("mixtral", Group.ORTHOGONAL),
        ("olmo", Group.ORTHOGONAL_FIXING_ONES),
        ("gptj", Group.ORTHOGONAL_FIXING_ONES),
        ("phi", Group.ORTHOGONAL_FIXING_ONES),
        ("vit", Group.ORTHOGONAL_FIXING_ONES),
        ("gemma2", Group.SIGNED_PERMUTATION),
    ],
)
def test_the_group_of_the_stream(name, group):
    assert spec_of(name).space("residual").group is group


def test_experts_permute_and_their_hidden_units_inside_each():
    spec = spec_of("mixtral")
    (expert,) = [space for space in spec.spaces if space.size == 3 and space.group is Group.PERMUTATION]
    (hidden,) = [space for space in spec.spaces if space.group is Group.MONOMIAL]
    assert (hidden.size, hidden.per) == (4, (expert.name,))


@pytest.mark.parametrize("name", ["llama", "gpt_neox", "olmo2", "llama_tied", "gpt2"])
def test_explain_names_an_operator_and_a_line(name):
    assert re.search(r"aten\.\w+.* at \w+\.py:\d+", sg.explain(spec_of(name), "residual"))
