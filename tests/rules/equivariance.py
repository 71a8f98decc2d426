"""Does a law hold? The claims of a law, worked out anew from its letters, and tried on numbers.

A *slot* is one place where a letter stands: (tensor, block, axis, position in the axis). An element of the group that the
law claims gives every slot a matrix. ``op(g x) == g op(x)`` must hold for sampled elements, and fail for those of the next
larger group. Nothing here is shared with the engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from symgraph.rules import Call, Cat, Law, Operand, Structure
from symgraph.rules.examples import Example
from symgraph.rules.law import pattern_letters

TOLERANCE = 1e-9
Slot = tuple[int, tuple[int, ...], int, int]


@dataclass(eq=False)
class Place:
    """A tensor of the call: the operands (a tensor given twice is one), then the results."""

    value: Tensor
    pattern: tuple[Any, ...]
    known: bool = False
    points: str = ""
    pointed: str = ""

    @property
    def real(self) -> bool:
        return self.value.is_floating_point() or self.value.is_complex()


@dataclass(eq=False)
class Block:
    """A choice of summand on every axis: the letters of every axis, and the slices they stand on."""

    index: tuple[int, ...]
    letters: tuple[tuple[str, ...], ...]
    slices: tuple[slice, ...]

    @property
    def all(self) -> set[str]:
        return {letter for group in self.letters for letter in group}


@dataclass(eq=False)
class Case:
    """One call with its law: the tensors, the sizes of the letters, and which operand is which tensor."""

    call: Call
    law: Law
    run: Any
    tensors: list[Tensor]
    places: list[Place] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    operand_place: list[int] = field(default_factory=list)
    patterns: list[tuple[Any, ...]] = field(default_factory=list)
    same: dict[str, str] = field(default_factory=dict)

    def blocks(self, place: Place, pattern: tuple[Any, ...] | None = None) -> Iterator[Block]:
        """Blocks of a tensor, in the letters of the spaces or in those of a pattern."""
        choices = []
        for axis in place.pattern if pattern is None else pattern:
            parts = axis.parts if isinstance(axis, Cat) else (axis,)
            start, options = 0, []
            for part in parts:
                letters = (part,) if isinstance(part, str) else tuple(part)
                length = 1
                for letter in letters:
                    length *= self.sizes[letter]
                options.append((letters, slice(start, start + length)))
                start += length
            choices.append(list(enumerate(options)))
        for choice in product(*choices):
            yield Block(tuple(i for i, _ in choice), tuple(o[0] for _, o in choice), tuple(o[1] for _, o in choice))

    def letters(self) -> list[str]:
        found: dict[str, None] = {}
        for place in self.places:
            found.update(dict.fromkeys(pattern_letters(place.pattern)))
        return list(found)

    def structures(self, letter: str) -> set[Structure]:
        found = {use.structure for use in self.law.uses if self.same.get(use.letter, use.letter) == letter}
        pairs = zip(self.law.operands, self.patterns, strict=True)
        shown = tuple(pattern if own is not None else None for own, pattern in pairs)
        found |= {structure for name, structure, _ in self.law.structures(shown) if self.same.get(name, name) == letter}
        if any(place.known and letter in pattern_letters(place.pattern) for place in self.places):
            found.add(Structure.FIXED)
        return found


def bind(target: Any, given: Example) -> tuple[Call, list[Tensor], Any, list[Tensor]]:
    """The call as a rule sees it, its tensors, a function of tensors that runs it, and the results."""
    flat, spec = pytree.tree_flatten((list(given.args), dict(given.kwargs)))
    tensors = [leaf for leaf in flat if isinstance(leaf, Tensor)]

    def run(values: list[Tensor]) -> list[Tensor]:
        rest = iter(values)
        leaves = [next(rest).clone() if isinstance(leaf, Tensor) else leaf for leaf in flat]
        args, kwargs = pytree.tree_unflatten(leaves, spec)
        out = target(*args, **kwargs)
        return [out] if isinstance(out, Tensor) else [each for each in out if isinstance(each, Tensor)]

    results = run(tensors)
    operands = []
    for index, tensor in enumerate(tensors):
        integers = not tensor.is_floating_point() and not tensor.is_complex() and tensor.dtype != torch.bool
        known = index in given.constants or (integers and index not in given.points)
        points = given.points.get(index, "")
        operands.append(Operand(index, tuple(tensor.shape), tensor.dtype, tensor if known else None, points))
    rest = iter(operands)
    wrapped = pytree.tree_unflatten([next(rest) if isinstance(leaf, Tensor) else leaf for leaf in flat], spec)
    shapes, dtypes = tuple(tuple(each.shape) for each in results), tuple(each.dtype for each in results)
    return Call(target, tuple(wrapped[0]), wrapped[1], tuple(operands), shapes, dtypes), tensors, run, results


def case(call: Call, law: Law, tensors: list[Tensor], run: Any, results: list[Tensor]) -> Case:
    """The law laid out on the tensors. Letters that stand at the same place of one tensor, given twice, are one space."""
    found = Case(call, law, run, tensors)
    placed: dict[int, int] = {}
    for operand, tensor in zip(call.operands, tensors, strict=True):
        pattern = law.operands[operand.index]
        shown = pattern if pattern is not None else tuple(() for _ in tensor.shape)
        if operand.value is not None and pattern is not None:
            shown = tuple(axis if _varies(tensor, index) else () for index, axis in enumerate(pattern))
        found.patterns.append(shown)
        if id(tensor) in placed:
            first = found.places[placed[id(tensor)]].pattern
            for letter, other in zip(pattern_letters(shown), pattern_letters(first), strict=True):
                found.same[letter] = other
        else:
            placed[id(tensor)] = len(found.places)
            known = operand.value is not None or pattern is None
            found.places.append(Place(tensor, shown, known, operand.points, operand.pointed if operand.points else ""))
        found.operand_place.append(placed[id(tensor)])
    meanings = (*law.points, *(None for _ in results))
    for result, pattern, meaning in zip(results, (*law.results, *(None for _ in results)), meanings, strict=False):
        shown = pattern if pattern is not None else tuple(() for _ in result.shape)
        kind, letter = meaning or ("", "")
        found.places.append(Place(result, shown, pattern is None, kind, letter))
    found.sizes = _sizes(found)
    for place in found.places:
        assert _covered(place, found.sizes), f"pattern {place.pattern} does not fit the shape {tuple(place.value.shape)}"
        place.pattern = _rename(place.pattern, found.same)
    return found


def _varies(tensor: Tensor, axis: int) -> bool:
    return tensor.shape[axis] > 1 and not bool((tensor == tensor.narrow(axis, 0, 1)).all())


def _rename(axis: Any, same: dict[str, str]) -> Any:
    if isinstance(axis, str):
        return same.get(axis, axis)
    return Cat(_rename(axis.parts, same)) if isinstance(axis, Cat) else tuple(_rename(part, same) for part in axis)


def _sizes(found: Case) -> dict[str, int]:
    sizes = dict(found.law.sizes)
    shaped = [*zip(found.patterns, found.tensors, strict=True), *((place.pattern, place.value) for place in found.places)]
    for pattern, value in shaped:
        for axis, size in zip(pattern, value.shape, strict=True):
            if isinstance(axis, str):
                assert sizes.setdefault(axis, size) == size, f"letter {axis} has sizes {sizes[axis]} and {size}"
            elif isinstance(axis, tuple) and len(axis) == 1:
                sizes.setdefault(axis[0], size)
    return sizes


def _covered(place: Place, sizes: dict[str, int]) -> bool:
    def length(axis: Any) -> int:
        if isinstance(axis, str):
            return sizes[axis]
        return sum(map(length, axis.parts)) if isinstance(axis, Cat) else prod(map(length, axis))

    blank = place.known
    return all(length(axis) == size or (blank and axis == ())
               for axis, size in zip(place.pattern, place.value.shape, strict=True))  # fmt: skip


# --- equations --------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Equation:
    """``sum power * slot = result``; result None means zero. ``letter`` empty: whole blocks."""

    letter: str
    entries: list[tuple[Slot, Any]]
    result: Slot | None


def equations(found: Case) -> list[Equation]:
    """All equations of the law for exponents, letter by letter and for whole blocks."""
    out: list[Equation] = []
    count = len(set(found.operand_place))
    for position, pattern in enumerate(found.law.results):
        if pattern is None:
            continue
        for block in found.blocks(found.places[count + position], pattern):
            for monomial in found.law.terms:
                out += _of_term(found, monomial, count + position, block)
    return out


def _of_term(found: Case, monomial: Any, position: int, block: Block) -> list[Equation]:
    owned = {letter for index, _ in monomial.powers for letter in pattern_letters(found.law.operands[index] or ())}
    summands = found.law.summands
    if any(letter in summands and letter not in owned for letter in block.all):
        return []
    absent = summands - block.all
    options = []
    for index, entry in monomial.powers:
        place = found.operand_place[index]
        blocks = [each for each in found.blocks(found.places[place], found.patterns[index]) if not each.all & absent]
        options.append([(place, entry, each) for each in blocks])
    out = []
    for choice in product(*options):
        letters = dict.fromkeys([*(letter for _, _, each in choice for group in each.letters for letter in group),
                                 *(letter for group in block.letters for letter in group)])  # fmt: skip
        for letter in letters:
            entries = [(slot, entry) for place, entry, each in choice for slot in _slots(place, each, letter)]
            results = _slots(position, block, letter)
            out += [Equation(found.same.get(letter, letter), entries, result) for result in results or [None]]
        wholes = [((place, each.index, -1, 0), entry) for place, entry, each in choice]
        out.append(Equation("", wholes, (position, block.index, -1, 0)))
    return out


def _slots(place: int, block: Block, letter: str) -> list[Slot]:
    return [(place, block.index, axis, position) for axis, group in enumerate(block.letters)
            for position, each in enumerate(group) if each == letter]  # fmt: skip


def slots(found: Case, letter: str) -> list[Slot]:
    """All slots of a letter; of whole blocks for the empty one."""
    if not letter:
        return [(index, block.index, -1, 0) for index, place in enumerate(found.places) for block in found.blocks(place)]
    return [slot for index, place in enumerate(found.places) for block in found.blocks(place)
            for slot in _slots(index, block, letter)]  # fmt: skip


def exponents(found: Case, letter: str) -> tuple[list[Slot], Tensor]:
    """Slots, and a basis [generators, slots] of the exponents that the law allows."""
    unknown = slots(found, letter)
    column = {slot: index for index, slot in enumerate(unknown)}
    rows: list[Tensor] = []

    def row(*entries: tuple[Slot, float]) -> None:
        line = torch.zeros(len(unknown), dtype=torch.float64)
        for slot, weight in entries:
            line[column[slot]] += weight
        rows.append(line)

    for equation in equations(found):
        if equation.letter != letter:
            continue
        weighted = []
        for slot, entry in equation.entries:
            if entry.degree is None:
                row((slot, 1.0))
            elif entry.degree:
                weighted.append((slot, float(entry.degree)))
        if equation.result is not None and not found.places[equation.result[0]].real:
            continue
        if weighted or equation.result is not None:
            row(*weighted, *([(equation.result, -1.0)] if equation.result is not None else []))
    for slot in unknown:
        place = found.places[slot[0]]
        if place.known or not place.real:
            row((slot, 1.0))
    return unknown, null_space(torch.stack(rows) if rows else torch.zeros(0, len(unknown), dtype=torch.float64), len(unknown))


def null_space(matrix: Tensor, width: int, tolerance: float = 1e-9) -> Tensor:
    """A basis, as rows."""
    if not matrix.shape[0]:
        return torch.eye(width, dtype=torch.float64)
    _, values, rows = torch.linalg.svd(matrix, full_matrices=True)
    rank = int((values > tolerance * max(1.0, float(values.max()))).sum()) if values.numel() else 0
    return rows[rank:]


def signs(found: Case, letter: str) -> tuple[list[Slot], list[tuple[int, ...]]]:
    """Slots, and all assignments of signs that the law allows."""
    unknown = slots(found, letter)
    free = [index for index, slot in enumerate(unknown) if found.places[slot[0]].real and not found.places[slot[0]].known]
    relevant = [equation for equation in equations(found) if equation.letter == letter]
    allowed = []
    for choice in product((0, 1), repeat=len(free)):
        bits = dict.fromkeys(unknown, 0)
        bits.update({unknown[index]: bit for index, bit in zip(free, choice, strict=True)})
        if all(_even(found, equation, bits) for equation in relevant):
            allowed.append(tuple(1 - 2 * bits[slot] for slot in unknown))
    return unknown, allowed


def _even(found: Case, equation: Equation, bits: dict[Slot, int]) -> bool:
    total = 0
    for slot, entry in equation.entries:
        if entry.parity is None and bits[slot]:
            return False
        total += bits[slot] if entry.parity else 0
    return (total + (bits[equation.result] if equation.result is not None else 0)) % 2 == 0


# --- elements ---------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Element:
    """Matrices [p, n, n] by slot, one for every index of ``per`` (or one); numbers by whole block; permutations by letter."""

    matrices: dict[Slot, Tensor] = field(default_factory=dict)
    per: dict[str, str] = field(default_factory=dict)
    numbers: dict[Slot, float] = field(default_factory=dict)
    permutations: dict[str, Tensor] = field(default_factory=dict)


def act(found: Case, element: Element, position: int) -> Tensor:
    """The tensor at a position, moved by the element."""
    place = found.places[position]
    value = place.value
    if place.pointed in element.permutations and not place.real:
        value = torch.argsort(element.permutations[place.pointed]).to(value.dtype)[value.long()]
    if place.known:
        return value
    wide = value.clone() if value.is_complex() else value.to(torch.float64).clone()
    for block in found.blocks(place):
        names = [letter for group in block.letters for letter in group]
        piece = wide[block.slices].reshape([found.sizes[name] for name in names])
        own = [(name, slot) for name in dict.fromkeys(names) for slot in _slots(position, block, name)]
        own.sort(key=lambda item: item[0] in element.per.values())  # what others depend on moves last
        for name, slot in own:
            if slot in element.matrices:
                piece = _along(piece, element.matrices[slot], names, slot, block, element.per.get(name))
        piece = piece * element.numbers.get((position, block.index, -1, 0), 1.0)
        wide[block.slices] = piece.reshape(wide[block.slices].shape)
    return wide if place.real else wide.round().to(value.dtype)


def _along(piece: Tensor, matrices: Tensor, names: list[str], slot: Slot, block: Block, per: str | None) -> Tensor:
    axis = sum(len(group) for group in block.letters[: slot[2]]) + slot[3]
    moved = piece.movedim(axis, -1).unsqueeze(-1)
    matrices = matrices.to(piece.dtype)
    if matrices.shape[0] > 1:
        assert per is not None
        assert names.count(per) == 1, f"{per} does not stand next to {names[axis]}"
        outer = names.index(per)
        outer -= outer > axis
        shape = [1] * (moved.dim() - 2)
        shape[outer] = matrices.shape[0]
        matrices = matrices.reshape(*shape, *matrices.shape[1:])
    else:
        matrices = matrices[0]
    return (matrices @ moved).squeeze(-1).movedim(-1, axis)


def holds(found: Case, element: Element) -> bool:
    """Whether the operator commutes with the element."""
    moved = [act(found, element, place) for place in found.operand_place]
    try:
        actual = found.run(moved)
    except (RuntimeError, IndexError):
        return False
    count = len(set(found.operand_place))
    for offset, result in enumerate(actual):
        place = found.places[count + offset]
        if not close(result, act(found, element, count + offset), exact=not place.real):
            return False
    return True


def close(actual: Tensor, expected: Tensor, exact: bool = False, tolerance: float = TOLERANCE) -> bool:
    """Equal up to the tolerance, relative to the largest finite magnitude; infinities must agree."""
    if actual.shape != expected.shape:
        return False
    if exact:
        return torch.equal(actual, expected.to(actual.dtype))
    finite = expected.isfinite()
    if bool(expected.isnan().any()) or not torch.equal(finite, actual.isfinite()):
        return False
    if not torch.equal(actual[~finite], expected[~finite].to(actual.dtype)):
        return False
    scale = float(expected[finite].abs().max()) if bool(finite.any()) else 1.0
    limit = max(tolerance, 32 * torch.finfo(actual.dtype).eps)
    return bool(((actual[finite] - expected[finite]).abs() <= limit * scale).all())
