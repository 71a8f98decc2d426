"""From facts to groups: what is left of GL(n) on every leaf, and which scales and signs.

All equations of all operators are solved exactly: over the rationals for the exponents of scales (and for variance, which is
the same question on a space that keeps no coordinates), over GF(2) for signs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import product as cartesian

import torch

from symgraph.algebra.commutant import coordinate_classes, isotypic_blocks
from symgraph.algebra.groups import Group
from symgraph.frontend.graph import Origin
from symgraph.infer.affine import offsets
from symgraph.infer.dependence import Dependence, dependence
from symgraph.infer.equations import Block, Equation, Layout, Slot, equations
from symgraph.infer.interpret import Record, Typing
from symgraph.infer.ir import Program, Value
from symgraph.infer.linear import Elimination, Row
from symgraph.infer.pinned import records as pinned_records
from symgraph.infer.pinned import release
from symgraph.infer.spaces import IndexSpace
from symgraph.rules.law import Structure

Blocks = tuple[tuple[str, tuple[tuple[int, ...], ...]], ...]


@dataclass(eq=False)
class Leaf:
    """A leaf with its group. ``exponents`` and ``signs`` are generators: weight by slot of a parameter or buffer."""

    space: IndexSpace
    group: Group
    per: tuple[IndexSpace, ...] = ()
    blocks: Blocks = ()
    partition: tuple[tuple[int, ...], ...] = ()
    variance: dict[Slot, int] = field(default_factory=dict)
    exponents: list[Row] = field(default_factory=list)
    signs: list[Row] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)


@dataclass(eq=False)
class TensorLayout:
    """A parameter or buffer: for every axis its space (None: size one), and the slots of every block."""

    name: str
    value: Value
    axes: tuple[IndexSpace | None, ...]
    blocks: dict[Block, list[tuple[Slot, IndexSpace]]]

    def whole(self, block: Block) -> Slot:
        """The slot of the block as a whole."""
        return (id(self.value), block, -1, 0)


@dataclass(eq=False)
class Solution:
    """Leaves by index space, whole-tensor generators, and the tensors they stand on.

    ``approximate`` ones scale ``tensor + offset`` for tensors in ``offsets``.
    """

    leaves: dict[IndexSpace, Leaf]
    tensors: list[TensorLayout]
    exponents: list[Row]
    signs: list[Row]
    approximate: list[Row]
    layout: Layout
    offsets: dict[str, float]

    @cached_property
    def carriers(self) -> dict[IndexSpace, list[TensorLayout]]:
        """Tensors on which every leaf stands."""
        found: dict[IndexSpace, dict[str, TensorLayout]] = {}
        for tensor in self.tensors:
            for entries in tensor.blocks.values():
                for _, leaf in entries:
                    found.setdefault(leaf, {})[tensor.name] = tensor
        return {leaf: list(each.values()) for leaf, each in found.items()}

    @cached_property
    def by_value(self) -> dict[int, TensorLayout]:
        """Tensors by the identity of their value, which slots begin with."""
        return {id(tensor.value): tensor for tensor in self.tensors}


class _Systems:
    """One elimination for every leaf and two for whole tensors; over the rationals and over GF(2).

    ``adding`` are operators that add a number to a parameter: loosely, it is the sum that is scaled.
    """

    def __init__(self, learned: set[int], adding: set[int]) -> None:
        self.learned = learned
        self.adding = adding
        self.real: dict[IndexSpace | None, Elimination] = {}
        self.sign: dict[IndexSpace | None, Elimination] = {}
        self.loose = Elimination(0, self._prefer)
        self.zeroed: dict[IndexSpace, list[Record]] = {}
        self.joined: dict[tuple[int, ...], torch.Tensor] = {}
        self.isotypic: dict[int, list[tuple[str, tuple[tuple[int, ...], ...]]] | None] = {}

    def _prefer(self, slot: object) -> bool:
        return isinstance(slot, tuple) and slot[0] in self.learned

    def _activation(self, slot: object) -> bool:
        """Signs of activations as the free ones: a flip between two norms is a generator, not one of all that follows."""
        return not self._prefer(slot)

    def system(self, table: dict[IndexSpace | None, Elimination], leaf: IndexSpace | None, modulo: int) -> Elimination:
        if leaf not in table:
            table[leaf] = Elimination(modulo, self._activation if leaf is None and modulo else self._prefer)
        return table[leaf]

    def add(self, equation: Equation) -> None:
        real = self.system(self.real, equation.leaf, 0)
        sign = self.system(self.sign, equation.leaf, 2)
        changed = _scale_equations(real, equation)
        if changed and equation.leaf is not None:
            self._note(equation)
        _sign_equations(sign, equation)
        if equation.leaf is None and not equation.soft and not (id(equation.source.op) in self.adding and not equation.entries):
            _scale_equations(self.loose, equation)

    def _note(self, equation: Equation) -> None:
        """Remember an operator by which a slot lost its freedom: a tensor contracted with itself."""
        entries = equation.entries
        itself = len(entries) == 2 and entries[0][0] == entries[1][0]
        if itself and equation.result is None and equation.leaf is not None:
            record = Record(equation.leaf, Structure.INNER, equation.source.op.origin, "a tensor contracted with itself")
            self.zeroed.setdefault(equation.leaf, []).append(record)

    def operators(self, space: IndexSpace, records: list[Record]) -> torch.Tensor | None:
        """All fixed operators along the leaf; where they act on a space that was split since, every coordinate is used."""
        found = {id(record.operators): record.operators for record in records if record.operators is not None}
        if not found:
            return None
        fitting = [matrices for matrices in found.values() if matrices.shape[-1] == space.size]
        if len(fitting) < len(found):
            return torch.ones(1, space.size, space.size, dtype=torch.float64)
        key = tuple(sorted(found))
        if key not in self.joined:
            self.joined[key] = torch.cat(fitting)
        return self.joined[key]

    def blocks(self, matrices: torch.Tensor) -> list[tuple[str, tuple[tuple[int, ...], ...]]] | None:
        """Isotypic blocks, found once for operators that many leaves share."""
        if id(matrices) not in self.isotypic:
            self.isotypic[id(matrices)] = isotypic_blocks(matrices)
        return self.isotypic[id(matrices)]

    def anchor(self, slot: Slot, leaf: IndexSpace | None = None) -> None:
        for table, modulo in ((self.real, 0), (self.sign, 2)):
            self.system(table, leaf, modulo).equation([(slot, 1)])
        if leaf is None:
            self.loose.equation([(slot, 1)])


def _scale_equations(system: Elimination, equation: Equation) -> bool:
    """Exponents; True where an unknown became zero by itself."""
    terms: list[tuple[Slot, Fraction | int]] = []
    zero = False
    for slot, entry in equation.entries:
        if entry.degree is None:
            zero |= system.equation([(slot, 1)])
        elif entry.degree:
            terms.append((slot, entry.degree))
    if equation.result is not None:
        terms.append((equation.result, -1))
    if terms and system.equation(terms):
        zero |= not system.expression(terms[0][0])
    return zero


def _sign_equations(system: Elimination, equation: Equation) -> None:
    terms = []
    for slot, entry in equation.entries:
        if entry.parity is None:
            system.equation([(slot, 1)])
        elif entry.parity:
            terms.append((slot, 1))
    if equation.result is not None:
        terms.append((equation.result, 1))
    if terms:
        system.equation(terms)


def solve(program: Program, typing: Typing, epsilons: bool = True) -> Solution:
    """Groups, generators and dependence of all leaves that stand on a parameter or buffer.

    Without ``epsilons`` it is as if they all were zero.
    """
    layout = Layout()
    pinned = release(program, typing, layout)
    tensors = [_tensor(name, value, typing, layout) for name, value in program.tensors.items()]
    shifted = offsets(program)
    systems = _Systems({id(value) for value in program.tensors.values()}, {id(op) for _, ops in shifted.values() for op in ops})
    for applied in typing.applied:
        for equation in equations(applied, layout, typing.types):
            if epsilons or not equation.soft:
                systems.add(equation)
    read = {value for op in program.ops for value in op.operands}
    idle = [value for value in program.tensors.values() if value not in read]
    for value in (*program.inputs, *program.outputs, *idle):
        _anchor_value(value, typing, layout, systems, pinned)
    near = _ordered(dependence(typing.applied, layout, typing.implied), tensors)
    typing.records.extend(pinned_records(pinned, typing))
    leaves = _leaves(tensors, near, _records(typing, layout, systems), systems)
    wholes = [tensor.whole(block) for tensor in tensors for block in tensor.blocks]
    exact = systems.system(systems.real, None, 0).basis(wholes)
    loose = systems.loose.basis(wholes)
    signs = systems.system(systems.sign, None, 2).basis(wholes)
    return Solution(leaves, tensors, exact, signs, loose, layout, {value.tensor: each for value, (each, _) in shifted.items()})


def _ordered(near: Dependence, tensors: list[TensorLayout]) -> Dependence:
    """Dependence without cycles, and closed: what a space depends on may depend on nothing more.

    Where two spaces stand next to each other everywhere, the one that is met later depends on the earlier one.
    """
    met = dict.fromkeys(leaf for tensor in tensors for entries in tensor.blocks.values() for _, leaf in entries)
    found: Dependence = {}
    for leaf in met:
        allowed = {other for other in near.get(leaf, frozenset()) if other in met}
        earlier = {other for other in allowed if other in found or leaf not in near.get(other, frozenset())}
        found[leaf] = frozenset(earlier)
    changed = True
    while changed:
        changed = False
        for leaf, others in found.items():
            closed = frozenset(other for other in others if found[other] <= others)
            if closed != others:
                found[leaf], changed = closed, True
    return found


def _tensor(name: str, value: Value, typing: Typing, layout: Layout) -> TensorLayout:
    axes = tuple(None if space is None else space.root() for space in typing.types[value])
    choices = [list(enumerate(layout.of(space))) if space is not None else [(0, ())] for space in axes]
    blocks: dict[Block, list[tuple[Slot, IndexSpace]]] = {}
    for choice in cartesian(*choices):
        block = tuple(index for index, _ in choice)
        blocks[block] = [((id(value), block, axis, position), leaf) for axis, (_, branch) in enumerate(choice)
                         for position, leaf in enumerate(leaf for leaf in branch if not leaf.anchored)]  # fmt: skip
    return TensorLayout(name, value, axes, blocks)


def _anchor_value(value: Value, typing: Typing, layout: Layout, systems: _Systems, pinned: frozenset[IndexSpace]) -> None:
    """No scale on any block of a value, nor along its pinned axes."""
    spaces = typing.types.get(value)
    if spaces is None:
        return
    for choice in cartesian(*(list(enumerate(layout.of(space))) if space is not None else [(0, ())] for space in spaces)):
        block = tuple(index for index, _ in choice)
        systems.anchor((id(value), block, -1, 0))
        for axis, (_, branch) in enumerate(choice):
            for position, leaf in enumerate(leaf for leaf in branch if not leaf.anchored):
                if leaf in pinned:
                    systems.anchor((id(value), block, axis, position), leaf)


def _records(typing: Typing, layout: Layout, systems: _Systems) -> dict[IndexSpace, list[Record]]:
    found: dict[IndexSpace, list[Record]] = {}
    for record in typing.records:
        for part, own in _restricted(record):
            for branch in layout.of(part):
                for leaf in branch:
                    if not leaf.anchored:
                        found.setdefault(leaf, []).append(own)
    for first, second in typing.follows:
        _order_fixes(first, second, found, layout)
    for leaf, records in systems.zeroed.items():
        found.setdefault(leaf, []).extend(records)
    return found


def _restricted(record: Record) -> list[tuple[IndexSpace, Record]]:
    """A record for every summand of a space: operators that do not mix summands act on each by themselves."""
    root, matrices = record.space.root(), record.operators
    if matrices is None or root.kind != "sum":
        return [(root, record)]
    found: list[tuple[IndexSpace, Record]] = []
    start = 0
    for part in root.parts:
        inside = slice(start, start + part.size)
        start = inside.stop
        outside = torch.ones(root.size, dtype=torch.bool)
        outside[inside] = False
        if bool(matrices[:, inside][:, :, outside].any()) or bool(matrices[:, outside][:, :, inside].any()):
            return [(root, record)]
        own = matrices[:, inside, inside]
        if not torch.equal(own, torch.eye(part.size, dtype=own.dtype).expand_as(own)):
            found += _restricted(replace(record, space=part, operators=own))
    return found


def _order_fixes(
    first: IndexSpace, second: IndexSpace, found: dict[IndexSpace, list[Record]], layout: Layout
) -> None:
    """Where the order along an axis is used, the order of the space that it follows is."""
    leaves = [leaf for branch in layout.of(first) for leaf in branch]
    reasons = [record for leaf in leaves for record in found.get(leaf, []) if record.structure is Structure.FIXED]
    if reasons or any(leaf.anchored for leaf in leaves):
        origin = reasons[0].origin if reasons else Origin("sort")
        for leaf in {leaf for branch in layout.of(second) for leaf in branch if not leaf.anchored}:
            reason = "the order of what is sorted by it is used"
            found.setdefault(leaf, []).append(Record(leaf, Structure.FIXED, origin, reason))


def _leaves(
    tensors: list[TensorLayout], near: Dependence, records: dict[IndexSpace, list[Record]], systems: _Systems
) -> dict[IndexSpace, Leaf]:
    slots: dict[IndexSpace, list[Slot]] = {}
    for tensor in tensors:
        for entries in tensor.blocks.values():
            for slot, leaf in entries:
                slots.setdefault(leaf, []).append(slot)
    outer = {other for leaf in slots for other in near.get(leaf, frozenset()) if other in slots}
    return {leaf: _leaf(leaf, own, near, records.get(leaf, []), systems, leaf in outer) for leaf, own in slots.items()}


def _leaf(
    space: IndexSpace, slots: list[Slot], near: Dependence, records: list[Record], systems: _Systems, outer: bool
) -> Leaf:
    structures = {record.structure for record in records}
    if outer or space.size == 1:
        structures.add(Structure.COORDINATES)
    matrices = systems.operators(space, records)
    per = tuple(near.get(space, frozenset()))
    leaf = Leaf(space, Group.TRIVIAL, per, records=records)
    real = systems.system(systems.real, space, 0)
    variance = _variance(slots, real)
    if matrices is not None and Structure.COORDINATES not in structures and Structure.FIXED not in structures:
        blocks = systems.blocks(matrices)
        if blocks is not None and Structure.ONES not in structures:
            leaf.blocks = tuple((kind, coordinates) for kind, coordinates in blocks)
            leaf.group = Group.COMMUTANT if variance else Group.ORTHOGONAL_COMMUTANT
            leaf.variance = variance or {}
            return leaf
    if matrices is not None or structures & {Structure.COORDINATES, Structure.FIXED}:
        return _monomial(leaf, slots, structures, matrices, systems)
    if Structure.ONES in structures:
        leaf.group = Group.ORTHOGONAL_FIXING_ONES
    elif variance:
        leaf.group, leaf.variance = Group.GENERAL_LINEAR, variance
    else:
        leaf.group = Group.ORTHOGONAL
    return leaf


def _monomial(
    leaf: Leaf, slots: list[Slot], structures: set[Structure], matrices: torch.Tensor | None, systems: _Systems
) -> Leaf:
    """Permutations (unless every index is used) with the scales and signs that the equations leave."""
    space = leaf.space
    leaf.exponents = systems.system(systems.real, space, 0).basis(slots)
    leaf.signs = systems.system(systems.sign, space, 2).basis(slots)
    if matrices is not None:
        leaf.partition = tuple(tuple(members) for members in coordinate_classes(matrices))
    fixed = Structure.FIXED in structures or matrices is not None or space.size == 1
    if fixed:
        leaf.group = Group.DIAGONAL if leaf.exponents or leaf.signs else Group.TRIVIAL
    elif leaf.exponents:
        leaf.group = Group.MONOMIAL if leaf.signs else Group.POSITIVE_MONOMIAL
    else:
        leaf.group = Group.SIGNED_PERMUTATION if leaf.signs else Group.PERMUTATION
    return leaf


def _variance(slots: list[Slot], system: Elimination) -> dict[Slot, int] | None:
    """+1 or -1 for every slot such that every contraction pairs the two; None where there is no such choice."""
    found: dict[Slot, int] = {}
    for slot in slots:
        row = system.expression(slot)
        if len(row) != 1 or next(iter(row.values())) not in (1, -1):
            return None
        found[slot] = int(next(iter(row.values())))
    first = next(iter(found.values()))
    return {slot: value * first for slot, value in found.items()}


def slots(tensor: TensorLayout) -> Iterator[Slot]:
    """All slots of a tensor."""
    for block, entries in tensor.blocks.items():
        yield tensor.whole(block)
        for slot, _ in entries:
            yield slot
