"""Small modules with hand-written specs: what the matcher has to handle, without the engine."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, relu, silu

from symgraph.algebra.groups import Group
from symgraph.spec import model
from symgraph.spec.model import Block, Dimension, Identity, Scale, Shift, ShiftTerm, Space, SymmetrySpec, View

State = dict[str, Tensor]


def spec_of(
    module: nn.Module,
    spaces: Iterable[Space],
    axes: dict[str, str],
    shifts: Iterable[Shift] = (),
    scales: dict[str, str] | None = None,
) -> SymmetrySpec:
    """``axes``: for every parameter its words, separated by bars."""
    tensors = tuple(
        model.Tensor(
            name=name,
            shape=tuple(value.shape),
            axes=tuple(word.strip() for word in axes[name].split("|")),
            scale=(scales or {}).get(name, ""),
        )
        for name, value in module.named_parameters()
    )
    return SymmetrySpec(
        identity=Identity(model=type(module).__name__),
        spaces=tuple(spaces),
        tensors=tensors,
        shifts=tuple(shifts),
        dimension=Dimension(by_space={}, by_kind={}, total=0),
    )


def space(name: str, size: int, group: Group, **extra: object) -> Space:
    return Space(name=name, size=size, group=group, role=name, **extra)  # type: ignore[arg-type]


class Perceptron(nn.Module):
    """7 -> 11 -> 9 -> 3 with ReLU."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.three = nn.Linear(7, 11), nn.Linear(11, 9), nn.Linear(9, 3)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.three(relu(self.two(relu(self.one(x)))))
        return result


def perceptron() -> tuple[Perceptron, SymmetrySpec]:
    module = made(Perceptron)
    scale = (Scale(name="s", kind="positive"),)
    spaces = [space("h", 11, Group.POSITIVE_MONOMIAL, scales=scale), space("k", 9, Group.POSITIVE_MONOMIAL, scales=scale)]
    axes = {
        "one.weight": "h[s] | 7",
        "one.bias": "h[s]",
        "two.weight": "k[s] | h[s^-1]",
        "two.bias": "k[s]",
        "three.weight": "3 | k[s^-1]",
        "three.bias": "3",
    }
    return module, spec_of(module, spaces, axes)


class Attention(nn.Module):
    """x[b, t, 10] -> 3 heads of 4 for query and key, 2 for value -> 5; biases on all but the output."""

    def __init__(self) -> None:
        super().__init__()
        self.qk, self.v, self.o = nn.Linear(10, 3 * 8), nn.Linear(10, 3 * 2), nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        q, k = self.qk(x).unflatten(-1, (3, 8)).transpose(-2, -3).chunk(2, -1)
        v = self.v(x).unflatten(-1, (3, 2)).transpose(-2, -3)
        y = torch.softmax(q @ k.mT, -1) @ v
        result: Tensor = self.o(y.transpose(-2, -3).flatten(-2))
        return result


def attention() -> tuple[Attention, SymmetrySpec]:
    """With a packed projection, and the shifts of key and value biases."""
    module = made(Attention)
    spaces = [
        space("head", 3, Group.PERMUTATION),
        space("qk", 4, Group.GENERAL_LINEAR, per=("head",)),
        space("ov", 2, Group.GENERAL_LINEAR, per=("head",)),
    ]
    axes = {
        "qk.weight": "head (qk + qk') | 10",
        "qk.bias": "head (qk + qk')",
        "v.weight": "head ov | 10",
        "v.bias": "head ov",
        "o.weight": "5 | head ov'",
        "o.bias": "5",
    }
    value = View(tensor="v.bias", shape=(3, 2), window=((0, 3), (0, 2)))
    weight = View(tensor="o.weight", shape=(5, 3, 2), window=((0, 5), (0, 3), (0, 2)))
    output = View(tensor="o.bias", shape=(5,), window=((0, 5),))
    key = View(tensor="qk.bias", shape=(3, 8), window=((0, 3), (4, 8)))
    shifts = [
        Shift(name="key", shape=(3, 4), terms=(ShiftTerm(target=key, equation="ab->ab"),), kind="ignored", dimension=12),
        Shift(
            name="value",
            shape=(3, 2),
            terms=(
                ShiftTerm(target=value, equation="ab->ab"),
                ShiftTerm(target=output, equation="ab,cab->c", reads=(weight,), coefficient=-1.0),
            ),
            kind="exchanged",
            dimension=6,
        ),
    ]
    return module, spec_of(module, spaces, axes, shifts)


WIDTH, VOCABULARY, KV, REP, HEAD, VALUE, HIDDEN = 14, 31, 2, 2, 6, 4, 13


