"""Equations for scales and signs: dimensional analysis of every operator.

Every entry of a tensor may be scaled by a number that depends on an index along one of its axes, or on none. For a law

    y[b, n] = sum_k x[b, k] w[n, k] + c[n]

the exponents obey, letter by letter: y(b) = x(b); y(n) = w(n) = c(n); x(k) + w(k) = 0; and for a scale of whole tensors
y = x + w = c. A homogeneous function multiplies by its degree, any other sets to zero. Signs obey the same modulo two.

A *slot* is one unknown: a tensor, one of its blocks (a choice of summand on every axis that is a direct sum), and a leaf
of one axis, or no leaf for the whole block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product as cartesian

from symgraph.infer.interpret import Applied, Type
from symgraph.infer.ir import Value
from symgraph.infer.spaces import Branch, IndexSpace, branches
from symgraph.rules.law import GENERIC, Axis, Cat, Pattern, Power, Term, letters_of, pattern_letters

Block = tuple[int, ...]
Slot = tuple[int, Block, int, int]
"""(id of the value, block, axis, position among the leaves of the axis in that block); axis -1 is the whole block."""

Alternative = tuple[tuple[str, int], ...]
"""One summand of an axis: letters in order, each with the branch of its space."""

Entry = tuple[Slot, Power]


@dataclass(frozen=True)
class Equation:
    """``sum powers * slots = result`` along one leaf (None: whole blocks); result None means zero."""

    leaf: IndexSpace | None
    entries: tuple[Entry, ...]
    result: Slot | None
    soft: bool
    source: Applied


class Layout:
    """Branches of spaces and blocks of values, read off once all unification is done."""

    def __init__(self) -> None:
        self._branches: dict[int, list[Branch]] = {}
        self.keep: list[object] = []

    def of(self, space: IndexSpace) -> list[Branch]:
        """The space as a sum of products of leaves."""
        root = space.root()
        if id(root) not in self._branches:
            self._branches[id(root)] = branches(root)
            self.keep.append(root)
        return self._branches[id(root)]

    def inert(self, space: IndexSpace) -> bool:
        """Whether nothing along the space moves or scales."""
        found = self.of(space)
        return len(found) == 1 and bool(found[0]) and all(leaf.anchored for leaf in found[0])

    def alternatives(self, axis: Axis, letters: dict[str, IndexSpace]) -> list[Alternative]:
        """Summands of a pattern's axis, in the order of its branches."""
        if isinstance(axis, str):
            return [((axis, index),) for index in range(len(self.of(letters[axis])))]
        if isinstance(axis, Cat):
            inside = list(letters_of(axis))
            if all(self.inert(letters[letter]) for letter in inside):
                return [((inside[0], 0),)]
            return [each for part in axis.parts for each in self.alternatives(part, letters)]
        found: list[Alternative] = [()]
        for part in axis:
            found = [prefix + each for prefix in found for each in self.alternatives(part, letters)]
        return found


def assignments(
    layout: Layout, pattern: Pattern, letters: dict[str, IndexSpace], fixed: dict[str, int], absent: frozenset[str]
) -> Iterator[tuple[Block, tuple[Alternative, ...], dict[str, int]]]:
    """Blocks of a pattern that agree with branches already chosen; summands named in ``absent`` are left out."""
    per_axis = [list(enumerate(layout.alternatives(axis, letters))) for axis in pattern]
    for choice in cartesian(*per_axis):
        chosen = dict(fixed)
        if all(letter not in absent and chosen.setdefault(letter, branch) == branch
               for _, alternative in choice for letter, branch in alternative):  # fmt: skip
            yield tuple(index for index, _ in choice), tuple(alternative for _, alternative in choice), chosen


def slots_of(
    layout: Layout, value: Value, block: Block, choice: tuple[Alternative, ...], letters: dict[str, IndexSpace]
) -> dict[str, list[Slot]]:
    """Slots of every letter of one block; those of anchored leaves are left out by the caller."""
    found: dict[str, list[Slot]] = {}
    for axis, alternative in enumerate(choice):
        position = 0
        for letter, branch in alternative:
            slots: list[Slot] = []
            for leaf in layout.of(letters[letter])[branch]:
                slots.append((id(value), block, axis, position))
                position += not leaf.anchored
            found[letter] = slots
    return found


