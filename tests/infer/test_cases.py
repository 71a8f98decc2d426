"""What people ran into with other tools, each as a small module with the same trait."""

from __future__ import annotations

import time

import pytest
import torch
from torch import nn

import symgraph as sg
from symgraph.algebra.groups import Group
from symgraph.frontend.build import build_meta
from tests.infer.modules import (
    Function,
    attend,
    axes,
    carried,
    found,
    heads,
    joined,
    linear,
    matrix,
    mean,
    of_size,
    root,
    sound,
    turn,
    vector,
)  # fmt: skip

silu, relu, gelu = nn.functional.silu, torch.relu, nn.functional.gelu


def words():
    return (torch.randint(0, 11, (2, 5)),)


def stream(norm, after=None):
    """A residual stream of 6 between an embedding and a head, a gain before (or after) its one sublayer."""

    def build():
        def run(m, ids):
            z = m.embed(ids)
            written = m.down(gelu(m.up(norm(z) if after else norm(z, m.gain))))
            return m.head(norm(z + (after(written, m.gain) if after else written)))

        parts = {"embed": nn.Embedding(11, 6), "up": linear(6, 5), "down": linear(5, 6), "head": linear(6, 11)}
        return Function(run, **parts, gain=vector(6)), words()

    return build


@pytest.mark.parametrize(("norm", "group"), [(root, Group.ORTHOGONAL), (mean, Group.ORTHOGONAL_FIXING_ONES)])
def test_centring_is_claimed_only_where_readers_subtract_the_mean(norm, group):
    spec = sound(stream(norm))
    (inner,) = of_size(spec, 6)
    assert inner.group is group
    moved = {term.target.tensor for shift in spec.shifts for term in shift.terms}
    assert ({"embed.weight", "down.weight"} <= moved) == (norm is mean)
    assert norm is mean or not spec.shifts


def test_a_gain_after_the_sublayer():
    spec = sound(stream(root, after=root))
    (inner,) = of_size(spec, 6)
    assert inner.group is Group.SIGNED_PERMUTATION
    assert inner.name in carried(spec, "gain")
    assert "product along the axis" in sg.explain(spec, inner.name)
    assert "gain" in sg.explain(spec, inner.name)


def test_a_norm_that_multiplies_by_one_plus_w():
    def build():
        def run(m, x):
            return m.down(gelu(m.up(root(m.enter(x)) * (1 + m.gain))))

        return Function(run, enter=linear(7, 6), gain=vector(6), up=linear(6, 5), down=linear(5, 3)), (torch.randn(4, 7),)

    spec = sound(build)
    (fold,) = spec.absorptions
    assert (fold.source, fold.offset, fold.multiplier, fold.neutral) == ("gain", 1.0, 1.0, 0.0)
    state = {name: value.double() for name, value in found(build)[0].state.items()}
    canon = sg.canonicalize(spec, state)
    assert not canon["gain"].any()
    torch.testing.assert_close(canon["up.weight"], state["up.weight"] * (1 + state["gain"]))


def test_biases_are_members_of_their_space():
    def build():
        def run(m, x):
            z = m.enter(x)
            return m.leave(m.close(z + m.down(gelu(m.up(m.norm(z))))))

        norms = {"norm": nn.LayerNorm(6), "close": nn.LayerNorm(6)}
        ends = {"enter": linear(5, 6, True), "leave": linear(6, 3, True)}
        return Function(run, **norms, **ends, up=linear(6, 4, True), down=linear(4, 6, True)), (torch.randn(4, 5),)

    spec = sound(build)
    (inner,), (hidden,) = of_size(spec, 6), of_size(spec, 4)
    assert all(inner.name in carried(spec, name) for name in ("enter.bias", "down.bias", "norm.bias", "close.bias"))
    assert hidden.name in carried(spec, "up.bias")
    assert {"norm.bias", "close.bias"} <= {target.tensor for each in spec.absorptions for target in each.targets}


