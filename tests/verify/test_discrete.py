"""Permutations and signs that a spec lost are found; of complete specs, none."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import symgraph as sg
from symgraph.algebra.groups import Group
from symgraph.spec.operations import canonicalize
from symgraph.verify.discrete import Span, discrete
from symgraph.verify.places import places
from symgraph.verify.preservation import random_state
from tests.verify.samples import MODELS, model
from tests.verify.test_audit import carriers, without_space


def search(graph, spec, seconds=60.0):
    return discrete(graph, spec, canonicalize(spec, random_state(graph, spec)), seconds)


@pytest.mark.parametrize("name", MODELS)
def test_complete_specs_lack_nothing(name):
    found, searched = search(*model(name))
    assert found == ()
    assert searched.startswith("swaps and signs of indices, axes of size ")


def permuting():
    return [(name, space.name) for name in MODELS for space in model(name)[1].spaces if space.group.permutes and space.size > 1]


def test_spaces_that_only_permute_are_among_them():
    groups = {model(name)[1].space(space).group for name, space in permuting()}
    assert groups >= {Group.PERMUTATION, Group.SIGNED_PERMUTATION, Group.POSITIVE_MONOMIAL, Group.MONOMIAL}


@pytest.mark.parametrize(("name", "space"), permuting(), ids=str)
def test_a_lost_permutation_is_found(name, space):
    graph, spec = model(name)
    found, _ = search(graph, without_space(spec, space))
    size = spec.space(space).size
    (lost,) = [each for each in found if each.kind == "permutation"]
    assert lost.size == size
    assert len(lost.moves) == size - 1
    assert {place.rsplit(" axis ")[0] for place in lost.places} == carriers(spec, space)


def unsigned(spec, name):
    """The spec without the signs of a space, whose permutations stay."""
    spaces = tuple(each.model_copy(update={"group": Group.PERMUTATION, "scales": ()}) if each.name == name else each
                   for each in spec.spaces)  # fmt: skip
    return spec.model_copy(update={"spaces": spaces, "tensors": without_space(spec, name).tensors})


@pytest.mark.parametrize(
    ("name", "space", "concerned"),
    [
        ("rectified", "hidden_3", {"b.weight axis 0", "b.bias axis 0", "c.weight axis 1"}),
        ("rectified", "hidden_2", {"up.weight axis 0", "up.bias axis 0", "b.weight axis 1"}),
    ],
)
def test_lost_signs_are_found(name, space, concerned):
    graph, spec = model(name)
    found, _ = search(graph, unsigned(spec, space))
    (lost,) = found
    assert (lost.kind, lost.size, set(lost.places)) == ("sign", spec.space(space).size, concerned)
    assert str(lost).startswith("the sign of any of ")


class Fixed(nn.Module):
    """Units that constants tell apart: none is like another."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 6), nn.Linear(6, 3)
        self.register_buffer("slopes", torch.arange(1.0, 7.0), persistent=False)

    def forward(self, x):
        return self.b(nn.functional.gelu(self.a(x) * self.slopes))


class Pairs(Fixed):
    """Units of which the constants tell only the halves apart."""

    def __init__(self):
        super().__init__()
        self.slopes = torch.tensor([1.0, 1.0, 1.0, 2.0, 2.0, 2.0])


@pytest.mark.parametrize(("build", "moves"), [(Fixed, ()), (Pairs, ((0, 1), (1, 2), (3, 4), (4, 5)))])
def test_only_what_constants_allow(build, moves):
    torch.manual_seed(0)
    graph = sg.trace(build().eval(), kwargs={"x": torch.randn(5, 4)})
    spec = sg.discover(graph)
    for space in spec.spaces:
        spec = without_space(spec, space.name)
    found, _ = search(graph, spec)
    assert tuple(move for each in found if each.size == 6 for move in each.moves) == moves


def test_the_report_says_so():
    graph, spec = model("rectified")
    report = sg.audit(graph, unsigned(spec, "hidden_3"))
    assert report.complete
    assert [each.kind for each in report.missing_discrete] == ["sign"]
    assert "the sign of any of 8 indices of b.weight axis 0" in report.summary
    assert sg.audit(graph, spec, seconds=0).searched == "nothing"


def test_it_ends_in_time():
    graph, spec = model("attention")
    found, searched = search(graph, spec, seconds=1e-9)
    assert found == ()
    assert searched.endswith("axes of size none, 7 more not reached")


def test_places_of_a_packed_axis():
    _, spec = model("centred")
    heads = [place for place in places(spec, "plain", ())[2] if place.tensor == "packed.weight"]
    assert [place.positions.tolist() for place in heads] == [
        [[0, 1, 2], [10, 11, 12]],
        [[3, 4, 5], [13, 14, 15]],
        [[6, 7, 8, 9], [16, 17, 18, 19]],
    ]
    value = torch.arange(20.0)[:, None]
    assert heads[1].moved(value, (0, 1)).flatten()[:6].tolist() == [0, 1, 2, 13, 14, 15]
    assert heads[0].moved(value, (1,)).flatten()[9:14].tolist() == [9, -10, -11, -12, 13]


def test_spans_of_bits():
    span = Span([0b011, 0b110])
    assert 0b101 in span
    assert 0b001 not in span
    assert Span([0b011]).complement(span) == [0b110]
