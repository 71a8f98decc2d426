"""Specs that are wrong, each in one place: (model, what is wrong) and the change that makes it so."""

from __future__ import annotations

from symgraph.algebra.groups import Group
from symgraph.spec.model import Block, Scale, Shift, ShiftTerm, Space, View


def space(spec, name, **changes):
    assert name in spec.space_map
    return spec.model_copy(update={"spaces": tuple(each.model_copy(update=changes) if each.name == name else each
                                                   for each in spec.spaces)})  # fmt: skip


def tensor(spec, name, *axes, **changes):
    assert name in spec.tensor_map
    if axes:
        assert axes != spec.tensor_map[name].axes
        changes["axes"] = axes
    return spec.model_copy(update={"tensors": tuple(each.model_copy(update=changes) if each.name == name else each
                                                    for each in spec.tensors)})  # fmt: skip


def added(spec, extra):
    return spec.model_copy(update={"spaces": (*spec.spaces, extra)})


def absorbed(spec, source, **changes):
    (found,) = [each for each in spec.absorptions if each.source == source]
    targets = changes.pop("targets", lambda all_: all_)(found.targets)
    altered = found.model_copy(update={**changes, "targets": targets})
    return spec.model_copy(update={"absorptions": tuple(altered if each is found else each for each in spec.absorptions)})


def shifted(spec, name, change):
    """``change`` maps the terms of one shift."""
    (found,) = [each for each in spec.shifts if each.name == name]
    altered = found.model_copy(update={"terms": tuple(change(found.terms))})
    return spec.model_copy(update={"shifts": tuple(altered if each is found else each for each in spec.shifts)})


def another_shift(spec, name, shape, equation, window):
    view = View(tensor=name, shape=spec.tensor_map[name].shape, window=window)
    size = 1
    for each in shape:
        size *= each
    extra = Shift(name="wrong", shape=shape, terms=(ShiftTerm(target=view, equation=equation),), kind="ignored", dimension=size)
    return spec.model_copy(update={"shifts": (*spec.shifts, extra)})


def times(factor):
    return lambda terms: [*terms[:-1], terms[-1].model_copy(update={"coefficient": factor * terms[-1].coefficient})]


def planes(*pairs):
    return tuple(Block(field="complex", coordinates=(pair,)) for pair in pairs)


SIGN = (Scale(name="sign", kind="sign"),)
REAL = (Scale(name="scale", kind="real"),)
LINEAR, ORTHOGONAL, MONOMIAL = Group.GENERAL_LINEAR, Group.ORTHOGONAL, Group.MONOMIAL