def attention(query, key, size, bias=False, width=7):
    """Rotary attention with grouped queries."""

    def build():
        def run(m, x):
            turns = tuple(0.5**i for i in range(size // 2))
            q, k = (turn(heads(f(x), count), frequencies=turns) for f, count in ((m.q, query), (m.k, key)))
            k, v = (z.repeat_interleave(query // key, 1) for z in (k, heads(m.v(x), key)))
            return m.o(joined(attend(q, k, v)))

        parts = {"q": linear(width, query * size, bias), "o": linear(query * size, width)}
        parts |= {name: linear(width, key * size, bias) for name in "kv"}
        return Function(run, **parts), (torch.randn(2, 5, width),)

    return build


QKV_BIAS, GROUPED = attention(2, 2, 4, bias=True), attention(6, 2, 4, bias=True)


@pytest.mark.parametrize("build", [QKV_BIAS, GROUPED])
def test_the_bias_of_a_projection_moves_with_it(build):
    spec = sound(build)
    for name in "qkv":
        assert axes(spec, f"{name}.weight")[0] == axes(spec, f"{name}.bias")[0]


def test_values_scale_against_the_output_under_grouped_queries():
    spec = sound(GROUPED)
    (ov,) = [space for space in spec.spaces if space.group is Group.GENERAL_LINEAR]
    (head,), (query,) = of_size(spec, 2), of_size(spec, 3)
    assert ov.per == query.per == (head.name,)
    plain, dual = ov.name, f"{ov.name}'"  # which of the two sides is called the dual is free
    values, outputs = axes(spec, "v.weight")[0], axes(spec, "o.weight")[1]
    ways = ((plain, dual), (dual, plain))
    assert (values, outputs) in [(f"{head.name} {one}", f"{head.name} {query.name} {other}") for one, other in ways]


def test_grouped_queries_in_under_a_second():
    torch.manual_seed(0)
    module, args = GROUPED()
    sg.discover(module, args)
    start = time.process_time()
    sg.discover(module, args)
    assert time.process_time() - start < 1.0


@pytest.mark.parametrize(("query", "key", "size", "width"), [(28, 4, 128, 3584), (3, 1, 80, 240), (5, 5, 6, 33)])
def test_any_size(query, key, size, width):
    with build_meta():
        module, args = attention(query, key, size, width=width)()
    spec = sg.discover(module, args)
    (block,) = [space for space in spec.spaces if space.group is Group.COMMUTANT]
    (ov,) = [space for space in spec.spaces if space.group is Group.GENERAL_LINEAR]
    assert (block.size, len(block.blocks), ov.size) == (size, size // 2, size)
    assert not spec.pins


def tied(gain=True):
    parts = {"embed": nn.Embedding(11, 6), "up": linear(6, 5), "down": linear(5, 6), "head": linear(6, 11)}

    def run(m, ids):
        z = m.embed(ids)
        return m.head(root(z + m.down(gelu(m.up(root(z)))), m.gain if gain else None))

    module = Function(run, **parts, **({"gain": vector(6)} if gain else {}))
    module.head.weight = module.embed.weight
    return module, words()


def tied_without_gain():
    return tied(False)


def test_tied_embeddings_are_one_tensor_with_two_roles():
    spec, bare = sound(tied), sound(tied_without_gain)
    assert len({"embed.weight", "head.weight"} & spec.tensor_map.keys()) == 1
    assert of_size(spec, 6)[0].group is Group.SIGNED_PERMUTATION
    assert not spec.absorptions
    assert of_size(bare, 6)[0].group is Group.ORTHOGONAL


def test_a_gain_before_a_tied_head_folds_when_untied():
    spec = sound(tied, untie=True)
    assert of_size(spec, 6)[0].group is Group.ORTHOGONAL
    (fold,) = spec.absorptions
    assert [target.tensor for target in fold.targets] == ["head.weight"]


def test_a_looped_model_has_one_group_over_all_passes():
    def build():
        def run(m, x):
            z = m.enter(x)
            for _ in range(4):
                z = z + m.down(silu(m.gate(root(z, m.gain))) * m.up(root(z, m.gain)))
            return m.leave(root(z))

        parts = {"gate": linear(6, 5), "up": linear(6, 5), "down": linear(5, 6), "gain": vector(6)}
        return Function(run, **parts, enter=linear(7, 6), leave=linear(6, 3)), (torch.randn(4, 7),)

    spec = sound(build)
    groups = sorted((space.size, space.group) for space in spec.spaces if space.size > 1)
    assert groups == [(5, Group.MONOMIAL), (6, Group.ORTHOGONAL)]
    assert [each.source for each in spec.absorptions] == ["gain"]


def test_the_same_module_at_two_places_has_one_group():
    def build():
        def run(m, x):
            return m.leave(torch.tanh(m.shared(gelu(m.shared(m.enter(x))))))

        return Function(run, enter=linear(4, 5), shared=linear(5, 5, True), leave=linear(5, 3)), (torch.randn(4, 4),)

    spec = sound(build)
    (space,) = spec.spaces
    assert (space.group, axes(spec, "shared.weight")) == (Group.PERMUTATION, (space.name, space.name))


def test_a_norm_whose_output_goes_to_the_residual_does_not_fold():
    def build():
        def run(m, x):
            z = root(m.enter(x), m.gain)
            return m.leave(root(z + m.down(gelu(m.up(z)))))

        parts = {"enter": linear(7, 6), "up": linear(6, 5), "down": linear(5, 6), "leave": linear(6, 3)}
        return Function(run, **parts, gain=vector(6)), (torch.randn(4, 7),)

    spec = sound(build)
    assert not spec.absorptions
    assert of_size(spec, 6)[0].group is Group.SIGNED_PERMUTATION


@pytest.mark.parametrize("cap", [False, True])
def test_no_shift_goes_through_a_soft_cap(cap):
    def build():
        def run(m, x):
            z = m.head(x)
            return (5 * torch.tanh(z / 5) if cap else z).softmax(-1)

        return Function(run, head=linear(4, 3, True)), (torch.randn(9, 4),)

    spec = sound(build)
    report = sg.audit(found(build)[0], spec)
    assert report.nullity == sum(shift.dimension for shift in spec.shifts) == (0 if cap else 5)
    assert report.level == "outputs"


def fused(layout):
    """q, k, v of two heads of sizes 3, 3, 4 in one projection."""

    def build():
        def run(m, x):
            z = m.packed(x)
            if layout == "per head":
                q, k, v = heads(z, 2).split([3, 3, 4], -1)
            elif layout == "blocked":
                q, k, v = (heads(part, 2) for part in z.split([6, 6, 8], -1))
            else:
                v, k, q = (heads(part, 2) for part in z.split([8, 6, 6], -1))
            return m.out(joined(attend(q, k, v)))

        return Function(run, packed=linear(9, 20, True), out=linear(8, 9)), (torch.randn(2, 5, 9),)

    return build


@pytest.mark.parametrize("layout", ["per head", "blocked", "blocked backwards"])
def test_the_layout_of_a_fused_projection_comes_from_the_graph(layout):
    spec = sound(fused(layout))
    (head,), (qk,), (ov,) = of_size(spec, 2), of_size(spec, 3), of_size(spec, 4)
    assert (qk.group, ov.group) == (Group.GENERAL_LINEAR, Group.GENERAL_LINEAR)
    q, k, v, h = qk.name, f"{qk.name}'", ov.name, head.name

    def word(q, k):
        return {
            "per head": f"{h} ({q} + {k} + {v})",
            "blocked": f"{h} {q} + {h} {k} + {h} {v}",
            "blocked backwards": f"{h} {v} + {h} {k} + {h} {q}",
        }[layout]

    # which of the two sides is called the dual is free
    assert axes(spec, "packed.weight")[0] in {word(q, k), word(k, q)}
    assert axes(spec, "packed.weight")[0] == axes(spec, "packed.bias")[0]


def test_experts_permute_and_so_do_their_units():
    def build():
        def run(m, x):
            hidden = silu(torch.einsum("bd,efd->bef", x, m.gate)) * torch.einsum("bd,efd->bef", x, m.up)
            weights, chosen = m.router(x).softmax(-1).topk(2, -1)
            share = torch.zeros(x.shape[0], 4).scatter(1, chosen, weights / weights.sum(-1, keepdim=True))
            return torch.einsum("bef,eof,be->bo", hidden, m.down, share)

        parts = {"gate": matrix(4, 5, 6), "up": matrix(4, 5, 6), "down": matrix(4, 7, 5)}
        return Function(run, **parts, router=linear(6, 4)), (torch.randn(8, 6),)

    spec = sound(build)
    (expert,), (hidden,) = of_size(spec, 4), of_size(spec, 5)
    assert (expert.group, hidden.group, hidden.per) == (Group.PERMUTATION, Group.MONOMIAL, (expert.name,))
    assert axes(spec, "router.weight")[0] == axes(spec, "down")[0] == expert.name


def test_the_graph_decides_and_not_the_order_of_modules():
    def build():
        def run(m, x):
            return m.first(relu(m.second(relu(m.third(x)))))

        return Function(run, first=linear(6, 2), second=linear(5, 6, True), third=linear(4, 5, True)), (torch.randn(3, 4),)

    spec = sound(build)
    (inner,), (outer,) = of_size(spec, 5), of_size(spec, 6)
    assert carried(spec, "second.weight") == {inner.name, outer.name}
    assert carried(spec, "second.bias") == {outer.name}
    assert carried(spec, "first.weight") == {outer.name}


def test_two_towers():
    def build():
        def run(m, a, b):
            one = nn.functional.normalize(m.image(gelu(m.eye(a))), dim=-1)
            two = nn.functional.normalize(m.text(gelu(m.ear(b))), dim=-1)
            return one @ two.T * m.heat.exp()

        parts = {"eye": linear(4, 5), "image": linear(5, 3), "ear": linear(6, 7), "text": linear(7, 3), "heat": vector()}
        return Function(run, **parts), (torch.randn(4, 4), torch.randn(4, 6))

    spec = sound(build)
    (shared,) = of_size(spec, 3)
    assert shared.group is Group.ORTHOGONAL
    assert shared.name in carried(spec, "image.weight") & carried(spec, "text.weight")
