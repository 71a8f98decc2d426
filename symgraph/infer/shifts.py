"""Translations of parameters that the function does not see.

Three kinds, each found by following changes through the laws (:mod:`symgraph.infer.flow`):

    ignored    a change that an operator ignores: a constant added along the axis of a softmax or of a mean subtraction
    exchanged  a change of one parameter that another takes back: two biases of one sum, a value bias and the output bias
    unread     a weight along a direction in which what it reads is constant: what comes out of a mean subtraction sums to
               zero, so adding the same number to a whole row changes nothing (or a constant, which a bias takes back)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch

from symgraph.infer.changes import Change, Read, Taken
from symgraph.infer.documents import Family, along, divided, write
from symgraph.infer.flow import Flow
from symgraph.infer.frames import BrokenError, Frame, Runs, assign, constant, is_constant, pattern_frame
from symgraph.infer.frames import Run as FrameRun
from symgraph.infer.interpret import Typing
from symgraph.infer.ir import Op, Program, Value
from symgraph.infer.naming import unique
from symgraph.infer.operators import still
from symgraph.infer.solve import Solution
from symgraph.infer.spaces import IndexSpace
from symgraph.rules.law import Law, Structure, pattern_letters
from symgraph.spec import model

aten = torch.ops.aten


def find_shifts(program: Program, typing: Typing, solution: Solution) -> list[model.Shift]:
    """All translations, each direction once."""
    flow = Flow(program, typing, solution)
    free = _untouched(typing, solution)
    families: list[Family] = []
    for name, value in program.tensors.items():
        if flow.users.get(value):
            for frame in flow.frames(value, free):
                families += _of_window(flow, name, value, frame)
    families += _unread(flow, families)
    taken: set[str] = set()
    written = [write(family, unique(f"{family.tensor}.{family.kind}", taken)) for family in families]
    return written + list(_projective(flow, families))


def _untouched(typing: Typing, solution: Solution) -> dict[IndexSpace, list[tuple[int, int]]]:
    """Leaves under fixed operators, cut into runs of coordinates that the operators move and leave alone."""
    found: dict[IndexSpace, list[tuple[int, int]]] = {}
    for leaf, solved in solution.leaves.items():
        matrices = [record.operators for record in solved.records
                    if record.structure is Structure.OPERATOR and record.operators is not None]  # fmt: skip
        if not matrices or any(each.shape[-1] != leaf.size for each in matrices):
            continue
        same = torch.stack([still(each) for each in matrices]).all(0).tolist()
        cuts = [0, *(index for index in range(1, leaf.size) if same[index] != same[index - 1]), leaf.size]
        found[leaf] = list(pairwise(cuts))
    return found


def _of_window(flow: Flow, name: str, value: Value, frame: Frame) -> list[Family]:
    """Families that start at one window of a tensor."""
    whole = flow.named(frame)
    taken = _try(flow, value, whole)
    if taken is not None and not taken:
        return [Family("ignored", name, whole, ())]
    found: list[Family] = []
    ignored: list[int] = []
    for axis, runs in enumerate(frame):
        for skip in _constant_parts(axis, runs):
            partly = flow.named(frame, skip)
            other = _try(flow, value, partly)
            if other is None:
                continue
            if not other:
                found.append(Family("ignored", name, _less(partly, ignored), ()))
                ignored.append(axis)
            elif taken is None:
                found.append(Family("exchanged", name, partly, tuple(other)))
            break
    if taken is not None:
        found.append(Family("exchanged", name, _less(whole, ignored), tuple(taken)))
    elif ignored:
        found = [Family(each.kind, each.tensor, _less(each.frame, ignored) if each.taken else each.frame, each.taken)
                 for each in found]  # fmt: skip
    return found


def _constant_parts(axis: int, runs: Runs) -> list[frozenset[tuple[int, int]]]:
    """Factors of an axis along which a change may be constant: each alone, then all together."""
    single = [frozenset({(axis, index)}) for index, run in enumerate(runs) if run.full]
    every = frozenset((axis, index) for index in range(len(runs)))
    return [*single, every] if len(runs) > 1 and is_constant(runs) else single


def _less(frame: Frame, axes: list[int]) -> Frame:
    """The frame without one index along each of the axes: those directions are there already."""
    return tuple(_shortened(runs) if axis in axes and runs and any(run.letter for run in runs) else runs
                 for axis, runs in enumerate(frame))  # fmt: skip


def _shortened(runs: Runs) -> Runs:
    """A row of runs without its last index; several runs lose one index of the last."""
    last = runs[-1]
    return (*runs[:-1], FrameRun(last.size, last.low, last.high - 1, last.letter))


def _try(flow: Flow, value: Value, frame: Frame) -> list[Taken] | None:
    """What takes a change of a parameter back at all places where it is used; None if it is seen."""
    users = flow.users[value]
    try:
        return flow.follow(value, Change(frame, exact=len(users) == 1), flow.order[id(users[0])])
    except BrokenError:
        return _everywhere(flow, value, frame) if len(users) > 1 else None


def _everywhere(flow: Flow, value: Value, frame: Frame) -> list[Taken] | None:
    """What takes a change back that enters at several places (steps of a recurrence, shared layers): the same at each."""
    users = flow.users[value]
    change = Change(frame, uses=len(users))
    try:
        found = [flow.through(op, value, change, flow.order[id(op)]) for op in users]
    except BrokenError:
        return None
    first, *others = ([each.relettered(frame) for each in taken] for taken in found)
    readers = [{id(taken.reader) for taken in everywhere} for everywhere in zip(*found, strict=False)]
    if not first or any(other != first for other in others) or any(len(each) < len(users) for each in readers):
        return None
    return found[0]


# --- what comes out of a mean subtraction -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Constraint:
    """``sum_k weight_k z[.., k] = sum_k weight_k bias_k`` along one axis of a value."""

    axis: int
    bias: str = ""
    gain: str = ""


def _unread(flow: Flow, known: list[Family]) -> list[Family]:
    found: list[Family] = []
    for value, axis in _centred(flow):
        _spread(flow, value, _Constraint(axis), known, found)
    return found


def _projective(flow: Flow, families: list[Family]) -> Iterator[model.Shift]:
    """Where no bias takes a norm's bias back, all readers together still see ``I + v 1^T`` as the identity."""
    moved = {family.tensor for family in families if family.kind != "unread"}
    for value, axis in _centred(flow):
        readers: dict[str, int] = {}
        bias = _all_readers(flow, value, _Constraint(axis), readers)
        if bias is None or bias in moved or not readers:
            continue
        size = value.shape[axis]
        terms = [divided(bias, size), *(along(flow.program.tensors[name], axis_) for name, axis_ in readers.items())]
        yield model.Shift(
            name=f"{bias}.projective", shape=(size, 1), terms=tuple(terms), kind="projective", dimension=size,
            projective=True,
        )  # fmt: skip


