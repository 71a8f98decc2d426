"""The interpreter: applies the law of every operator, and keeps what follows.

For each operator the rule's law names the axes of its tensors with letters; the interpreter finds or makes the index space
of every letter, unifies, and notes which structure of which space the operator uses. It names no operator. Nothing is
decided here: groups are read off when all facts are in (:mod:`symgraph.infer.solve`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from symgraph.errors import UnsupportedOperator
from symgraph.frontend.graph import Origin
from symgraph.infer.ir import Op, Program, Value, map_values
from symgraph.infer.spaces import ConflictError, IndexSpace, anchor, direct_sum, factor, fresh, product, split, unify
from symgraph.rules import Call, Cat, Law, Operand, Structure, find_rule
from symgraph.rules.law import GENERIC, Axis, Pattern, Term, letters_of, pattern_letters, pin
from symgraph.rules.registry import lettered
from symgraph.rules.routing import carries

Type = tuple["IndexSpace | None", ...]


@dataclass(frozen=True, eq=False)
class Record:
    """A structure of a space that an operator uses, with where and why."""

    space: IndexSpace
    structure: Structure
    origin: Origin
    reason: str
    operators: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Unruled:
    """An operator that pins what it touches, and why."""

    op: Op
    reason: str


@dataclass(eq=False)
class Applied:
    """A law as applied to one operator. ``patterns`` are the operands' without the axes along which they are uniform."""

    op: Op
    law: Law
    letters: dict[str, IndexSpace]
    operands: list[Value]
    patterns: tuple[Pattern | None, ...]


@dataclass(eq=False)
class Typing:
    """Types of all values, laws as applied, and the facts learned.

    ``pointers`` are integers that point into a space, with what they mean; ``implied`` and ``follows`` are pairs (s, e) of
    spaces: an index of s determines one of e, and the order along s is that of e.
    """

    types: dict[Value, Type] = field(default_factory=dict)
    applied: list[Applied] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    unruled: list[Unruled] = field(default_factory=list)
    pointers: dict[Value, tuple[str, IndexSpace]] = field(default_factory=dict)
    implied: list[tuple[IndexSpace, IndexSpace]] = field(default_factory=list)
    follows: list[tuple[IndexSpace, IndexSpace]] = field(default_factory=list)


def call_of(op: Op, typing: Typing | None = None) -> tuple[Call, list[Value]]:
    """The operator as a rule sees it, and its operands in the order of their indices."""
    operands: list[Operand] = []
    values: list[Value] = []

    def wrap(value: Value) -> Operand:
        points = typing.pointers[value][0] if typing is not None and value in typing.pointers else ""
        operands.append(Operand(len(operands), value.shape, value.dtype, value.constant, points))
        values.append(value)
        return operands[-1]

    args, kwargs = map_values(op.args, wrap), map_values(op.kwargs, wrap)
    shapes = tuple(value.shape for value in op.results)
    dtypes = tuple(value.dtype for value in op.results)
    return Call(op.target, args, kwargs, tuple(operands), shapes, dtypes), values


def empty(op: Op) -> bool:
    """Whether the operator touches a tensor without entries: nothing needs to be said of it."""
    return any(0 in value.shape for value in (*op.operands, *op.results))


def law_of(op: Op, typing: Typing | None = None) -> tuple[Law | None, list[Value]]:
    """The law of an operator (None where there is no rule, or the rule has none for this call), and its operands."""
    rule = None if empty(op) else find_rule(op.target)
    call, values = call_of(op, typing)
    law = rule(call) if rule is not None else None
    return (_without_zeros(law, values) if law is not None else None), values


def _without_zeros(law: Law, values: list[Value]) -> Law:
    """The law less the monomials with a factor that is zero: the state before the first step asks nothing of a weight."""
    zeros = {index for index, value in enumerate(values) if _is_zero(value)}
    if not zeros:
        return law
    terms = tuple(each for each in law.terms
                  if not any(index in zeros and (entry.degree or 0) > 0 for index, entry in each.powers))  # fmt: skip
    return replace(law, terms=terms)


def _is_zero(value: Value) -> bool:
    constant = value.constant
    if constant is None or value.data or not value.is_float or not constant.numel() or varying_axes(value):
        return False
    return not bool(constant.flatten()[0])