class Layer(nn.Module):
    """Grouped queries with rotary planes (i, i + 2) on 4 of 6 coordinates, and a gated feed-forward part."""

    def __init__(self) -> None:
        super().__init__()
        self.q = nn.Linear(WIDTH, KV * REP * HEAD, bias=False)
        self.k = nn.Linear(WIDTH, KV * HEAD, bias=False)
        self.v = nn.Linear(WIDTH, KV * VALUE, bias=False)
        self.o = nn.Linear(KV * REP * VALUE, WIDTH, bias=False)
        self.gate = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.up = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = normed(x)
        q = rotated(self.q(y).unflatten(-1, (KV, REP, HEAD)).permute(0, 2, 3, 1, 4))
        k = rotated(self.k(y).unflatten(-1, (KV, 1, HEAD)).permute(0, 2, 3, 1, 4))
        v = self.v(y).unflatten(-1, (KV, 1, VALUE)).permute(0, 2, 3, 1, 4)
        mixed = torch.softmax(q @ k.mT, -1) @ v
        x = x + self.o(mixed.permute(0, 3, 1, 2, 4).flatten(2))
        y = normed(x)
        result: Tensor = x + self.down(silu(self.gate(y)) * self.up(y))
        return result


def normed(x: Tensor) -> Tensor:
    return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()


def rotated(x: Tensor) -> Tensor:
    angles = torch.arange(x.shape[-2], dtype=x.dtype)[:, None] * torch.tensor([1.0, 0.1], dtype=x.dtype)
    z = torch.complex(x[..., :2], x[..., 2:4]) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat([z.real, z.imag, x[..., 4:]], -1)


