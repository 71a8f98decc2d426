"""Gains that can be folded into what reads or writes the axis they stand on.

``W (gamma * x)`` is ``(W diag(gamma)) x``: where every reader of a gain's product contracts the axis with a weight that is
used for nothing else, the gain can be set to one, and the axis keeps the group it has without the gain. The same on the
writing side: ``s * (W x + b)`` is ``(diag(s) W) x + s b``. A bias that is added on the way is divided, so that the norm stays a
norm with a bias.

The walk knows laws only: a letter that passes, a letter that is contracted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch

from symgraph.frontend.graph import Origin
from symgraph.infer.affine import affine
from symgraph.infer.interpret import law_of, letter_sizes
from symgraph.infer.ir import Op, Program, Value
from symgraph.rules import Law, Structure
from symgraph.rules.law import Axis, Pattern, letters_of

aten = torch.ops.aten


@dataclass(frozen=True)
class Place:
    """Where a vector stands on an axis: tiled ``outer`` times, every entry repeated ``inner`` times."""

    axis: int
    outer: int = 1
    inner: int = 1


@dataclass(frozen=True)
class Fold:
    """A tensor that takes over the gain to some power at a place."""

    tensor: str
    place: Place
    power: int


@dataclass(frozen=True)
class Absorbed:
    """One gain: ``multiplier * source + offset`` becomes one."""

    source: str
    direction: str
    multiplier: float
    offset: float
    folds: tuple[Fold, ...]
    origin: Origin


class _FailedError(Exception):
    """The gain cannot be folded this way."""


@dataclass
class _Walk:
    """Operators that one attempt has accounted for, and the tensors that take over."""

    users: dict[Value, list[Op]]
    seen: set[int] = field(default_factory=set)
    folds: dict[Fold, None] = field(default_factory=dict)
    chains: list[Value] = field(default_factory=list)


def absorb(program: Program) -> list[Absorbed]:
    """Fold every gain that can be; its product becomes a copy in the program."""
    users = program.users()
    laws = _Laws()
    parametric = _parametric(program)
    found: list[Absorbed] = []
    for name, value in program.tensors.items():
        if value.buffer or sum(size > 1 for size in value.shape) != 1:
            continue
        products = _products(value, users, laws, parametric)
        if not products:
            continue
        for direction, attempt in (("readers", _forward), ("writers", _backward)):
            folded = _try(program, name, value, products, direction, attempt, users, laws, parametric)
            if folded is not None:
                found.append(folded)
                break
    program.prune()
    return found


class _Laws:
    """Laws of operators, looked up once."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[Law | None, list[Value], dict[str, int]]] = {}
        self.keep: list[Op] = []

    def __call__(self, op: Op) -> tuple[Law, list[Value], dict[str, int]]:
        if id(op) not in self.known:
            law, values = law_of(op)
            self.known[id(op)] = (law, values, letter_sizes(law, values, op) if law is not None else {})
            self.keep.append(op)
        law, values, sizes = self.known[id(op)]
        if law is None:
            raise _FailedError
        return law, values, sizes


def _parametric(program: Program) -> set[int]:
    """Values that depend on parameters only."""
    found = {id(value) for value in program.tensors.values()}
    for op in program.ops:
        if op.operands and all((value.known and not value.data) or id(value) in found for value in op.operands):
            found.update(id(value) for value in op.results)
    return found


_PRODUCTS = {aten.mul.Tensor}


def _products(
    value: Value, users: dict[Value, list[Op]], laws: _Laws, parametric: set[int]
) -> list[tuple[Op, Value, int]]:
    """All products ``x * gain`` that read the tensor: (operator, x, axis of the result); none if it is read otherwise."""
    found: list[tuple[Op, Value, int]] = []
    pending = [value]
    while pending:
        gain = pending.pop()
        for op in users.get(gain, []):
            if op.target in _PRODUCTS and len(op.operands) == 2 and op.operands[0] is not op.operands[1]:
                x = op.operands[1] if op.operands[0] is gain else op.operands[0]
                if id(x) not in parametric and (not x.known or x.data):
                    shape = op.results[0].shape
                    padded = (1,) * (len(shape) - len(gain.shape)) + gain.shape
                    axes = [axis for axis, size in enumerate(padded) if size > 1]
                    if len(axes) != 1 or x.shape != shape:
                        return []
                    found.append((op, x, axes[0]))
                    continue
            active = any(id(each) not in parametric and (not each.known or each.data) for each in op.operands)
            if active or len(op.results) != 1:
                return []
            if op.results[0].shape != gain.shape and sum(size > 1 for size in op.results[0].shape) != 1:
                return []
            pending.append(op.results[0])
    return found


