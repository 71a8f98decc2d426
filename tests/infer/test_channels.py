"""Channels: what people ran into with convolutional networks, each as a small module with the same trait."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from symgraph.algebra.groups import Group
from tests.infer.modules import Function, axes, carried, of_size, sound

relu, gelu = torch.relu, nn.functional.gelu


class Bottleneck(nn.Module):
    """Convolutions with BatchNorm and a shortcut that changes the number of channels."""

    def __init__(self):
        super().__init__()
        self.c1, self.c2, self.c3 = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 5, 3, padding=1), nn.Conv2d(5, 7, 1)
        self.short, self.head = nn.Conv2d(3, 7, 1), nn.Linear(7, 2)
        self.n1, self.n2, self.n3, self.n4 = (nn.BatchNorm2d(size) for size in (4, 5, 7, 7))

    def forward(self, x):
        z = self.n3(self.c3(relu(self.n2(self.c2(relu(self.n1(self.c1(x))))))))
        return self.head(relu(z + self.n4(self.short(x))).mean((2, 3)))


def bottleneck():
    return Bottleneck(), (torch.randn(2, 3, 6, 6),)


def test_every_axis_of_every_parameter_is_typed_once():
    spec = sound(bottleneck)
    state = {name: value for name, value in Bottleneck().state_dict().items() if value.is_floating_point()}
    assert sorted(tensor.name for tensor in spec.tensors) == sorted(state)
    for tensor in spec.tensors:
        assert tuple(word.size(spec.sizes) for word in tensor.words) == tensor.shape == tuple(state[tensor.name].shape)


def test_statistics_move_with_their_channels():
    spec = sound(bottleneck)
    for number, size in ((1, 4), (2, 5), (3, 7), (4, 7)):
        (space,) = of_size(spec, size)
        for name in ("weight", "bias", "running_mean", "running_var"):
            assert carried(spec, f"n{number}.{name}") == {space.name}
    assert all(tensor.kind == "buffer" for tensor in spec.tensors if "running" in tensor.name)


def test_skips_by_concatenation():
    def build():
        def run(m, x):
            a = gelu(m.one(x))
            b = gelu(m.two(nn.functional.avg_pool2d(a, 2)))
            return m.three(torch.cat([a, nn.functional.interpolate(b, scale_factor=2.0)], 1))

        parts = {"one": nn.Conv2d(2, 4, 3, padding=1), "two": nn.Conv2d(4, 5, 3, padding=1), "three": nn.Conv2d(9, 3, 1)}
        return Function(run, **parts), (torch.randn(2, 2, 4, 4),)

    spec = sound(build)
    (a,), (b,) = of_size(spec, 4), of_size(spec, 5)
    assert axes(spec, "three.weight")[1] == f"{a.name} + {b.name}"
    assert axes(spec, "two.weight")[:2] == (b.name, a.name)


def test_dense_connections():
    def build(depth=12):
        def run(m, x):
            for layer in m.layers:
                x = torch.cat([x, gelu(layer(x))], 1)
            return m.last(x)

        layers = nn.ModuleList(nn.Conv2d(2 + 3 * index, 3, 1) for index in range(depth))
        return Function(run, layers=layers, last=nn.Conv2d(2 + 3 * depth, 2, 1)), (torch.randn(2, 2, 3, 3),)

    spec = sound(build)
    assert len(spec.spaces) == 12
    assert {space.group for space in spec.spaces} == {Group.PERMUTATION}
    assert axes(spec, "last.weight")[1].count("+") == 12


def grouped(groups, shuffled=False):
    """A convolution in groups between two of width one, the channels shuffled before the last."""

    def build():
        def run(m, x):
            z = gelu(m.two(gelu(m.one(x))))
            return m.three(z.unflatten(1, (2, 3)).transpose(1, 2).flatten(1, 2) if shuffled else z)

        parts = {"one": nn.Conv2d(2, 6, 1), "two": nn.Conv2d(6, 6, 3, groups=groups), "three": nn.Conv2d(6, 3, 1)}
        return Function(run, **parts), (torch.randn(2, 2, 5, 5),)

    return build


def test_depthwise_channels():
    spec = sound(grouped(6))
    (space,) = spec.spaces
    assert (space.size, space.group) == (6, Group.PERMUTATION)
    assert axes(spec, "two.weight")[0] == axes(spec, "one.weight")[0] == axes(spec, "three.weight")[1] == space.name


@pytest.mark.parametrize("shuffled", [False, True])
def test_grouped_and_shuffled_channels(shuffled):
    spec = sound(grouped(2, shuffled))
    (group,), inside = of_size(spec, 2), of_size(spec, 3)
    assert len(inside) == 2
    assert all(space.per == (group.name,) and space.group is Group.PERMUTATION for space in inside)
    first, second = axes(spec, "one.weight")[0], axes(spec, "two.weight")[0]
    assert {first, second} == {f"{group.name} {space.name}" for space in inside}
    assert axes(spec, "two.weight")[1] == first.split()[1]
    assert axes(spec, "three.weight")[1].split() == second.split()[:: -1 if shuffled else 1]