class Transformer(nn.Module):
    """Two layers between an embedding and an unembedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(2))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        result: Tensor = self.head(normed(x))
        return result


def transformer() -> tuple[Transformer, SymmetrySpec]:
    module = made(Transformer)
    spaces = [space("residual", WIDTH, Group.ORTHOGONAL)]
    axes = {"embed.weight": f"{VOCABULARY} | residual", "head.weight": f"{VOCABULARY} | residual"}
    blocks = (
        Block(field="complex", coordinates=((0, 2),)),
        Block(field="complex", coordinates=((1, 3),)),
        Block(field="real", coordinates=((4,), (5,))),
    )
    for k in range(2):
        kv, rep, qk, ov, hidden = (f"{name}{k}" for name in ("kv", "rep", "qk", "ov", "hidden"))
        spaces += [
            Space(name=kv, size=KV, group=Group.PERMUTATION, role="kv_head"),
            Space(name=rep, size=REP, group=Group.PERMUTATION, per=(kv,), role="query"),
            Space(name=qk, size=HEAD, group=Group.COMMUTANT, per=(kv,), blocks=blocks, role="qk"),
            Space(name=ov, size=VALUE, group=Group.GENERAL_LINEAR, per=(kv,), role="ov"),
            Space(name=hidden, size=HIDDEN, group=Group.MONOMIAL, scales=(Scale(name="s", kind="real"),), role="hidden"),
        ]
        axes |= {
            f"layers.{k}.q.weight": f"{kv} {rep} {qk}' | residual",
            f"layers.{k}.k.weight": f"{kv} {qk} | residual",
            f"layers.{k}.v.weight": f"{kv} {ov} | residual",
            f"layers.{k}.o.weight": f"residual | {kv} {rep} {ov}'",
            f"layers.{k}.gate.weight": f"{hidden} | residual",
            f"layers.{k}.up.weight": f"{hidden}[s] | residual",
            f"layers.{k}.down.weight": f"residual | {hidden}[s^-1]",
        }
    return module, spec_of(module, spaces, axes)


class Centred(nn.Module):
    """x -> embedding, minus its mean and normalized, erf-like hidden units, and out: ones are fixed, signs are not."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.up = nn.Linear(15, 9, bias=False), nn.Linear(9, 8, bias=False)
        self.down, self.out = nn.Linear(8, 9, bias=False), nn.Linear(9, 6, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        x = x + self.down(torch.tanh(self.up(layer_norm(x, (9,)))))
        result: Tensor = self.out(layer_norm(x, (9,)))
        return result


def centred() -> tuple[Centred, SymmetrySpec]:
    """The sign of the whole stream is a size-one space of its own."""
    module = made(Centred)
    sign = (Scale(name="s", kind="sign"),)
    spaces = [
        space("residual", 9, Group.ORTHOGONAL_FIXING_ONES),
        space("hidden", 8, Group.SIGNED_PERMUTATION, scales=sign),
        space("whole", 1, Group.DIAGONAL, scales=sign),
    ]
    axes = {
        "embed.weight": "residual | 15",
        "up.weight": "hidden[s] | residual",
        "down.weight": "residual | hidden[s]",
        "out.weight": "6 | residual",
    }
    return module, spec_of(module, spaces, axes, scales=dict.fromkeys(axes, "whole[s]"))


class Chain(nn.Module):
    """7 -> 3 -> 8 -> tanh 10 -> 9 -> 2: one linear space is wider than what enters it, one than what it is read by."""

    def __init__(self) -> None:
        super().__init__()
        widths = (7, 3, 8, 10, 9, 2)
        self.layers = nn.ModuleList(nn.Linear(a, b, bias=False) for a, b in pairwise(widths))

    def forward(self, x: Tensor) -> Tensor:
        for k, layer in enumerate(self.layers):
            x = torch.tanh(layer(x)) if k == 2 else layer(x)
        return x


def chain() -> tuple[Chain, SymmetrySpec]:
    module = made(Chain)
    spaces = [space(name, size, Group.GENERAL_LINEAR) for name, size in (("small", 3), ("wide", 8), ("last", 9))]
    spaces.append(space("hidden", 10, Group.SIGNED_PERMUTATION, scales=(Scale(name="s", kind="sign"),)))
    words = (("small", "7"), ("wide", "small'"), ("hidden[s]", "wide'"), ("last", "hidden[s]"), ("2", "last'"))
    return module, spec_of(module, spaces, {f"layers.{k}.weight": " | ".join(pair) for k, pair in enumerate(words)})


class Packed(nn.Module):
    """Two gains before one packed projection: a scale of size one for every coordinate, on a part of an axis."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Parameter(torch.empty(5)), nn.Parameter(torch.empty(5))
        self.packed = nn.Linear(5, 6, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        parts = zip((self.first, self.second), self.packed.weight.chunk(2), strict=True)
        return torch.cat([(x * gain) @ weight.mT for gain, weight in parts], -1)


def packed() -> tuple[Packed, SymmetrySpec]:
    module = made(Packed)
    scale = (Scale(name="s", kind="real"),)
    spaces = [space("x", 5, Group.TRIVIAL)]
    spaces += [space(name, 1, Group.DIAGONAL, per=("x",), scales=scale) for name in ("one", "two")]
    axes = {"first": "x one[s]", "second": "x two[s]", "packed.weight": "one[s^-1] 3 + two[s^-1] 3 | x"}
    return module, spec_of(module, spaces, axes)


class Gates(nn.Module):
    """Three heads of five gated values: a head has a sign, and so has every value in it."""

    def __init__(self) -> None:
        super().__init__()
        self.value, self.gate, self.out = nn.Linear(7, 15, bias=False), nn.Linear(7, 15), nn.Linear(15, 4, bias=False)
        self.gain = nn.Parameter(torch.empty(15))

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.out(self.gain * self.value(x) * torch.sigmoid(self.gate(x)))
        return result


def gates() -> tuple[Gates, SymmetrySpec]:
    module = made(Gates)
    sign, scale = Scale(name="s", kind="sign"), Scale(name="t", kind="real")
    spaces = [
        space("head", 3, Group.SIGNED_PERMUTATION, scales=(sign,)),
        space("inner", 5, Group.MONOMIAL, per=("head",), scales=(scale,)),
    ]
    axes = {
        "value.weight": "head[s] inner | 7",
        "gate.weight": "head inner | 7",
        "gate.bias": "head inner",
        "gain": "head inner[t]",
        "out.weight": "4 | head[s] inner[t^-1]",
    }
    return module, spec_of(module, spaces, axes)


class Scores(nn.Module):
    """Four products of a query and a key of five coordinates: every one has a sign, all share one basis."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k = nn.Linear(6, 20, bias=False), nn.Linear(6, 20, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k = self.q(x).unflatten(-1, (4, 5)), self.k(x).unflatten(-1, (4, 5))
        return torch.tanh((q * k).sum(-1))


def scores() -> tuple[Scores, SymmetrySpec]:
    module = made(Scores)
    sign = (Scale(name="s", kind="sign"),)
    spaces = [space("each", 4, Group.DIAGONAL, scales=sign), space("basis", 5, Group.GENERAL_LINEAR)]
    return module, spec_of(module, spaces, {"q.weight": "each[s] basis | 6", "k.weight": "each[s] basis' | 6"})


def made(kind: type[nn.Module], seed: int = 0) -> nn.Module:
    """A module in float64 with weights of its own for every seed."""
    module = kind().double().eval().requires_grad_(False)
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        scale = 1.5 * parameter.shape[-1] ** -0.5 if parameter.ndim > 1 else 0.5
        parameter.copy_(scale * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return module


def state(kind: type[nn.Module], seed: int) -> State:
    return {name: value.clone() for name, value in made(kind, seed).state_dict().items()}


@cache
def inputs(name: str) -> Tensor:
    generator = torch.Generator().manual_seed(7)
    if name == "transformer":
        return torch.randint(VOCABULARY, (4, 5), generator=generator)
    shape = {
        "perceptron": (16, 7),
        "chain": (16, 7),
        "packed": (16, 5),
        "gates": (16, 7),
        "scores": (16, 6),
        "attention": (3, 6, 10),
        "centred": (16, 15),
    }[name]
    return torch.randn(shape, generator=generator, dtype=torch.float64)


SAMPLES = {
    "perceptron": perceptron,
    "attention": attention,
    "transformer": transformer,
    "centred": centred,
    "chain": chain,
    "packed": packed,
    "gates": gates,
    "scores": scores,
}