MUTATIONS = {
    # groups that are too large
    ("attention", "general linear on an RMS stream"): lambda s: space(s, "inner", group=LINEAR),
    ("attention", "no commutant under rotary"): lambda s: space(s, "qk", group=LINEAR, blocks=()),
    ("attention", "interleaved planes"): lambda s: space(s, "qk", blocks=planes((0, 1), (2, 3))),
    ("attention", "planes of two frequencies as one block"): lambda s: space(
        s, "qk", blocks=(Block(field="complex", coordinates=((0, 2), (1, 3))),)),
    ("attention", "planes as real blocks"): lambda s: space(
        s, "qk", blocks=tuple(Block(field="real", coordinates=((i,),)) for i in range(4))),
    ("attention", "a rotation of key heads"): lambda s: space(s, "kv_head", group=ORTHOGONAL),
    ("attention", "a rotation of query heads"): lambda s: space(s, "query", group=ORTHOGONAL),
    ("centred", "the ones vector moves"): lambda s: space(s, "inner", group=ORTHOGONAL),
    ("centred", "general linear under a norm"): lambda s: space(s, "inner", group=LINEAR),
    ("rectified", "a negative scale through ReLU"): lambda s: space(s, "hidden", group=MONOMIAL, scales=REAL),
    ("rectified", "a scale through tanh"): lambda s: space(
        s, "hidden_3", group=MONOMIAL, scales=(Scale(name="sign", kind="real"),)),
    ("experts", "a rotation through GELU"): lambda s: space(s, "hidden", group=ORTHOGONAL),
    ("experts", "a rotation of experts"): lambda s: space(s, "expert", group=ORTHOGONAL),
    ("experts", "a sign through GELU"): lambda s: tensor(tensor(
        space(s, "hidden", group=Group.SIGNED_PERMUTATION, scales=SIGN), "up", "expert", "hidden[sign]", "5"),
        "down", "expert", "inner", "hidden[sign]"),
    ("images", "BatchNorm under a rotation"): lambda s: space(s, "hidden", group=ORTHOGONAL, scales=()),
    # tensors that are typed wrongly
    ("attention", "the key moves as the query does"): lambda s: tensor(s, "key.weight", "kv_head qk", "inner"),
    ("attention", "query heads split the other way"): lambda s: tensor(s, "query.weight", "query kv_head qk", "inner"),
    ("attention", "output heads split the other way"): lambda s: tensor(s, "out.weight", "inner", "query kv_head ov'"),
    ("attention", "sizes of the output split the other way"): lambda s: tensor(s, "out.weight", "inner", "kv_head ov' query"),
    ("attention", "the embedding stays"): lambda s: tensor(s, "embed.weight", "11", "6"),
    ("attention", "the unembedding stays"): lambda s: tensor(s, "head.weight", "11", "6"),
    ("attention", "the output of the attention stays"): lambda s: tensor(s, "out.weight", "6", "kv_head query ov'"),
    ("attention", "the vocabulary moves"): lambda s: tensor(
        added(s, Space(name="word", size=11, group="permutation")), "head.weight", "word", "inner"),
    ("attention", "axes swapped"): lambda s: tensor(s, "embed.weight", "inner", "11"),
    ("centred", "query and key swapped in the weight alone"): lambda s: tensor(
        s, "packed.weight", "head (packed.qk' + packed.qk + ov)", "inner"),
    ("centred", "blocks one after another where they are interleaved"): lambda s: tensor(
        s, "packed.weight", "(head packed.qk + head packed.qk' + head ov)", "inner"),
    ("centred", "the packed bias stays"): lambda s: tensor(s, "packed.bias", "head 10"),
    ("centred", "a bias in the stream stays"): lambda s: tensor(s, "out.bias", "6"),
    ("centred", "a tensor without the sign"): lambda s: tensor(s, "first.weight", scale=""),
    ("centred", "the output of the values moves as they do"): lambda s: tensor(s, "out.weight", "inner", "head ov"),
    ("rectified", "a bias is not scaled"): lambda s: tensor(s, "a.bias", "hidden"),
    ("rectified", "a wrong weight"): lambda s: tensor(s, "up.weight", "hidden_2[scale^2]", "hidden[scale^-1]"),
    ("rectified", "the gate is scaled"): lambda s: tensor(tensor(tensor(tensor(
        s, "gate.weight", "hidden_2[scale]", "hidden[scale^-1]"), "gate.bias", "hidden_2[scale]"),
        "up.weight", "hidden_2", "hidden[scale^-1]"), "up.bias", "hidden_2"),
    ("rectified", "the sign is not undone"): lambda s: tensor(s, "c.weight", "3", "hidden_3"),
    ("rectified", "a reader stays"): lambda s: tensor(s, "c.weight", "3", "8"),
    ("rectified", "two branches of a product move apart"): lambda s: tensor(
        added(s, Space(name="other", size=6, group="permutation")), "up.weight", "other", "hidden[scale^-1]"),
    ("rectified", "units of another layer"): lambda s: tensor(
        added(s, Space(name="other", size=8, group="permutation")), "c.weight", "3", "other"),
    ("experts", "the bias of the router stays"): lambda s: tensor(s, "router.bias", "3"),
    ("experts", "both sides of a pair move alike"): lambda s: tensor(s, "high.weight", "5", "inner_2"),
    ("experts", "what experts write stays"): lambda s: tensor(s, "down", "expert", "6", "hidden"),
    ("images", "statistics left behind"): lambda s: tensor(s, "norm.running_mean", "5"),
    ("images", "variance left behind"): lambda s: tensor(s, "norm.running_var", "5"),
    ("images", "a scale that is not undone"): lambda s: tensor(s, "two.weight", "3", "hidden[scale, scale_2^-1]", "2", "2"),
    ("images", "a mean that is not scaled"): lambda s: tensor(s, "norm.running_mean", "hidden[sign]"),
    # normal forms
    ("attention", "1 + w folded as if it were w"): lambda s: absorbed(s, "gain", offset=0.0),
    ("attention", "a reader of the norm is forgotten"): lambda s: absorbed(s, "gain", targets=lambda all_: all_[:-1]),
    ("attention", "divided instead of multiplied"): lambda s: absorbed(
        s, "gain", targets=lambda all_: (all_[0].model_copy(update={"power": -1}), *all_[1:])),
    ("attention", "the gain twice into one reader"): lambda s: absorbed(s, "gain", targets=lambda all_: (*all_, all_[0])),
    ("attention", "the gain left where it is"): lambda s: s.model_copy(update={"absorptions": ()}),
    ("centred", "the bias of the norm is not divided"): lambda s: absorbed(
        s, "norm.weight", targets=lambda all_: [each for each in all_ if each.tensor != "norm.bias"]),
    # translations
    ("attention", "centring where nothing subtracts the mean"): lambda s: another_shift(
        s, "embed.weight", (11, 1), "aT->aT", ((0, 11), (0, 6))),
    ("centred", "a query bias is ignored"): lambda s: another_shift(s, "packed.bias", (2, 3), "ab->ab", ((0, 2), (0, 3))),
    ("centred", "a sign in an exchange"): lambda s: shifted(s, "packed.bias.exchanged", times(-1.0)),
    ("centred", "half of an exchange"): lambda s: shifted(s, "norm.bias.exchanged", lambda terms: terms[:1]),
    ("centred", "a factor in an exchange"): lambda s: shifted(s, "close.bias.exchanged", times(0.5)),
    ("centred", "a column that is read"): lambda s: another_shift(s, "last.weight", (4, 6), "ab->ab", ((0, 4), (0, 6))),
    ("experts", "one expert's router alone"): lambda s: another_shift(s, "router.weight", (1, 5), "ab->ab", ((0, 1), (0, 5))),
    ("rectified", "a bias before ReLU"): lambda s: another_shift(s, "a.bias", (7,), "a->a", ((0, 7),)),
}  # fmt: skip