def _all_readers(flow: Flow, value: Value, constraint: _Constraint, readers: dict[str, int]) -> str | None:
    """The one bias on the way to weights that are all there is to read the value, or None."""
    bias: str | None = None
    for op in flow.users.get(value, []):
        step = _step(flow, op, value, constraint)
        if step is None or (isinstance(step, _Constraint) and step.gain):
            if op.target is aten.einsum.default:  # the sum of squares of the norm itself
                continue
            return None
        if isinstance(step, _Constraint):
            found = _all_readers(flow, op.results[0], step, readers)
        else:
            weight, axis = step
            if len(flow.users[weight]) != 1:
                return None
            readers[weight.tensor] = axis
            found = constraint.bias
        if not found or bias not in (None, found):
            return None
        bias = found
    return bias


def _step(flow: Flow, op: Op, value: Value, constraint: _Constraint) -> _Constraint | tuple[Value, int] | None:
    """A constraint after an operator, or the weight that reads it."""
    try:
        law, values, _ = flow.law(op)
    except BrokenError:
        return None
    positions = [index for index, each in enumerate(values) if each is value]
    result = law.results[0]
    if len(positions) != 1 or result is None or len(law.results) != 1 or law.mixes:
        return None
    pattern = law.operands[positions[0]]
    letter = pattern[constraint.axis] if pattern is not None else ()
    if not isinstance(letter, str) or any(use.letter == letter for use in law.uses):
        return None
    windowed = any(flow.windowed(law, monomial, set(pattern_letters(result))) for monomial in law.terms)
    if constraint.bias and windowed and letter in result:
        return None  # what is padded does not have the bias
    if letter in result:
        return _carried(law, values, positions[0], letter, constraint, result.index(letter))
    if letter in pattern_letters(result):
        return None
    return _reader(flow, law, values, positions[0], letter)


def _reader(flow: Flow, law: Law, values: list[Value], position: int, letter: str) -> tuple[Value, int] | None:
    """The weight that is contracted with the operand along a letter, if it is a parameter; its axis."""
    terms = [monomial for monomial in law.terms if any(index == position for index, _ in monomial.powers)]
    partners = [index for monomial in terms for index, _ in monomial.powers
                if index != position and letter in pattern_letters(law.operands[index] or ())]  # fmt: skip
    if len(terms) != 1 or len(terms[0].powers) != 2 or len(partners) != 1:
        return None
    weight, pattern = values[partners[0]], law.operands[partners[0]]
    if not weight.tensor or weight.buffer or pattern is None or letter not in pattern:
        return None
    return weight, pattern.index(letter)


def _centred(flow: Flow) -> Iterator[tuple[Value, int]]:
    """Values from which the mean along one axis was subtracted, with the axis."""
    for op in flow.program.ops:
        mean = op.args[1].producer if op.target is aten.sub.Tensor and isinstance(op.args[1], Value) else None
        if mean is None or mean.target is not aten.mean.dim or mean.args[0] is not op.args[0]:
            continue
        rank = len(op.results[0].shape)
        axes = {axis % rank for axis in mean.args[1]}
        if len(axes) == 1:
            yield op.results[0], axes.pop()


