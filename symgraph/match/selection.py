"""Which symmetries take part in a match: by kind of group, by role, or by name.

The kinds are ``permutation``, ``orthogonal``, ``general_linear``, ``commutant`` and ``scale`` (of an index space that
has permutations and scales, each part can be left out alone), and ``shift``.

>>> select(spec, without=["qk"])                            # doctest: +SKIP
>>> select(spec, only=["permutation", "orthogonal"])        # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from symgraph.algebra.groups import Group
from symgraph.errors import MatchError
from symgraph.spec.model import Space, SymmetrySpec

_KIND = {
    Group.ORTHOGONAL: "orthogonal",
    Group.ORTHOGONAL_FIXING_ONES: "orthogonal",
    Group.GENERAL_LINEAR: "general_linear",
    Group.COMMUTANT: "commutant",
    Group.ORTHOGONAL_COMMUTANT: "commutant",
}  # of the matrix groups

KINDS = ("permutation", "orthogonal", "general_linear", "commutant", "scale", "shift")


@dataclass(frozen=True)
class Freedom:
    """What of a space's group may be used: its matrices, its permutations, and the scale generators by name."""

    matrix: bool = False
    permutes: bool = False
    logs: tuple[str, ...] = ()
    signs: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.matrix or self.permutes or bool(self.logs) or bool(self.signs)


@dataclass(frozen=True)
class Selection:
    """The freedom of every space that takes part, and the names of the shifts that do."""

    spaces: dict[str, Freedom]
    shifts: frozenset[str]


def select(spec: SymmetrySpec, only: Collection[str] | None = None, without: Collection[str] | None = None) -> Selection:
    """What takes part. MatchError for a word that is no kind, no role and no name of the spec."""
    known = set(KINDS) | {word for space in spec.spaces for word in (space.name, space.role) if word}
    for word in (*(only or ()), *(without or ())):
        if word not in known:
            roles = sorted({space.role for space in spec.spaces if space.role})
            raise MatchError(
                f"{word!r} is no kind, role or name of a space: kinds are {', '.join(KINDS)}; roles are {', '.join(roles)}"
            )
    found = {space.name: _freedom(space, only, without or ()) for space in spec.spaces}
    shifts = (only is None or "shift" in only) and "shift" not in (without or ())
    named = frozenset(shift.name for shift in spec.shifts if shifts)
    return Selection({name: one for name, one in found.items() if one}, named)


def commuting(spec: SymmetrySpec, selection: Selection) -> Selection:
    """Without the scales and shifts that act on buffers.

    A batch norm's running mean follows the scale of what is normalized, as long as its statistics are kept; taken anew,
    they undo the scale, and its other half stays.
    """
    buffers = {tensor.name: tensor for tensor in spec.tensors if tensor.kind == "buffer"}
    words = [word for tensor in buffers.values() for word in tensor.words]
    acting = {(factor.space, name) for word in words for factor in word.factors() for name, _ in factor.weights}
    kept = {
        name: replace(one, logs=tuple(log for log in one.logs if (name, log) not in acting))
        for name, one in selection.spaces.items()
    }
    still = {shift.name for shift in spec.shifts if not any(term.target.tensor in buffers for term in shift.terms)}
    return Selection({name: one for name, one in kept.items() if one}, selection.shifts & still)


def kind(space: Space) -> str:
    """The kind of a space's group: of the permutation family ``permutation``, or ``scale`` where nothing is permuted."""
    return _KIND.get(space.group, "permutation" if space.group.permutes else "scale")


def _freedom(space: Space, only: Collection[str] | None, without: Collection[str]) -> Freedom:
    own = {space.name, space.role} - {""}

    def takes_part(part: str) -> bool:
        words = own | {part}
        return (only is None or bool(words & set(only))) and not words & set(without)

    if space.group.is_matrix:
        return Freedom(matrix=takes_part(kind(space)))
    scales = space.scales if takes_part("scale") else ()
    return Freedom(
        permutes=space.group.permutes and space.size > 1 and takes_part("permutation"),
        logs=tuple(scale.name for scale in scales if scale.kind != "sign"),
        signs=tuple(scale.name for scale in scales if scale.kind != "positive"),
    )