def _gain(value: Value, op: Op, parametric: set[int]) -> tuple[float, float]:
    """(multiplier, offset) of the gain that a product reads as a function of the tensor."""
    found = affine(next(each for each in op.operands if id(each) in parametric), value)
    if found is None:
        raise _FailedError
    return found


def _try(
    program: Program, name: str, value: Value, products: list[tuple[Op, Value, int]], direction: str,
    attempt: Callable[..., None], users: dict[Value, list[Op]], laws: _Laws, parametric: set[int],
) -> Absorbed | None:  # fmt: skip
    walk = _Walk(users)
    try:
        multiplier, offset = _gain(value, products[0][0], parametric)
        for op, _, _ in products:
            walk.seen.add(id(op))
        for op, x, axis in products:
            start = op.results[0] if direction == "readers" else x
            attempt(start, Place(axis), walk, laws, parametric)
        for each in walk.chains:
            if any(id(op) not in walk.seen for op in users.get(each, [])) or each in program.outputs:
                raise _FailedError
        if any(fold.tensor == name for fold in walk.folds) or not walk.folds:
            raise _FailedError
    except _FailedError:
        return None
    for op, x, _ in products:
        op.target, op.args, op.kwargs = aten.alias.default, (x,), {}
        laws.known.pop(id(op), None)
    return Absorbed(name, direction, multiplier, offset, tuple(walk.folds), products[0][0].origin)


def _locate(axis: Axis, place: Place, sizes: dict[str, int]) -> tuple[str, Place]:
    """The letter of an axis on which the vector stands, and where on the letter."""
    if isinstance(axis, str):
        return axis, place
    if isinstance(axis, tuple) and all(isinstance(part, str) for part in axis):
        if len(axis) == 1:
            return axis[0], place
        before = 1
        for index, part in enumerate(axis):
            after = 1
            for later in axis[index + 1 :]:
                after *= sizes[later]
            if before == place.outer and after == place.inner:
                return part, Place(place.axis)
            before *= sizes[part]
    raise _FailedError


def _stand(letter: str, pattern: Pattern, place: Place, sizes: dict[str, int]) -> Place | None:
    """Where a letter stands on a pattern; None if it does not."""
    for index, axis in enumerate(pattern):
        if axis == letter:
            return replace(place, axis=index)
        if letter in set(letters_of(axis)):
            if not isinstance(axis, tuple) or not all(isinstance(part, str) for part in axis):
                raise _FailedError
            position = axis.index(letter)
            outer = inner = 1
            for part in axis[:position]:
                outer *= sizes[part]
            for part in axis[position + 1 :]:
                inner *= sizes[part]
            return Place(index, outer * place.outer, inner * place.inner)
    return None


def _forward(value: Value, place: Place, walk: _Walk, laws: _Laws, parametric: set[int]) -> None:
    """Follow a product to its readers."""
    walk.chains.append(value)
    if not walk.users.get(value):
        raise _FailedError
    for op in walk.users[value]:
        walk.seen.add(id(op))
        law, values, sizes = laws(op)
        positions = [index for index, each in enumerate(values) if each is value]
        if len(positions) != 1 or len(law.results) != 1 or law.results[0] is None:
            raise _FailedError
        position = positions[0]
        pattern = law.operands[position]
        if pattern is None:
            raise _FailedError
        letter, inner = _locate(pattern[place.axis], place, sizes)
        _refuse_uses(law, letter)
        stays = _stand(letter, law.results[0], inner, sizes)
        if stays is None:
            _contracted(law, values, position, letter, inner, sizes, walk, laws)
        else:
            _passing(law, values, position, letter, inner, sizes, walk, laws, parametric)
            _forward(op.results[0], stays, walk, laws, parametric)


