"""The groups that can act on an index space, ordered by inclusion.

A group here is the *shape* of the answer ("orthogonal on n indices"). What refines it, the scale generators on the
indices and the isotypic blocks of a commutant, is data of the space and lives next to it in the spec.

The permutation family is permutations times diagonal scales; the name says which scales are there:

    permutation            no scales
    signed_permutation     signs
    positive_monomial      positive scales
    monomial               nonzero real scales (or positive scales and signs)
    diagonal               scales (or signs) without permutations
"""

from __future__ import annotations

from enum import Enum


class Group(str, Enum):
    """Name of a group, as written in a spec."""

    TRIVIAL = "trivial"
    DIAGONAL = "diagonal"
    PERMUTATION = "permutation"
    SIGNED_PERMUTATION = "signed_permutation"
    POSITIVE_MONOMIAL = "positive_monomial"
    MONOMIAL = "monomial"
    ORTHOGONAL = "orthogonal"
    ORTHOGONAL_FIXING_ONES = "orthogonal_fixing_ones"
    GENERAL_LINEAR = "general_linear"
    COMMUTANT = "commutant"
    ORTHOGONAL_COMMUTANT = "orthogonal_commutant"

    @property
    def permutes(self) -> bool:
        """Whether the group moves indices by permutations."""
        return self in _PERMUTING

    @property
    def is_matrix(self) -> bool:
        """Whether elements are dense matrices rather than permutations and scales."""
        return self in _MATRIX

    @property
    def is_orthogonal(self) -> bool:
        """Whether elements are orthogonal matrices, so that variance does not matter."""
        return self in _ORTHOGONAL


_PERMUTING = {Group.PERMUTATION, Group.SIGNED_PERMUTATION, Group.POSITIVE_MONOMIAL, Group.MONOMIAL}
_ORTHOGONAL = {Group.ORTHOGONAL, Group.ORTHOGONAL_FIXING_ONES, Group.ORTHOGONAL_COMMUTANT}
_MATRIX = _ORTHOGONAL | {Group.GENERAL_LINEAR, Group.COMMUTANT}

_LARGER: dict[Group, tuple[Group, ...]] = {
    Group.TRIVIAL: (Group.DIAGONAL, Group.PERMUTATION, Group.ORTHOGONAL_COMMUTANT),
    Group.DIAGONAL: (Group.MONOMIAL,),
    Group.PERMUTATION: (Group.SIGNED_PERMUTATION, Group.POSITIVE_MONOMIAL, Group.ORTHOGONAL_FIXING_ONES),
    Group.SIGNED_PERMUTATION: (Group.MONOMIAL, Group.ORTHOGONAL),
    Group.POSITIVE_MONOMIAL: (Group.MONOMIAL,),
    Group.MONOMIAL: (Group.GENERAL_LINEAR,),
    Group.ORTHOGONAL: (Group.GENERAL_LINEAR,),
    Group.ORTHOGONAL_FIXING_ONES: (Group.ORTHOGONAL,),
    Group.ORTHOGONAL_COMMUTANT: (Group.ORTHOGONAL, Group.COMMUTANT),
    Group.COMMUTANT: (Group.GENERAL_LINEAR,),
    Group.GENERAL_LINEAR: (),
}  # the next larger groups of each: the inclusion order is the closure of this


def _closure(group: Group) -> frozenset[Group]:
    return frozenset({group}).union(*map(_closure, _LARGER[group]))


_UP = {group: _closure(group) for group in Group}


def includes(larger: Group, smaller: Group) -> bool:
    """Whether every element of ``smaller`` is one of ``larger`` (with the same scales and blocks)."""
    return larger in _UP[smaller]


def _meet(a: Group, b: Group) -> Group:
    below = [group for group in Group if {a, b} <= _UP[group]]
    return next(group for group in below if all(group in _UP[other] for other in below))


_MEET = {(a, b): _meet(a, b) for a in Group for b in Group}


def meet(a: Group, b: Group) -> Group:
    """The largest named group that lies in both.

    Never larger than the intersection; smaller where the intersection has no name of its own (a commutant with
    monomial matrices), which is sound. ``diagonal`` means arbitrary nonzero scales here.

    >>> meet(Group.ORTHOGONAL, Group.MONOMIAL).value
    'signed_permutation'
    """
    return _MEET[a, b]