BROKEN = {
    "an unknown space": lambda s: tensor(s, "c.weight", "3", "nobody"),
    "sizes that do not fit": lambda s: tensor(s, "c.weight", "3", "hidden_2"),
    "more axes than the tensor has": lambda s: tensor(s, "c.bias", "3", "3"),
    "an axis forgotten": lambda s: tensor(s, "c.weight", "3"),
    "a tensor typed twice": lambda s: s.model_copy(update={"tensors": (*s.tensors, s.tensors[0])}),
    "a tensor forgotten": lambda s: s.model_copy(update={"tensors": s.tensors[1:]}),
    "a tensor of another model": lambda s: s.model_copy(
        update={"tensors": (*s.tensors[:-1], s.tensors[-1].model_copy(update={"name": "d.bias"}))}
    ),
    "another shape": lambda s: tensor(s, "c.bias", "4", shape=(4,)),
    "a scale that the space has not": lambda s: tensor(s, "c.weight", "3", "hidden_3[scale]"),
    "a scale of the wrong kind": lambda s: space(s, "hidden_3", scales=REAL),
    "a dependence that the tensor does not carry": lambda s: space(s, "hidden_3", per=("hidden",)),
    "a space that depends on itself": lambda s: space(s, "hidden_3", per=("hidden_3",)),
    "a space twice": lambda s: added(s, s.spaces[0]),
}