def pinned_law(op: Op, values: list[Value], reason: str) -> Law:
    """Sound for anything: nothing may move along any axis of any operand, nothing is scaled."""
    patterns = tuple(lettered(value.shape, f"o{index}_") for index, value in enumerate(values))
    results = tuple(lettered(value.shape, f"z{index}_") for index, value in enumerate(op.results))
    letters = {letter for pattern in (*patterns, *results) for letter in pattern_letters(pattern)}
    uses = tuple(use for letter in sorted(letters) for use in pin(letter, reason))
    return Law(patterns, results, (Term(tuple((index, GENERIC) for index in range(len(values)))),), uses)


def interpret(program: Program, strict: bool = False) -> Typing:
    """Type every value of the program. ``strict`` makes an operator without a rule an error."""
    typing = Typing()
    for value in program.inputs:
        typing.types[value] = tuple(None if size == 1 else fresh(size, anchored=True) for size in value.shape)
    read = {value for op in program.ops for value in op.operands}
    for value in program.tensors.values():
        idle = value not in read or 0 in value.shape
        typing.types[value] = tuple(None if size == 1 else fresh(size, anchored=idle) for size in value.shape)
    for op in program.ops:
        _apply(op, typing, strict)
    for value in program.outputs:
        for space in typing.types.get(value, ()):
            if space is not None:
                anchor(space)
    return typing


def _apply(op: Op, typing: Typing, strict: bool) -> None:
    law, values = law_of(op, typing)
    if law is None:
        if strict and not empty(op):
            raise UnsupportedOperator(f"{op.origin}: no rule; run without strict to pin what it touches")
        _pin(op, values, typing, "an operator without a rule")
        return
    try:
        _unify_law(op, law, values, typing)
    except ConflictError as conflict:
        _pin(op, values, typing, f"its axes cannot be typed: {conflict}")


def _pin(op: Op, values: list[Value], typing: Typing, reason: str) -> None:
    movable = any(value.is_float and not value.known and value in typing.types for value in values)
    if movable and not empty(op):
        typing.unruled.append(Unruled(op, reason))
    _unify_law(op, pinned_law(op, values, reason), values, typing)


def varying_axes(value: Value) -> frozenset[int]:
    """Axes along which a constant is not uniform (all of them where its entries are not at hand)."""
    if value.constant is None:
        return frozenset(axis for axis, size in enumerate(value.shape) if size > 1)
    if value.varying is None:
        constant = value.constant
        value.varying = frozenset(
            axis for axis, size in enumerate(constant.shape)
            if size > 1 and not bool((constant == constant.narrow(axis, 0, 1)).all())
        )  # fmt: skip
    return value.varying


def _effective(pattern: Pattern, value: Value) -> Pattern:
    """The pattern less the axes along which the value is a uniform constant."""
    if not value.known:
        return pattern
    axes = varying_axes(value)
    return tuple(axis if index in axes else () for index, axis in enumerate(pattern))


def letter_sizes(law: Law, values: list[Value], op: Op) -> dict[str, int]:
    """Size of every letter: as given, or of the axis on which it stands alone."""
    sizes = dict(law.sizes)
    shaped = [*zip(law.operands, values, strict=True), *zip(law.results, op.results, strict=False)]
    for pattern, value in shaped:
        for axis, size in zip(pattern or (), value.shape, strict=bool(pattern)):
            if isinstance(axis, str):
                sizes[axis] = size
            elif isinstance(axis, tuple) and len(axis) == 1 and isinstance(axis[0], str):
                sizes[axis[0]] = size
    return sizes


class _Binder:
    """Finds the space of every letter of one law."""

    def __init__(self, sizes: dict[str, int]) -> None:
        self.sizes = sizes
        self.letters: dict[str, IndexSpace] = {}

    def size(self, axis: Axis) -> int:
        if isinstance(axis, str):
            return self.sizes[axis]
        if isinstance(axis, Cat):
            return sum(self.size(part) for part in axis.parts)
        total = 1
        for part in axis:
            total *= self.size(part)
        return total

    def bind(self, axis: Axis, space: IndexSpace) -> None:
        """Tie the letters of an operand's axis to its space."""
        if isinstance(axis, str):
            if axis in self.letters:
                unify(self.letters[axis], space)
            self.letters[axis] = space.root()
        elif isinstance(axis, Cat):
            for part, piece in zip(axis.parts, split(space, [self.size(part) for part in axis.parts]), strict=True):
                self.bind(part, piece)
        else:
            parts = [part for part in axis if self.size(part) != 1]
            for part, piece in zip(parts, factor(space, [self.size(part) for part in parts]), strict=True):
                self.bind(part, piece)

    def make(self, axis: Axis) -> IndexSpace | None:
        """The space of a result's axis."""
        if isinstance(axis, str):
            if axis not in self.letters:
                self.letters[axis] = fresh(self.sizes[axis])
            return self.letters[axis].root()
        if isinstance(axis, Cat):
            return direct_sum([self.make(part) or fresh(1) for part in axis.parts])
        parts = [made for part in axis if (made := self.make(part)) is not None]
        return product(parts) if parts else None


