"""Scales and signs: every generator once, and on as few tensors as can be."""

from __future__ import annotations

import torch
from torch import nn

import symgraph as sg
from symgraph.spec.codec import dumps


class PostNorm(nn.Module):
    """A stream that is normalized after every layer: each gain can flip all that follows it."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(6, 5), nn.GELU(), nn.Linear(5, 6)) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(6) for _ in range(depth))
        self.head = nn.Linear(6, 4)

    def forward(self, x):
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = norm(x + layer(x))
        return self.head(x)


def flips(depth):
    spec = sg.discover(PostNorm(depth), kwargs={"x": torch.randn(3, 6)})
    names = {space.name for space in spec.spaces if any(scale.kind == "sign" for scale in space.scales)}
    factors = [factor for tensor in spec.tensors for factor in tensor.scale.split() if factor.split("[")[0] in names]
    return spec, len(names), len(factors)


def test_a_flip_between_two_norms_is_written_on_what_lies_between():
    sizes = {depth: flips(depth)[1:] for depth in (3, 5, 7)}
    assert sizes[5][0] - sizes[3][0] == sizes[7][0] - sizes[5][0]
    assert sizes[5][1] - sizes[3][1] == sizes[7][1] - sizes[5][1], "the flips of a layer grow with the depth"


def test_a_deep_stack_is_written_as_loops():
    short, deep = (len(dumps(flips(depth)[0])) for depth in (12, 40))
    assert deep - short < 100
