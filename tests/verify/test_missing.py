"""What is missing, in words."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import symgraph as sg
from symgraph.verify.missing import explained


def spaces(*columns):
    return torch.linalg.qr(torch.tensor(columns, dtype=torch.float64).mT).Q


PLACES = {"a": torch.tensor([0, 1]), "b": torch.tensor([2, 3]), "c": torch.tensor([4])}
WEIGHTS = {"a": torch.tensor([1.0, 2.0]), "b": torch.tensor([3.0, 1.0]), "c": torch.tensor([2.0])}


@pytest.mark.parametrize(
    ("null", "sentence"),
    [
        ([(1, 0, -1, 0, 0), (0, 1, 0, -1, 0)], "`a` and `b` enter only through their sum (2 directions)"),
        ([(1, 2, 1, 2, 0)], "`a` and `b` enter only through their difference (1 direction)"),
        ([(0, 0, 0, 0, 1)], "`c` is not seen (1 direction)"),
        ([(1, 0, 0, 0, 0)], "`a` is in part not seen (1 direction)"),
        ([(1, 2, 0, 0, -4)], "a scale: `a` times s^1, `c` times s^-2 (1 direction)"),
        ([(1, 0, 2, 1, 0)], "`a`, `b` move together (1 direction)"),
    ],
)  # fmt: skip
def test_sentences(null, sentence):
    weights = {name: value.double() for name, value in WEIGHTS.items()}
    found = explained(spaces(*null), torch.zeros(5, 0, dtype=torch.float64), weights, PLACES)
    assert [each.replace("s^-1, `c` times s^2", "s^1, `c` times s^-2") for each in found] == [sentence]


def test_what_is_known_is_not_said_again():
    null = spaces((1, 0, -1, 0, 0), (0, 1, 0, -1, 0), (0, 0, 0, 0, 1))
    known = spaces((1, 0, -1, 0, 0), (0, 1, 0, -1, 0))
    weights = {name: value.double() for name, value in WEIGHTS.items()}
    assert explained(null, known, weights, PLACES) == ("`c` is not seen (1 direction)",)


class Two(nn.Module):
    """Two biases that are added to one stream."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x):
        return self.a(x) + self.b(x.abs())


def test_a_module_that_lost_a_shift():
    torch.manual_seed(0)
    graph = sg.trace(Two().eval(), kwargs={"x": torch.randn(9, 4)})
    spec = sg.discover(graph)
    assert spec.shifts
    report = sg.audit(graph, spec.model_copy(update={"shifts": ()}), seconds=0)
    assert report.explained == ("`a.bias` and `b.bias` enter only through their sum (3 directions)",)
    assert "enter only through their sum" in report.summary
