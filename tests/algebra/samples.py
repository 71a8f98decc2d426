"""A tower of spaces in which every group occurs, for the tests of this floor."""

from dataclasses import dataclass

import torch

from symgraph.algebra.elements import SpaceLike
from symgraph.algebra.groups import Group
from symgraph.algebra.sampling import sample


@dataclass(frozen=True)
class Scale:
    name: str
    kind: str


@dataclass(frozen=True)
class Block:
    field: str
    coordinates: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Space:
    name: str
    size: int
    group: Group
    per: tuple[str, ...] = ()
    scales: tuple[Scale, ...] = ()
    blocks: tuple[Block, ...] = ()
    partition: tuple[tuple[int, ...], ...] = ()


REAL, POSITIVE, SIGN = Scale("a", "real"), Scale("b", "positive"), Scale("s", "sign")
PLANES = (Block("complex", ((0, 3), (1, 4))), Block("complex", ((2, 5),)))
MIXED = (Block("complex", ((0, 3), (1, 4))), Block("real", ((2,), (5,))))

SPACES: dict[str, SpaceLike] = {
    space.name: space
    for space in (
        Space("expert", 3, Group.PERMUTATION),
        Space("head", 2, Group.SIGNED_PERMUTATION, per=("expert",), scales=(SIGN,)),
        Space("qk", 4, Group.GENERAL_LINEAR, per=("expert", "head")),
        Space("ov", 3, Group.MONOMIAL, per=("head", "expert"), scales=(REAL, POSITIVE)),
        Space("hidden", 5, Group.POSITIVE_MONOMIAL, per=("expert",), scales=(POSITIVE,)),
        Space("residual", 5, Group.ORTHOGONAL),
        Space("centred", 4, Group.ORTHOGONAL_FIXING_ONES),
        Space("rotary", 7, Group.COMMUTANT, blocks=PLANES),
        Space("phases", 7, Group.ORTHOGONAL_COMMUTANT, per=("expert",), blocks=MIXED),
        Space("bands", 5, Group.DIAGONAL, scales=(REAL,), partition=((0, 2), (1, 3))),
        Space("whole", 1, Group.DIAGONAL, scales=(REAL,)),
        Space("still", 2, Group.TRIVIAL),
    )
}
SIZES = {name: space.size for name, space in SPACES.items()}

WORDS = (
    ("expert head (qk' + qk + ov[a, b^-2])", "residual"),
    ("expert head[s] qk", "centred'", "rotary' + 2"),
    ("ov[a]", "head expert", "bands[a^-1]"),
    ("residual' residual",),
    ("expert", "hidden[b^-1] + phases", "whole[a^3]"),
    ("still + expert (3 + hidden[b])", "residual + 1"),
    ("head[s^2] ov", "expert"),
)


def element(seed, only=None):
    """A random element of the whole tower, identity outside of ``only``."""
    generator = torch.Generator().manual_seed(seed)
    drawn = {name: sample(space, SPACES, generator) for name, space in SPACES.items()}
    return {name: one for name, one in drawn.items() if only is None or name in only}
