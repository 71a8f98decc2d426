"""One block at a time: the best element against brute force or random ones; pieces and correlations."""

from __future__ import annotations

from itertools import permutations, product

import pytest
import torch

from symgraph.algebra.elements import Matrix, Monomial
from symgraph.algebra.groups import Group
from symgraph.algebra.sampling import sample as draw
from symgraph.match.assignment import assign
from symgraph.match.blocks import gather, scatter
from symgraph.match.pieces import Pieces, correlation
from symgraph.match.procrustes import procrustes
from symgraph.match.selection import Freedom, select
from symgraph.match.weights import match_weights
from symgraph.spec.model import Block, Scale
from symgraph.spec.operations import sample

from .samples import SAMPLES, space, state

BLOCKS = (
    Block(field="complex", coordinates=((0, 3), (4, 1))),
    Block(field="real", coordinates=((2,), (5,))),
)
SPACES = [
    space("x", 6, Group.ORTHOGONAL),
    space("x", 6, Group.ORTHOGONAL_FIXING_ONES),
    space("x", 7, Group.ORTHOGONAL_COMMUTANT, blocks=BLOCKS),
]


@pytest.mark.parametrize("one", SPACES, ids=lambda one: one.group.value)
def test_procrustes_beats_random_elements(one):
    generator = torch.Generator().manual_seed(0)
    c = torch.randn(3, one.size, one.size, generator=generator, dtype=torch.float64)
    found = procrustes(one, c)
    best = (c * found.matrix).sum((-1, -2))
    for _ in range(200):
        other = draw(one, {}, generator)
        assert isinstance(other, Matrix)
        assert bool(((c * other.matrix).sum((-1, -2)) <= best + 1e-12).all())
    again = procrustes(one, found.matrix)  # an element is its own best approximation, so it is in the group
    assert torch.allclose(again.matrix, found.matrix, atol=1e-12)


def test_blocks_are_read_and_written():
    one = SPACES[2]
    element = draw(one, {}, torch.Generator().manual_seed(0))
    assert isinstance(element, Matrix)
    copy = torch.eye(7, dtype=torch.float64)
    for same in gather(one, element.matrix):
        scatter(copy, same, same.values / 2 if same.values.is_complex() else same.values)
    assert torch.allclose(copy, element.matrix)


SIGNED = (Scale(name="s", kind="sign"), Scale(name="t", kind="real"))


def score(element: Monomial, correlations) -> float:
    total = 0.0
    for parity, c in correlations.items():
        for new, old in enumerate(element.permutation.tolist()):
            sign = 1.0
            for name in parity:
                sign *= float(element.sign[name][old])
            total += sign * float(c[new, old])
    return total


def test_signed_assignment_is_the_best():
    one = space("x", 4, Group.MONOMIAL, scales=SIGNED)
    generator = torch.Generator().manual_seed(0)
    parities = [frozenset(), frozenset({"s"}), frozenset({"t"}), frozenset({"s", "t"})]
    correlations = {parity: torch.randn(4, 4, generator=generator, dtype=torch.float64) for parity in parities}
    found = assign(one, Freedom(permutes=True, signs=("s", "t")), correlations)
    best = -torch.inf
    signs = list(product((1.0, -1.0), repeat=4))
    for order in permutations(range(4)):
        for s, t in product(signs, signs):
            values = {"s": torch.tensor(s), "t": torch.tensor(t)}
            best = max(best, score(Monomial(torch.tensor(order), {}, values), correlations))
    assert score(found, correlations) == pytest.approx(best)


def test_signs_without_permutations_and_by_class():
    one = space("x", 4, Group.DIAGONAL, scales=(Scale(name="s", kind="sign"),), partition=((0, 2), (1, 3)))
    c = torch.diag(torch.tensor([3.0, -1.0, -1.0, -1.0], dtype=torch.float64))
    found = assign(one, Freedom(signs=("s",)), {frozenset({"s"}): c})
    assert found.sign["s"].tolist() == [1.0, -1.0, 1.0, -1.0]
    assert not found.moves


def test_pieces_cut_and_move():
    module, spec = SAMPLES["attention"]()
    canon = module.state_dict()
    pieces, values = Pieces.of(spec, canon)
    assert [shape.tensor for shape in pieces.shapes].count("qk.weight") == 2
    assert sum(value.numel() for value in values) == sum(value.numel() for value in canon.values())
    linear = sample(spec, seed=0, only=[one.name for one in spec.spaces])
    _, expected = Pieces.of(spec, linear.apply(canon))
    moved = pieces.apply(linear.elements, values)
    assert all(torch.allclose(x, y, atol=1e-12) for x, y in zip(moved, expected, strict=True))


def test_correlation_by_hand():
    module, spec = SAMPLES["attention"]()
    pieces, values = Pieces.of(spec, module.state_dict())
    one = next(one for one in pieces.occurrences["ov"] if pieces.shapes[one.piece].tensor == "o.weight")
    x = module.state_dict()["o.weight"].unflatten(1, (3, 2))
    assert torch.allclose(correlation(values[one.piece], values[one.piece], one), torch.einsum("chi,chj->hij", x, x))


def test_nested_assignment_is_the_best():
    """Heads over the best inner match: no order of heads, with Procrustes inside, does better."""
    module, spec = SAMPLES["attention"]()
    a, b = module.state_dict(), state(type(module), 1)
    selection = select(spec, without=["shift"])
    found = match_weights(spec, a, b, selection)

    def parts(weights):
        qk = torch.cat([weights["qk.weight"], weights["qk.bias"][:, None]], 1).unflatten(0, (3, 2, 4))
        v = torch.cat([weights["v.weight"], weights["v.bias"][:, None]], 1).unflatten(0, (3, 2))
        return qk, torch.cat([v, weights["o.weight"].unflatten(1, (3, 2)).permute(1, 2, 0)], -1)

    (qk, vo), (other_qk, other_vo) = parts(a), parts(b)
    fixed = float((a["o.bias"] * b["o.bias"]).sum())

    def value(i, j):
        inner = torch.einsum("sac,sbc->ab", qk[i], other_qk[j])
        return torch.linalg.svdvals(inner).sum() + torch.linalg.svdvals(vo[i] @ other_vo[j].mT).sum()

    best = max(sum(float(value(i, j)) for i, j in enumerate(order)) for order in permutations(range(3)))
    assert found.objective == pytest.approx(best + fixed)
