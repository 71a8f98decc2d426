"""Signs of two spaces on one piece: found together where taking turns gets stuck."""

from __future__ import annotations

import pytest
import torch

from symgraph.algebra.groups import Group
from symgraph.match.ascent import Ascent
from symgraph.match.pieces import Pieces
from symgraph.match.selection import select
from symgraph.match.signs import beside, couplings, together, turned
from symgraph.spec import model
from symgraph.spec.model import Dimension, Identity, Scale, SymmetrySpec
from symgraph.spec.operations import sample

from .samples import space

SIGN = (Scale(name="s", kind="sign"),)
SHAPES = {"both": ((3, 2, 6, 5), "head query[s] coordinate[s] | 5"), "hint": ((3, 6), "head | coordinate[s]")}


def spec_of(shapes):
    spaces = [
        space("head", 3, Group.TRIVIAL),
        space("query", 2, Group.DIAGONAL, per=("head",), scales=SIGN),
        space("coordinate", 6, Group.DIAGONAL, per=("head",), scales=SIGN, partition=((0, 3), (1, 4), (2, 5))),
    ]
    tensors = tuple(
        model.Tensor(name=name, shape=(36, 5) if name == "both" else shape, axes=tuple(axes.split(" | ")))
        for name, (shape, axes) in shapes.items()
    )
    return SymmetrySpec(
        identity=Identity(model="none"),
        spaces=tuple(spaces),
        tensors=tensors,
        dimension=Dimension(by_space={}, by_kind={}, total=0),
    )


def planted(seed):
    """Sides that are equal up to signs; of these, the second tensor tells one for every head, and hardly."""
    spec = spec_of(SHAPES)
    generator = torch.Generator().manual_seed(seed)
    a = {"both": torch.randn(36, 5, generator=generator).double(), "hint": torch.zeros(3, 6).double()}
    a["hint"][:, 1] = 1e-3
    pieces, first = Pieces.of(spec, a)
    _, second = Pieces.of(spec, sample(spec, seed=seed).apply(a))
    return Ascent(pieces, first, second, select(spec).spaces)


@pytest.mark.parametrize("seed", range(8))
def test_signs_of_two_spaces_are_found_together(seed):
    ascent = planted(seed)
    ((pair, places),) = couplings(ascent).items()
    assert {one.space for one in pair} == {"query", "coordinate"}
    before = ascent.distance()
    ascent.attempt(together(ascent, pair, places))
    assert ascent.distance() < 1e-24
    assert before > 1


def test_taking_turns_gets_stuck():
    left = []
    for seed in range(8):
        ascent = planted(seed)
        for _ in range(10):
            for name in ("query", "coordinate"):
                ascent.improve(name)
        left.append(ascent.distance())
    assert max(left) > 1


def beside_a_matrix(seed):
    """Nine rows of six coordinates: equal but for a sign of every row and one basis of all."""
    spaces = [space("row", 9, Group.DIAGONAL, scales=SIGN), space("basis", 6, Group.ORTHOGONAL)]
    spec = SymmetrySpec(
        identity=Identity(model="none"),
        spaces=tuple(spaces),
        tensors=(model.Tensor(name="x", shape=(54, 8), axes=("row[s] basis", "8")),),
        dimension=Dimension(by_space={}, by_kind={}, total=0),
    )
    a = {"x": torch.randn(54, 8, generator=torch.Generator().manual_seed(seed)).double()}
    pieces, first = Pieces.of(spec, a)
    _, second = Pieces.of(spec, sample(spec, seed=seed).apply(a))
    return Ascent(pieces, first, second, select(spec).spaces)


def test_signs_beside_a_matrix():
    left = []
    for seed in range(8):
        stuck = beside_a_matrix(seed)
        for _ in range(10):
            for name in ("basis", "row"):
                stuck.improve(name)
        left.append(stuck.distance())
        ascent = beside_a_matrix(seed)
        (((signed, name), places),) = beside(ascent).items()
        ascent.attempt(turned(ascent, signed, places), then=name)
        assert ascent.distance() < 1e-20
    assert max(left) > 1


def test_an_attempt_that_loses_is_undone():
    ascent = planted(0)
    ((pair, places),) = couplings(ascent).items()
    ascent.attempt(together(ascent, pair, places))
    wrong = together(planted(1), pair, places)
    kept = [value.clone() for value in ascent.b]
    assert ascent.attempt(wrong) == 0.0
    assert all(torch.equal(x, y) for x, y in zip(ascent.b, kept, strict=True))


def test_a_space_and_one_that_depends_on_it_are_not_coupled():
    ascent = planted(0)
    spaces = {**ascent.pieces.spaces}
    spaces["coordinate"] = spaces["coordinate"].model_copy(update={"per": ("head", "query")})
    pieces = Pieces(spaces, ascent.pieces.shapes[:1])
    assert not couplings(Ascent(pieces, ascent.a[:1], ascent.b[:1], ascent.freedom))