def _refuse_uses(law: Law, letter: str) -> None:
    if letter in law.mixes or letter in law.summands:
        raise _FailedError
    if any(use.letter == letter and use.structure is not Structure.COORDINATES for use in law.uses):
        raise _FailedError


def _contracted(
    law: Law, values: list[Value], position: int, letter: str, place: Place, sizes: dict[str, int], walk: _Walk,
    laws: _Laws,
) -> None:  # fmt: skip
    """The letter is summed against one weight, which takes over the gain."""
    for monomial in law.terms:
        indices = [index for index, _ in monomial.powers]
        if position not in indices:
            continue
        if not all(entry.linear for _, entry in monomial.powers):
            raise _FailedError
        partners = [index for index in indices if index != position and _stand(letter, law.operands[index] or (), place, sizes)]
        if len(partners) != 1:
            raise _FailedError
        stand = _stand(letter, law.operands[partners[0]] or (), place, sizes)
        assert stand is not None
        _weight(values[partners[0]], stand, 1, walk, laws)


def _passing(
    law: Law, values: list[Value], position: int, letter: str, place: Place, sizes: dict[str, int], walk: _Walk,
    laws: _Laws, parametric: set[int],
) -> None:  # fmt: skip
    """The letter stays: nothing else of the same monomial may have it, and what is added must be a bias on it."""
    for monomial in law.terms:
        indices = [index for index, _ in monomial.powers]
        if position in indices:
            others = [index for index in indices if index != position]
            if dict(monomial.powers)[position].linear is False:
                raise _FailedError
            if any(_stand(letter, law.operands[index] or (), place, sizes) for index in others):
                raise _FailedError
            continue
        if len(indices) != 1 or not monomial.powers[0][1].linear or id(values[indices[0]]) not in parametric:
            raise _FailedError
        stand = _stand(letter, law.operands[indices[0]] or (), place, sizes)
        if stand is None:
            raise _FailedError
        _weight(values[indices[0]], stand, -1, walk, laws)


def _weight(value: Value, place: Place, power: int, walk: _Walk, laws: _Laws) -> None:
    """Follow a weight back to the tensor it is, through operators that only rearrange."""
    walk.chains.append(value)
    if value.tensor:
        walk.folds[Fold(value.tensor, place, power)] = None
        return
    op = value.producer
    if op is None:
        raise _FailedError
    walk.seen.add(id(op))
    law, values, sizes = laws(op)
    if len(values) != 1 or len(law.terms) != 1 or law.uses or not all(entry.linear for _, entry in law.terms[0].powers):
        raise _FailedError
    letter, inner = _locate((law.results[0] or ())[place.axis], place, sizes)
    stand = _stand(letter, law.operands[0] or (), inner, sizes)
    if stand is None or letter in law.summands:
        raise _FailedError
    _weight(values[0], stand, power, walk, laws)


def _backward(value: Value, place: Place, walk: _Walk, laws: _Laws, parametric: set[int]) -> None:
    """Follow the factor of a gain to what writes it."""
    op = value.producer
    if op is None or value.tensor or len(op.results) != 1:
        raise _FailedError
    walk.chains.append(value)
    walk.seen.add(id(op))
    law, values, sizes = laws(op)
    letter, inner = _locate((law.results[0] or ())[place.axis], place, sizes)
    _refuse_uses(law, letter)
    if not law.terms:
        raise _FailedError
    for monomial in law.terms:
        owners = [(index, stand) for index, entry in monomial.powers
                  if (stand := _stand(letter, law.operands[index] or (), inner, sizes)) and entry.linear]  # fmt: skip
        if len(owners) != 1 or not all(entry.linear for _, entry in monomial.powers):
            raise _FailedError
        index, stand = owners[0]
        if id(values[index]) in parametric:
            _weight(values[index], stand, 1, walk, laws)
        else:
            _backward(values[index], stand, walk, laws, parametric)