def equations(applied: Applied, layout: Layout, types: dict[Value, Type]) -> Iterator[Equation]:
    """All equations of one operator."""
    law = applied.law
    everything = [*zip(applied.patterns, applied.operands, strict=True), *zip(law.results, applied.op.results, strict=False)]
    if not all(_aligned(pattern, value, layout, applied, types) for pattern, value in everything):
        for _, value in everything:
            yield from _frozen(applied, layout, value, types)
        return
    for pattern, value in zip(law.results, applied.op.results, strict=False):
        if pattern is None:
            continue
        if not value.is_float:  # integers and truth values are not scaled
            yield from _frozen(applied, layout, value, types)
        summands = frozenset(letter for letter in law.summands if not layout.inert(applied.letters[letter]))
        for block, choice, chosen in assignments(layout, pattern, applied.letters, {}, frozenset()):
            result_slots = slots_of(layout, value, block, choice, applied.letters)
            whole = (id(value), block, -1, 0)
            for monomial in law.terms:
                owned = {letter for index, _ in monomial.powers for letter in pattern_letters(law.operands[index] or ())}
                if any(letter in summands and letter not in owned for letter in chosen):
                    continue
                missing = frozenset(summands - set(chosen))
                for operands in _operand_choices(applied, layout, monomial, chosen, missing):
                    found = _term_equations(applied, layout, monomial, operands, chosen, result_slots, whole)
                    yield from found if value.is_float else map(_unscaled, found)


def _aligned(
    pattern: Pattern | None, value: Value, layout: Layout, applied: Applied, types: dict[Value, Type]
) -> bool:
    """Whether the summands of a pattern are those of the value's axes; refinement elsewhere can cut an axis finer."""
    if pattern is None or value.known:
        return True
    return all(
        len(layout.alternatives(axis, applied.letters)) == (1 if space is None else len(layout.of(space)))
        for axis, space in zip(pattern, types[value], strict=True)
    )


def _frozen(applied: Applied, layout: Layout, value: Value, types: dict[Value, Type]) -> Iterator[Equation]:
    """No scale and no sign on any slot of a value."""
    if value.known:
        return
    axes = [[()] if space is None else layout.of(space) for space in types[value]]
    for choice in cartesian(*(list(enumerate(branches_)) for branches_ in axes)):
        block = tuple(index for index, _ in choice)
        for axis, (_, branch) in enumerate(choice):
            for position, leaf in enumerate(leaf for leaf in branch if not leaf.anchored):
                yield Equation(leaf, (((id(value), block, axis, position), GENERIC),), None, False, applied)
        yield Equation(None, (((id(value), block, -1, 0), GENERIC),), None, False, applied)


def _unscaled(equation: Equation) -> Equation:
    """What a result of integers asks of its operands: nothing where a scale leaves them as they are."""
    homogeneous = all(entry.degree is not None for _, entry in equation.entries)
    return replace(equation, entries=()) if homogeneous and equation.result is not None else equation


Chosen = tuple[int, Power, dict[str, list[Slot]], "Slot | None"]


def _operand_choices(
    applied: Applied, layout: Layout, monomial: Term, chosen: dict[str, int], missing: frozenset[str]
) -> Iterator[tuple[list[Chosen], dict[str, int]]]:
    """Blocks of all operands of a monomial that agree with one another."""

    def extend(position: int, picked: list[Chosen], fixed: dict[str, int]) -> Iterator[tuple[list[Chosen], dict[str, int]]]:
        if position == len(monomial.powers):
            yield picked, fixed
            return
        index, entry = monomial.powers[position]
        value, pattern = applied.operands[index], applied.patterns[index]
        if value.known or pattern is None:
            yield from extend(position + 1, [*picked, (index, entry, {}, None)], fixed)
            return
        for block, choice, further in assignments(layout, pattern, applied.letters, fixed, missing):
            slots = slots_of(layout, value, block, choice, applied.letters)
            whole = (id(value), block, -1, 0)
            yield from extend(position + 1, [*picked, (index, entry, slots, whole)], further)

    return extend(0, [], dict(chosen))


def _term_equations(
    applied: Applied, layout: Layout, monomial: Term, operands: tuple[list[Chosen], dict[str, int]],
    chosen: dict[str, int], result: dict[str, list[Slot]], whole: Slot,
) -> Iterator[Equation]:  # fmt: skip
    picked, fixed = operands
    letters = dict.fromkeys([*(letter for _, _, slots, _ in picked for letter in slots), *result])
    for letter in letters:
        branch = fixed.get(letter, chosen.get(letter))
        assert branch is not None
        for position, leaf in enumerate(layout.of(applied.letters[letter])[branch]):
            if leaf.anchored:
                continue
            entries = tuple((slots[letter][position], entry) for _, entry, slots, _ in picked if letter in slots)
            target = result[letter][position] if letter in result else None
            yield Equation(leaf, entries, target, monomial.soft, applied)
    everything = tuple((slot, entry) for _, entry, _, slot in picked if slot is not None)
    yield Equation(None, everything, whole, monomial.soft, applied)