def _unify_law(op: Op, law: Law, values: list[Value], typing: Typing) -> None:
    binder = _Binder(letter_sizes(law, values, op))
    aware = _bind_pointers(law, values, binder, typing)
    patterns: list[Pattern | None] = []
    constants: list[tuple[str, Value]] = []
    for pattern, value in zip(law.operands, values, strict=True):
        if pattern is None or value.known:
            effective = None if pattern is None else _effective(pattern, value)
            patterns.append(effective)
            constants += [(letter, value) for letter in pattern_letters(effective or ())]
            continue
        patterns.append(pattern)
        for axis, space in zip(pattern, typing.types[value], strict=True):
            if space is not None:
                binder.bind(axis, space)
    for pattern, value in zip(law.results, op.results, strict=False):
        if pattern is None:
            typing.types[value] = tuple(None if size == 1 else fresh(size, anchored=True) for size in value.shape)
        else:
            typing.types[value] = tuple(binder.make(axis) for axis in pattern)
    applied = Applied(op, law, binder.letters, values, tuple(patterns))
    typing.applied.append(applied)
    typing.records.extend(_records(applied, constants))
    _note_pointers(applied, aware, typing)


def _bind_pointers(law: Law, values: list[Value], binder: _Binder, typing: Typing) -> set[Value]:
    """Give the letters of pointed spaces their spaces; the operands whose meaning the law knows of."""
    mentioned = {letter for pair in (*law.implies, *law.points) if pair for letter in pair}
    for pattern in (*law.operands, *law.results):
        mentioned.update(pattern_letters(pattern or ()))
    aware: set[Value] = set()
    for index, value in enumerate(values):
        if value in typing.pointers and f"p{index}" in mentioned:
            binder.sizes[f"p{index}"] = typing.pointers[value][1].size
            binder.letters[f"p{index}"] = typing.pointers[value][1].root()
            aware.add(value)
    return aware


def _note_pointers(applied: Applied, aware: set[Value], typing: Typing) -> None:
    """What the results point to. Integers that an operator reads as numbers fix the space that they point to."""
    op, law, letters = applied.op, applied.law, applied.letters
    for value, meaning in zip(op.results, law.points, strict=False):
        if meaning is not None and meaning[1] in letters:
            typing.pointers[value] = (meaning[0], letters[meaning[1]])
    for table, pairs in ((typing.implied, law.implies), (typing.follows, law.follows)):
        table += [(letters[s], letters[e]) for s, e in pairs if s in letters and e in letters]
    for value in applied.operands:
        if value not in typing.pointers or value in aware:
            continue
        if carries(str(op.target)):
            typing.pointers[op.results[0]] = typing.pointers[value]
        else:
            reason = "its indices are used as numbers"
            typing.records.append(Record(typing.pointers[value][1], Structure.FIXED, op.origin, reason))


def _records(applied: Applied, constants: list[tuple[str, Value]]) -> Iterator[Record]:
    op, law, letters = applied.op, applied.law, applied.letters
    found: dict[Any, Record] = {}

    def note(letter: str, structure: Structure, reason: str, operators: Tensor | None = None) -> None:
        space = letters.get(letter)
        if space is None:
            return
        if structure is Structure.ANCHOR:
            anchor(space)
        elif not space.root().inert and (letter, structure) not in found:
            found[letter, structure] = Record(space, structure, op.origin, reason, operators)

    for use in law.uses:
        note(use.letter, use.structure, use.reason, use.operators)
    for letter, structure, reason in law.structures(applied.patterns):
        note(letter, structure, reason)
    for letter, _ in constants:
        note(letter, Structure.FIXED, "a constant that differs along the axis")
    return iter(found.values())


__all__ = ["Applied", "Record", "Typing", "Unruled", "interpret", "law_of", "letter_sizes", "letters_of", "varying_axes"]
