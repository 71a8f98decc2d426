"""Reading at places that are computed: a codebook, a mask, a count. Nothing is pinned for want of a law, and all is sound."""

import pytest
import torch
from torch import nn

import symgraph as sg


class Codebook(nn.Module):
    """The nearest of seven codes, and what comes of it."""

    def __init__(self):
        super().__init__()
        self.before, self.codes, self.after = nn.Linear(3, 4), nn.Embedding(7, 4), nn.Linear(4, 2)

    def forward(self, x):
        y = self.before(x)
        nearest = (y @ self.codes.weight.T).argmax(-1)
        return self.after(self.codes(nearest))


class Kept(nn.Module):
    """Rows of the input that are not empty, as a model drops the padding among its images."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(5, 4), nn.Linear(4, 2)

    def forward(self, x):
        kept = x[(x != 0).any(-1)]
        torch._check(kept.shape[0] == x.shape[0])
        return self.second(self.first(kept).relu())


class Histogram(nn.Module):
    """How many activations fall in each of three intervals scales what comes after."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 3)

    def forward(self, x):
        y = self.first(x).relu()
        return self.second(y) * torch.histc(self.second(y).flatten().detach(), 3, -1.0, 1.0)




@pytest.mark.parametrize(("module", "groups"), [
    (Codebook, ["general_linear", "permutation"]), (Kept, ["positive_monomial"]), (Histogram, ["positive_monomial"]),
])  # fmt: skip
def test_computed_places(module, groups):
    torch.manual_seed(0)
    graph = sg.trace(module().eval(), [torch.randn(11, 5 if module is Kept else 3)])
    spec = sg.discover(graph, strict=True)
    assert not spec.pins
    assert sg.verify(graph, spec).passed
    assert sorted(space.group.value for space in spec.spaces) == groups
