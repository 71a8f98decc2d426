"""Tiny models with specs written by hand, for the tests of this floor."""

import torch

from symgraph.spec.model import (
    Absorption,
    Dimension,
    Identity,
    Scale,
    Shift,
    ShiftTerm,
    Space,
    SymmetrySpec,
    Target,
    Tensor,
    View,
)


def document(spaces, tensors, **sections):
    dimension = Dimension(by_space={}, by_kind={}, total=0)
    return SymmetrySpec(
        identity=Identity(model="by hand"),
        spaces=tuple(spaces),
        tensors=tuple(tensors),
        dimension=dimension,
        **sections,
    )


def whole(name, *shape):
    return View(tensor=name, shape=shape, window=tuple((0, size) for size in shape))


def relu_mlp():
    """y = W2 relu(W1 x + b1) + b2 with five hidden units."""
    hidden = Space(name="hidden", size=5, group="positive_monomial", scales=(Scale(name="scale", kind="positive"),))
    tensors = [
        Tensor(name="W1", shape=(5, 3), axes=("hidden[scale]", "3")),
        Tensor(name="b1", shape=(5,), axes=("hidden[scale]",)),
        Tensor(name="W2", shape=(2, 5), axes=("2", "hidden[scale^-1]")),
        Tensor(name="b2", shape=(2,), axes=("2",)),
    ]

    def run(w, x):
        return torch.relu(x @ w["W1"].T + w["b1"]) @ w["W2"].T + w["b2"]

    return document([hidden], tensors), run, (7, 3)


def gained_linear():
    """y = W2 (W1 (g + 1) x + b1) + b2 : a gain to absorb, GL on the middle, a shift of its bias."""
    tensors = [
        Tensor(name="g", shape=(3,), axes=("3",)),
        Tensor(name="W1", shape=(2, 3), axes=("mid", "3")),
        Tensor(name="b1", shape=(2,), axes=("mid",)),
        Tensor(name="W2", shape=(4, 2), axes=("4", "mid'"), aliases=("head.W2",)),
        Tensor(name="b2", shape=(4,), axes=("4",)),
    ]
    gain = Absorption(source="g", direction="readers", offset=1.0, targets=(Target(tensor="W1", axis=1, power=1),))
    read = ShiftTerm(target=whole("b2", 4), equation="i,oi->o", reads=(whole("W2", 4, 2),), coefficient=-1.0)
    bias = Shift(
        name="bias",
        shape=(2,),
        terms=(ShiftTerm(target=whole("b1", 2), equation="i->i"), read),
        kind="bias",
        dimension=2,
    )
    mid = Space(name="mid", size=2, group="general_linear")

    def run(w, x):
        return ((x * (w["g"] + 1)) @ w["W1"].T + w["b1"]) @ w["W2"].T + w["b2"]

    return document([mid], tensors, absorptions=(gain,), shifts=(bias,)), run, (7, 3)


def grouped_attention(fused=False, groups=2, share=2, qk=3, ov=2, width=5):
    """Softmax attention of ``groups`` key heads with ``share`` queries each; optionally one fused q k v matrix."""
    spaces = [
        Space(name="kv", size=groups, group="permutation"),
        Space(name="query", size=share, group="permutation", per=("kv",)),
        Space(name="qk", size=qk, group="general_linear", per=("kv",)),
        Space(name="ov", size=ov, group="general_linear", per=("kv",)),
    ]
    rows = {"q": ("kv query qk'", share * qk), "k": ("kv qk", qk), "v": ("kv ov", ov)}
    if fused:
        rows = {"qkv": ("kv (query qk' + qk + ov)", share * qk + qk + ov)}
    tensors = [
        Tensor(name=name, shape=(groups * size, width), axes=(word, str(width))) for name, (word, size) in rows.items()
    ]
    tensors.append(Tensor(name="o", shape=(width, groups * share * ov), axes=(str(width), "kv query ov'")))

    def run(w, x):
        if fused:
            parts = (x @ w["qkv"].T).unflatten(-1, (groups, -1)).split([share * qk, qk, ov], -1)
            q, k, v = parts[0].unflatten(-1, (share, qk)), parts[1], parts[2]
        else:
            q = (x @ w["q"].T).unflatten(-1, (groups, share, qk))
            k, v = (x @ w["k"].T).unflatten(-1, (groups, qk)), (x @ w["v"].T).unflatten(-1, (groups, ov))
        weights = torch.einsum("bigsd,bjgd->bgsij", q, k).softmax(-1)
        mixed = torch.einsum("bgsij,bjgd->bigsd", weights, v)
        return mixed.flatten(2) @ w["o"].T

    return document(spaces, tensors), run, (4, 6, width)


def experts(count=3, hidden=4, width=2):
    """sum_e gate_e(x) W2_e relu(W1_e x): hidden units that depend on the expert."""
    scales = (Scale(name="s", kind="positive"),)
    spaces = [
        Space(name="expert", size=count, group="permutation"),
        Space(name="hidden", size=hidden, group="positive_monomial", per=("expert",), scales=scales),
    ]
    tensors = [
        Tensor(name="router", shape=(count, width), axes=("expert", str(width))),
        Tensor(name="W1", shape=(count, hidden, width), axes=("expert", "hidden[s]", str(width))),
        Tensor(name="W2", shape=(width, count * hidden), axes=(str(width), "expert hidden[s^-1]")),
    ]

    def run(w, x):
        gate = (x @ w["router"].T).softmax(-1)
        inner = torch.relu(torch.einsum("bi,ehi->beh", x, w["W1"])) * gate[..., None]
        return inner.flatten(1) @ w["W2"].T

    common = Shift(
        name="router",
        shape=(1, width),
        terms=(ShiftTerm(target=whole("router", count, width), equation="ei->ei"),),
        kind="router",
        dimension=width,
    )
    return document(spaces, tensors, shifts=(common,)), run, (9, width)


MODELS = {
    "relu_mlp": relu_mlp,
    "gained_linear": gained_linear,
    "grouped_attention": grouped_attention,
    "fused_attention": lambda: grouped_attention(fused=True),
    "experts": experts,
}


def weights(spec, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    state = {}
    for tensor in spec.tensors:
        value = torch.randn(tensor.shape, generator=generator, dtype=torch.float64).to(dtype)
        state |= dict.fromkeys((tensor.name, *tensor.aliases), value)
    return state
