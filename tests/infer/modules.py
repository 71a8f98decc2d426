"""Parts for small modules written in the tests."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

import symgraph as sg
from symgraph.spec.transform import words_of

Build = Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]


class Function(nn.Module):
    """A module from a function of itself and its inputs."""

    def __init__(self, function: Callable[..., Tensor], **parts: nn.Module | nn.Parameter) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *args: Tensor) -> Any:
        return self.function(self, *args)


def vector(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.rand(shape) + 0.5)


def matrix(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(shape) / shape[-1] ** 0.5)


def linear(inner: int, outer: int, bias: bool = False) -> nn.Linear:
    return nn.Linear(inner, outer, bias)


def root(x: Tensor, gain: Tensor | None = None) -> Tensor:
    """RMS norm without an epsilon."""
    return nn.functional.rms_norm(x, (x.shape[-1],), gain, 0.0)


def mean(x: Tensor, gain: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
    """LayerNorm without an epsilon."""
    return nn.functional.layer_norm(x, (x.shape[-1],), gain, bias, 0.0)


def heads(x: Tensor, count: int) -> Tensor:
    return x.unflatten(-1, (count, -1)).transpose(-3, -2)


def joined(x: Tensor) -> Tensor:
    return x.transpose(-3, -2).flatten(-2)


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).softmax(-1) @ v


def turn(x: Tensor, interleaved: bool = False, frequencies: tuple[float, ...] = (1.0, 0.3)) -> Tensor:
    """Rotary: planes (2k, 2k + 1), or (k, k + half)."""
    angle = torch.arange(x.shape[-2])[:, None] * torch.tensor(frequencies)
    cos, sin = angle.cos(), angle.sin()
    if interleaved:
        a, b = x[..., ::2], x[..., 1::2]
        return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


@cache
def found(build: Build, untie: bool = False) -> tuple[Any, Any]:
    """The traced graph and the discovered spec of a module with its example."""
    torch.manual_seed(0)
    module, args = build()
    graph = sg.trace(module.eval(), args=args)
    return graph, sg.discover(graph, untie=untie)


def sound(build: Build, untie: bool = False) -> Any:
    """The spec, verified."""
    graph, spec = found(build, untie)
    report = sg.verify(graph, spec)
    assert report.passed, report.summary
    return spec


def axes(spec, name):
    return spec.tensor_map[name].axes


def carried(spec, tensor):
    """Names of the spaces on a tensor."""
    return {factor.space for word in words_of(spec.tensor_map[tensor]) for factor in word.factors()}


def of_size(spec, size):
    return [space for space in spec.spaces if space.size == size]