def _spread(flow: Flow, value: Value, constraint: _Constraint, known: list[Family], found: list[Family]) -> None:
    """Carry a constraint forward to the weights that contract the axis."""
    for op in flow.users.get(value, []):
        step = _step(flow, op, value, constraint)
        if isinstance(step, _Constraint):
            _spread(flow, op.results[0], step, known, found)
        elif step is not None:
            _contracted(flow, op, *step, constraint, known, found)


def _carried(
    law: Law, values: list[Value], position: int, letter: str, constraint: _Constraint, axis: int
) -> _Constraint | None:
    """The constraint after an operator that keeps the axis: scaled by what lacks it, moved by a bias, weighted by a gain."""
    bias, gain = constraint.bias, constraint.gain
    for monomial in law.terms:
        indices = [index for index, _ in monomial.powers]
        if position in indices:
            if not dict(monomial.powers)[position].linear or (len(indices) > 1 and bias):
                return None
            for index in indices:
                if index != position and letter in pattern_letters(law.operands[index] or ()):
                    if not values[index].tensor or len(values[index].shape) != 1 or gain or bias:
                        return None
                    gain = values[index].tensor
        elif len(indices) == 1 and values[indices[0]].tensor and len(values[indices[0]].shape) == 1 and not bias:
            if (law.operands[indices[0]] or ())[0] != letter:
                return None
            bias = values[indices[0]].tensor
        else:
            return None
    return _Constraint(axis, bias, gain)


def _contracted(
    flow: Flow, op: Op, weight: Value, axis: int, constraint: _Constraint, known: list[Family], found: list[Family]
) -> None:
    """A weight read along the axis: its rows may move along the constrained direction."""
    elsewhere = [user for user in flow.users[weight] if user is not op]
    for frame in flow.frames(weight, _untouched(flow.typing, flow.solution)):
        if not is_constant(frame[axis]) and constraint.bias:
            continue
        rows = frozenset((each, index) for each, runs in enumerate(frame) for index in range(len(runs)))
        along = frozenset((axis, index) for index in range(len(frame[axis])))
        for skip in (along, rows) if elsewhere else (along,):
            named = flow.named(frame, skip)
            if constraint.gain:
                named = (*named[:axis], flow.named((frame[axis],))[0], *named[axis + 1 :])
            reads = (Read(constraint.gain, (named[axis],), power=-1.0),) if constraint.gain else ()
            taken = _moved_rows(flow, op, weight, axis, constraint, Change(named, reads), elsewhere)
            if taken is None:
                continue
            overlap = [each for each in known if each.tensor == weight.tensor and each.kind == "ignored"
                       and not any(run.letter for runs in each.frame[:axis] for run in runs)]  # fmt: skip
            rest = _less(named, [index for index in range(len(named)) if index != axis]) if overlap else named
            start = (Taken(weight.tensor, rest, reads, 1.0),) if reads else ()
            found.append(Family("unread", weight.tensor, rest, (*start, *taken)))
            break


def _moved_rows(
    flow: Flow, op: Op, weight: Value, axis: int, constraint: _Constraint, change: Change, elsewhere: list[Op]
) -> list[Taken] | None:
    """What takes back a change of the rows of a weight, here and wherever else the weight is read; None if it is seen."""
    position = next(index for index, each in enumerate(flow.law(op)[1]) if each is weight)
    taken = _constant_taken(flow, op, position, axis, change.frame, constraint)
    if taken is None:
        return None
    try:
        return [*taken, *(each for user in elsewhere for each in flow.through(user, weight, change, -1))]
    except BrokenError:
        return None


def _constant_taken(
    flow: Flow, op: Op, position: int, axis: int, named: Frame, constraint: _Constraint
) -> list[Taken] | None:
    """What takes back the constant that a biased norm leaves; nothing where there is no bias."""
    if not constraint.bias:
        return []
    law, values, sizes = flow.law(op)
    pattern, result = law.operands[position], law.results[0]
    assert pattern is not None
    assert result is not None
    known: dict[str, Runs] = {}
    for index, (each, runs) in enumerate(zip(pattern, named, strict=True)):
        if index != axis and each != ():
            assign(each, runs, sizes, known)
    for letter in pattern_letters(result):
        known.setdefault(letter, constant(sizes[letter]))
    along = tuple(FrameRun(run.size, run.low, run.high, run.letter or flow.letter()) for run in named[axis])
    reads = [Read(constraint.bias, (along,))]
    if constraint.gain:
        reads.append(Read(constraint.gain, (along,), power=-1.0))
    change = Change(pattern_frame(result, sizes, known), tuple(reads))
    term = next(monomial for monomial in law.terms if any(index == position for index, _ in monomial.powers))
    try:
        absorbed = flow.absorb(op, law, values, sizes, term, result, change, -1)
        return [absorbed] if absorbed is not None else flow.follow(op.results[0], change, flow.order[id(op)])
    except BrokenError:
        return None
