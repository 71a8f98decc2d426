"""Small models with symmetries of every kind, for specs that are wrong on purpose."""

from __future__ import annotations

from functools import cache

import torch
from torch import nn

import symgraph as sg


class Attention(nn.Module):
    """Two key heads under four query heads of size 4, half-split rotary on all of it, on a stream of 6 with a gain."""

    def __init__(self):
        super().__init__()
        self.embed, self.gain, self.head = nn.Embedding(11, 6), nn.Parameter(torch.rand(6) - 0.5), nn.Linear(6, 11, False)
        self.query, self.key = nn.Linear(6, 16, False), nn.Linear(6, 8, False)
        self.value, self.out = nn.Linear(6, 10, False), nn.Linear(20, 6, False)

    @staticmethod
    def turn(z):
        angle = torch.arange(z.shape[-2])[:, None] * torch.tensor([1.0, 0.3])
        cos, sin = angle.cos().repeat(1, 2), angle.sin().repeat(1, 2)
        return z * cos + torch.cat([-z[..., 2:], z[..., :2]], -1) * sin

    def forward(self, ids):
        stream = self.embed(ids)
        z = nn.functional.rms_norm(stream, (6,), None, 1e-6) * (1 + self.gain)
        q, k, v = (f(z).unflatten(-1, (n, -1)).transpose(1, 2) for f, n in ((self.query, 4), (self.key, 2), (self.value, 2)))
        mixed = nn.functional.scaled_dot_product_attention(self.turn(q), self.turn(k), v, is_causal=True, enable_gqa=True)
        stream = stream + self.out(mixed.transpose(1, 2).flatten(2))
        return self.head(nn.functional.rms_norm(stream, (6,), None, 1e-6))


class Centred(nn.Module):
    """A stream of 6 behind a LayerNorm, a packed [head, (q k v)] projection with a bias, no positions."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(5, 6), nn.LayerNorm(6), nn.Linear(6, 4)
        self.packed, self.out = nn.Linear(6, 2 * (3 + 3 + 4)), nn.Linear(8, 6)
        self.close = nn.LayerNorm(6)

    def forward(self, x):
        stream = self.first(x)
        q, k, v = self.packed(self.norm(stream)).unflatten(-1, (2, 10)).transpose(1, 2).split([3, 3, 4], -1)
        mixed = (q @ k.transpose(-1, -2)).softmax(-1) @ v
        return self.last(self.close(stream + self.out(mixed.transpose(1, 2).flatten(2))))


class Rectified(nn.Module):
    """ReLU, then a gated layer, then tanh: positive, real and sign scales; biases throughout."""

    def __init__(self):
        super().__init__()
        self.a, self.gate, self.up, self.b, self.c = (
            nn.Linear(5, 7), nn.Linear(7, 6), nn.Linear(7, 6), nn.Linear(6, 8), nn.Linear(8, 3))  # fmt: skip

    def forward(self, x):
        z = torch.relu(self.a(x))
        return self.c(torch.tanh(self.b(nn.functional.silu(self.gate(z)) * self.up(z))))


class Experts(nn.Module):
    """Three experts with four hidden units each, a router, and a pair of linear maps without anything between."""

    def __init__(self):
        super().__init__()
        self.router, self.up, self.down = (
            nn.Linear(5, 3),
            nn.Parameter(torch.randn(3, 4, 5)),
            nn.Parameter(torch.randn(3, 6, 4)),
        )
        self.low, self.high = nn.Linear(6, 2, False), nn.Linear(2, 5, False)

    def forward(self, x):
        hidden = nn.functional.gelu(torch.einsum("bd,efd->bef", x, self.up))
        return self.high(self.low(torch.einsum("bef,eof,be->bo", hidden, self.down, self.router(x).softmax(-1))))


class Images(nn.Module):
    """A convolution, BatchNorm in eval mode, ReLU, a convolution."""

    def __init__(self):
        super().__init__()
        self.one, self.norm, self.two = nn.Conv2d(2, 5, 3), nn.BatchNorm2d(5), nn.Conv2d(5, 3, 2)

    def forward(self, x):
        return self.two(torch.relu(self.norm(self.one(x))))


MODELS = {
    "attention": (Attention, lambda: torch.randint(0, 11, (2, 5))),
    "centred": (Centred, lambda: torch.randn(2, 5, 5)),
    "rectified": (Rectified, lambda: torch.randn(4, 5)),
    "experts": (Experts, lambda: torch.randn(6, 5)),
    "images": (Images, lambda: torch.randn(2, 2, 6, 6)),
}


@cache
def model(name):
    """The traced graph and the discovered spec."""
    build, example = MODELS[name]
    torch.manual_seed(0)
    graph = sg.trace(build().eval(), args=(example(),))
    return graph, sg.discover(graph)
