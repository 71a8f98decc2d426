"""Which spaces the transformation of a space may depend on.

The map on head_dim may differ from head to head if the head index stands next to it wherever it occurs, and the operator
does not mix different heads. For a letter of a law, the letters that stand next to it on *every* tensor of the law that
has it keep the same index; all others do not.
"""

from __future__ import annotations

from collections.abc import Iterable

from symgraph.infer.equations import Layout
from symgraph.infer.interpret import Applied
from symgraph.infer.spaces import IndexSpace
from symgraph.rules.law import Axis, Cat, Law, Pattern, letters_of, pattern_letters

Dependence = dict[IndexSpace, frozenset[IndexSpace]]


Implied = dict[IndexSpace, frozenset[IndexSpace]]


def dependence(applied: Iterable[Applied], layout: Layout, implied: Iterable[tuple[IndexSpace, IndexSpace]] = ()) -> Dependence:
    """For every leaf, the leaves whose index it may depend on.

    ``implied`` pairs spaces of which the first determines an index of the second: where the first stands, so does it.
    """
    found: Dependence = {}
    also: Implied = {}
    for first, second in implied:
        for leaf in _common_leaves(first, layout):
            also[leaf] = also.get(leaf, frozenset()) | _common_leaves(second, layout)
    for each in applied:
        for leaf, allowed in _of_law(each, layout, also):
            found[leaf] = found[leaf] & allowed if leaf in found else allowed
    return found


def neighbours(pattern: Pattern) -> dict[str, set[str]]:
    """Letters that are present wherever a letter of the pattern is: not those on other summands."""
    result: dict[str, set[str]] = {}
    common = {letter for axis in pattern if not _has_sum(axis) for letter in letters_of(axis)}
    for axis in pattern:
        for group in _alternatives(axis):
            for letter in group:
                result.setdefault(letter, set()).update(common | group)
    return result


def _has_sum(axis: Axis) -> bool:
    return isinstance(axis, Cat) or (isinstance(axis, tuple) and any(_has_sum(part) for part in axis))


def _alternatives(axis: Axis) -> list[set[str]]:
    if isinstance(axis, str):
        return [{axis}]
    if isinstance(axis, Cat):
        return [group for part in axis.parts for group in _alternatives(part)]
    groups: list[set[str]] = [set()]
    for part in axis:
        groups = [first | second for first in groups for second in _alternatives(part)]
    return groups


def _of_law(applied: Applied, layout: Layout, also: Implied) -> Iterable[tuple[IndexSpace, frozenset[IndexSpace]]]:
    law, letters = applied.law, applied.letters
    near: dict[str, set[str]] = {}
    plain = {letter: _common_leaves(letters[letter], layout) for letter in letters}
    reached = {letter: _reached(letter, plain, also) for letter in letters}
    patterns = [*(pattern for pattern, value in zip(applied.patterns, applied.operands, strict=True) if not value.known),
                *law.results]  # fmt: skip
    present = [pattern for pattern in patterns if pattern is not None]
    for pattern in present:
        for letter, others in neighbours(pattern).items():
            others = others.union(*(reached[other] for other in others if other != letter))
            near[letter] = near[letter] & others if letter in near else set(others)
    for pattern, pointed in _pointing(law):
        if pointed in near:
            near[pointed] &= set(pattern_letters(pattern))
    always = {letter: _with_implied(leaves, also) for letter, leaves in plain.items()}
    twice = _ambiguous(present, letters, layout)
    for letter, others in near.items():
        kept = [always[other] for other in others if other != letter and other not in law.mixes]
        outside = frozenset().union(*kept) if kept else frozenset()
        for branch in layout.of(letters[letter]):
            inside = frozenset(leaf for leaf in branch if letter not in law.mixes)
            for leaf in branch:
                if not leaf.anchored:
                    allowed = (inside | outside) - twice - {leaf}
                    yield leaf, frozenset(other for other in allowed if not other.anchored)


def _pointing(law: Law) -> Iterable[tuple[Pattern, str]]:
    """Patterns of integers with the letter that they point to: its index is known where they are."""
    for index, pattern in enumerate(law.operands):
        if pattern is not None:
            yield pattern, f"p{index}"
    for pattern, meaning in zip(law.results, law.points, strict=False):
        if pattern is not None and meaning is not None:
            yield pattern, meaning[1]


def _reached(letter: str, plain: dict[str, frozenset[IndexSpace]], also: Implied) -> set[str]:
    """Letters of the law whose index is determined by that of a letter."""
    determined = frozenset().union(*(also[leaf] for leaf in plain[letter] if leaf in also))
    return {other for other, leaves in plain.items() if leaves and leaves <= determined}


def _with_implied(leaves: frozenset[IndexSpace], also: Implied) -> frozenset[IndexSpace]:
    return leaves.union(*(also[leaf] for leaf in leaves if leaf in also))


def _common_leaves(space: IndexSpace, layout: Layout) -> frozenset[IndexSpace]:
    """Leaves that every summand of the space has."""
    sets = [frozenset(branch) for branch in layout.of(space)]
    return frozenset.intersection(*sets)


def _ambiguous(patterns: list[Pattern], letters: dict[str, IndexSpace], layout: Layout) -> frozenset[IndexSpace]:
    """Leaves that stand twice on one tensor: which of the two indices is meant cannot be said."""
    found: set[IndexSpace] = set()
    for pattern in patterns:
        groups = [group for axis in pattern for group in _alternatives(axis)]
        if not groups:
            continue
        seen: dict[IndexSpace, str] = {}
        for letter in {letter for axis in pattern for letter in letters_of(axis)}:
            for branch in layout.of(letters[letter]):
                found.update(leaf for leaf in branch if branch.count(leaf) > 1)
            for leaf in {leaf for branch in layout.of(letters[letter]) for leaf in branch}:
                if seen.setdefault(leaf, letter) != letter and not _exclusive(seen[leaf], letter, pattern):
                    found.add(leaf)
    return frozenset(found)


def _exclusive(first: str, second: str, pattern: Pattern) -> bool:
    """Whether two letters stand on different summands, so that never both are present."""
    near = neighbours(pattern)
    return second not in near[first] and any(_has_sum(axis) and {first, second} <= set(letters_of(axis)) for axis in pattern)
