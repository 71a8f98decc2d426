"""Follows a change of a parameter until it disappears or is taken back by another parameter.

It disappears where an operator ignores it: softmax a constant along its axis, a mean subtraction too, a slice what it cuts off.
It is taken back where a parameter is added to the same tensor. What happens in between is linear, and is written down as an
``einsum`` of the change and the weights that it passed, which is the amount to take back.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch

from symgraph.infer.affine import derived
from symgraph.infer.changes import (
    MASKED,
    READS,
    SAME,
    SOFTMAX,
    SORTS,
    STOCHASTIC,
    Change,
    Read,
    Taken,
    before_views,
    coefficient,
    lets_pass,
    sorted_axis,
)  # fmt: skip
from symgraph.infer.frames import (
    DATA,
    BrokenError,
    Frame,
    Runs,
    assign,
    constant,
    data,
    is_constant,
    letters_in,
    pattern_frame,
    whole,
)  # fmt: skip
from symgraph.infer.frames import Run as FrameRun
from symgraph.infer.interpret import varying_axes
from symgraph.infer.ir import Op, Value
from symgraph.infer.operators import still
from symgraph.infer.surroundings import Surroundings
from symgraph.rules.fixed import fixed_operator
from symgraph.rules.law import PADDED, Law, Structure, Term, pattern_letters

aten = torch.ops.aten


@dataclass
class Flow(Surroundings):
    """Follows changes through a program; what was found of inexact ones is remembered."""

    memo: dict[tuple[int, Frame], bool] = field(default_factory=dict)

    # --- forward ------------------------------------------------------------------------------------------------------

    def follow(self, value: Value, change: Change, after: int) -> list[Taken]:
        """What other parameters take back so that nothing of the change of a value is seen. Raises BrokenError if it is."""
        if id(value) in self.outputs:
            raise BrokenError
        if not change.exact:
            key = (id(value), change.frame)
            if key in self.memo:
                if self.memo[key]:
                    return []
                raise BrokenError
            try:
                found = self._users(value, change, after)
            except BrokenError:
                self.memo[key] = False
                raise
            self.memo[key] = True
            return found
        return self._users(value, change, after)

    def _users(self, value: Value, change: Change, after: int) -> list[Taken]:
        taken: list[Taken] = []
        users = self.users.get(value, [])
        means = {id(op.results[0]): op for op in users if op.target is aten.mean.dim}
        for op in users:
            if id(op.results[0]) in means and self._centred(op, users):
                continue  # together with the subtraction below
            if op.target is aten.sub.Tensor and op.args[0] is value and id(op.args[1]) in means:
                axes = means[id(op.args[1])].args[1]
                if not is_constant(run for axis in axes for run in change.frame[axis]):
                    raise BrokenError
                continue
            taken += self.through(op, value, change, after)
        return taken

    def _centred(self, mean: Op, users: list[Op]) -> bool:
        result = mean.results[0]
        readers = self.users.get(result, [])
        return len(readers) == 1 and readers[0] in users and readers[0].target is aten.sub.Tensor

    def through(self, op: Op, value: Value, change: Change, after: int) -> list[Taken]:
        """Follow a change of one operand of an operator."""
        if op.target in SOFTMAX:
            if is_constant(change.frame[op.args[1] % len(value.shape)]):
                return []
            raise BrokenError
        if op.target is fixed_operator:
            self._check_operator(op, change)
            return self.follow(op.results[0], change, after)
        if op.target in SORTS:
            return self._sorted(op, value, change, after)
        if self._masked(op, value):
            return self.follow(op.results[0], change, after)
        law, values, sizes = self.law(op)
        if len(law.results) != 1 or law.results[0] is None:
            raise BrokenError
        position, known = self._letters(op, value, change.frame)
        if known is None:
            return []
        return self._result(op, law, values, sizes, position, known, change, after)

    def _letters(self, op: Op, value: Value, frame: Frame) -> tuple[int, dict[str, Runs] | None]:
        """Which operand of the operator a value is, and the runs of its letters on a frame; None where it is cut off there."""
        law, values, sizes = self.law(op)
        positions = [index for index, each in enumerate(values) if each is value]
        if len(positions) != 1:
            raise BrokenError
        pattern = law.operands[positions[0]]
        if pattern is None:
            return positions[0], None
        known: dict[str, Runs] = {}
        for axis, runs in zip(pattern, frame, strict=True):
            if axis != () and not assign(axis, runs, sizes, known):
                return positions[0], None
        parts = known.keys() & law.summands
        if parts and not parts & set(pattern_letters(law.results[0] or ())):
            return positions[0], None  # on a part that is not read
        return positions[0], known

    def _sorted(self, op: Op, value: Value, change: Change, after: int) -> list[Taken]:
        """A constant along the axis moves all values alike, so that the order stays."""
        axis = sorted_axis(op, len(value.shape))
        if not is_constant(change.frame[axis]):
            raise BrokenError
        frame = tuple(constant(op.results[0].shape[axis]) if each == axis else runs for each, runs in enumerate(change.frame))
        return self.follow(op.results[0], replace(change, frame=frame), after)

    def _masked(self, op: Op, value: Value) -> bool:
        """Whether the operator only takes entries out of a softmax: what is added to those is never seen."""
        position = {aten.masked_fill.Scalar: 0, aten.where.ScalarOther: 1}.get(op.target)
        if position is None or op.args[position] is not value:
            return False
        readers = self.users.get(op.results[0], [])
        while len(readers) == 1 and readers[0].target in (*SAME, aten.add.Tensor):  # a sum with it stays as small
            readers = self.users.get(readers[0].results[0], [])
        return op.args[2] <= MASKED and bool(readers) and all(reader.target in SOFTMAX for reader in readers)

    def _check_operator(self, op: Op, change: Change) -> None:
        """A fixed operator that differs by position keeps a change only on the coordinates that it leaves alone."""
        _, axis, matrices, _ = op.args
        runs = change.frame[axis]
        if len(runs) != 1 or not bool(still(matrices)[runs[0].low : runs[0].high].all()):
            raise BrokenError

    def _result(
        self, op: Op, law: Law, values: list[Value], sizes: dict[str, int], position: int, known: dict[str, Runs],
        change: Change, after: int,
    ) -> list[Taken]:  # fmt: skip
        terms = [monomial for monomial in law.terms if any(index == position for index, _ in monomial.powers)]
        if not terms and not any(law.results):
            return []
        if len(terms) != 1 or not dict(terms[0].powers)[position].linear:
            raise BrokenError
        result = law.results[0]
        assert result is not None
        scaled = change.coefficient * coefficient(op, position)
        current = replace(change, coefficient=scaled)
        state = dict(known)
        for index, entry in terms[0].powers:
            if index != position:
                if not entry.linear and not (values[index].known and lets_pass(op, values[index])):
                    raise BrokenError
                current = self._multiply(law, values, sizes, index, position, state, known, current, op)
        kept = set(pattern_letters(result))
        alone = [letter for letter in known if letter not in kept and len(terms[0].powers) == 1]
        level = law.uniform and position == 0 and self._level(law, known, kept)
        read_by_data = op.target in READS and not all(is_constant(known[letter]) for letter in alone)
        moved_positions = set() if op.target in READS or level else self.positions(law, terms[0], kept)
        windowed = op.target not in READS and not level and self.windowed(law, terms[0], kept)
        for letter in pattern_letters(result):
            if letter not in law.summands:
                unknown = read_by_data or letter in moved_positions
                state.setdefault(letter, data(sizes[letter]) if unknown else constant(sizes[letter]))
        exact = current.exact and not windowed and DATA not in letters_in(tuple(state.values()))
        if alone and op.target not in READS and not level:  # a sum of the change: its number is not kept
            exact = False
        for use in law.uses:
            if use.letter in state and use.letter in known and not is_constant(state[use.letter]) and law.mixes:
                raise BrokenError
        frame = pattern_frame(result, sizes, {letter: state[letter] for letter in pattern_letters(result) if letter in state})
        moved = replace(current, frame=frame, exact=exact)
        if exact:
            absorbed = self.absorb(op, law, values, sizes, terms[0], result, moved, after)
            if absorbed is not None:
                return [absorbed]
        return self.follow(op.results[0], moved, after)

    def _level(self, law: Law, known: dict[str, Runs], kept: set[str]) -> bool:
        """Whether a change of the first operand is the same at all positions of a law that keeps what is."""
        elsewhere = {letter for pattern in law.operands[1:] for letter in pattern_letters(pattern or ())}
        positions = {use.letter for use in law.uses if use.structure is Structure.FIXED} | (known.keys() - kept)
        return all(is_constant(known[letter]) for letter in (positions & known.keys()) - elsewhere)

    def windowed(self, law: Law, monomial: Term, kept: set[str]) -> bool:
        """Whether pinned letters of the monomial give way to others: windows, paddings, pools."""
        pinned = {use.letter for use in law.uses if use.structure is Structure.FIXED}
        inside = {letter for index, _ in monomial.powers for letter in pattern_letters(law.operands[index] or ())}
        return bool((pinned & inside) - kept) or any(use.reason == PADDED for use in law.uses)

    def positions(self, law: Law, monomial: Term, kept: set[str]) -> set[str]:
        """Pinned letters of the result that stand for pinned ones of the monomial."""
        pinned = {use.letter for use in law.uses if use.structure is Structure.FIXED}
        inside = {letter for index, _ in monomial.powers for letter in pattern_letters(law.operands[index] or ())}
        return pinned & kept - inside if self.windowed(law, monomial, kept) else set()

    def _multiply(
        self, law: Law, values: list[Value], sizes: dict[str, int], index: int, position: int, state: dict[str, Runs],
        known: dict[str, Runs], change: Change, op: Op,
    ) -> Change:  # fmt: skip
        """Another factor of the monomial: a weight adds its letters, a stochastic matrix passes, anything else is data."""
        other, pattern = values[index], law.operands[index]
        if pattern is None:
            return change
        letters = pattern_letters(pattern)
        result = set(pattern_letters(law.results[0] or ()))
        if other.known:
            varying = varying_axes(other)
            changed = {letter for axis in varying for letter in pattern_letters((pattern[axis],))}
            if other.constant is not None and not varying and other.is_float:
                value = float(other.constant.flatten()[0]) if other.constant.numel() else 1.0
                return replace(change, coefficient=change.coefficient * value)
            for letter in changed:
                state[letter] = data(sizes[letter])
            return replace(change, exact=False)
        summed = [letter for letter in letters if letter in known and letter not in result]
        if self._stochastic(other, pattern, summed) and all(is_constant(known[letter]) for letter in summed):
            return change
        tensor = self._tensor(other) if change.exact else None
        if tensor is not None:
            return self._weight(tensor, pattern, sizes, state, known, change)
        for letter in letters:
            if letter in result:
                state[letter] = data(sizes[letter])
        for letter in result:
            if letter in state and any(run.letter for run in state[letter]):
                state[letter] = tuple(FrameRun(run.size, run.low, run.high, DATA if run.letter else "")
                                      for run in state[letter])  # fmt: skip
        return replace(change, exact=False)

    def _stochastic(self, value: Value, pattern: tuple[object, ...], summed: list[str]) -> bool:
        """Whether the value sums to one along the one letter that is summed."""
        if len(summed) != 1 or summed[0] not in pattern:
            return False
        value, axis = before_views(value, pattern.index(summed[0]))
        producer = value.producer
        return producer is not None and producer.target in STOCHASTIC and producer.args[1] % len(value.shape) == axis

    def _tensor(self, value: Value) -> Read | None:
        """The tensor that a value is, or is made of, and the frame in which it is read: direct sums as a whole."""
        found = (value, 1.0, 0.0) if value.tensor else derived(value)
        if found is None:
            return None
        tensor, power, offset = found
        return Read(tensor.tensor, tuple(whole(space) for space in self.typing.types[value]), power, offset)

    def _weight(
        self, tensor: Read, pattern: tuple[object, ...], sizes: dict[str, int], state: dict[str, Runs],
        known: dict[str, Runs], change: Change,
    ) -> Change:  # fmt: skip
        own: dict[str, Runs] = {}
        for axis, runs in zip(pattern, tensor.frame, strict=True):
            if axis != () and not assign(axis, runs, sizes, own):  # type: ignore[arg-type]
                raise BrokenError
        named: dict[str, Runs] = {}
        for letter, runs in own.items():
            before = known.get(letter, state.get(letter))
            named[letter] = self._matched(runs, before)
            if letter not in known or letter in state:
                state[letter] = named[letter]
        read = replace(tensor, frame=pattern_frame(pattern, sizes, named))  # type: ignore[arg-type]
        return replace(change, reads=(*change.reads, read))

    def _matched(self, runs: Runs, before: Runs | None) -> Runs:
        """Letters for the runs of a weight: those of the change where it has them, new ones elsewhere."""
        if before is None or is_constant(before):
            return tuple(FrameRun(run.size, run.low, run.high, self.letter()) for run in runs)
        if len(before) != len(runs) or any(a.size != b.size for a, b in zip(before, runs, strict=True)):
            raise BrokenError
        return tuple(FrameRun(b.size, b.low, b.high, b.letter or self.letter()) for b in before)

    # --- taking back --------------------------------------------------------------------------------------------------

    def absorb(
        self, op: Op, law: Law, values: list[Value], sizes: dict[str, int], own: object, result: tuple[object, ...],
        change: Change, after: int,
    ) -> Taken | None:  # fmt: skip
        """Another summand of the same operator that a later parameter controls."""
        for monomial in law.terms:
            if monomial is own or len(monomial.powers) != 1 or not monomial.powers[0][1].linear:
                continue
            index = monomial.powers[0][0]
            pattern = law.operands[index]
            if pattern is None:
                continue
            try:
                frame = self._pull(op, result, change.frame, pattern, sizes)
                sign = coefficient(op, index)
                pulled = replace(change, frame=frame, coefficient=-change.coefficient / sign)
                found = self._control(values[index], pulled, after, op)
            except BrokenError:
                continue
            if found is not None:
                return found
        return None

    def _pull(
        self, op: Op, result: tuple[object, ...], frame: Frame, pattern: tuple[object, ...], sizes: dict[str, int]
    ) -> Frame:  # fmt: skip
        """The frame of an operand that makes the change of the result; letters that it lacks must be constant."""
        known: dict[str, Runs] = {}
        for axis, runs in zip(result, frame, strict=True):
            if axis != () and not assign(axis, runs, sizes, known):  # type: ignore[arg-type]
                raise BrokenError
        present = set(pattern_letters(pattern))
        summands = self.law(op)[0].summands
        if (known.keys() & summands) - present:
            raise BrokenError  # on another summand
        for letter, runs in known.items():
            if letter not in present and not is_constant(runs):
                raise BrokenError
        for letter in present - set(known) - summands:  # other summands of the operand stay as they are
            if op.target not in READS:
                raise BrokenError
            known[letter] = constant(sizes[letter])  # the same for every row that can be read
        return pattern_frame(pattern, sizes, known)  # type: ignore[arg-type]

    def _control(self, value: Value, change: Change, after: int, reader: Op) -> Taken | None:
        """The parameter that can add the change to a value which nothing else reads.

        A parameter is read as often as the changed one.
        """
        users = self.users.get(value, [])
        if id(value) in self.outputs:
            return None
        if value.tensor:
            if self.order[id(reader)] <= after or len(users) != change.uses:
                return None
            return Taken(value.tensor, change.frame, change.reads, change.coefficient, reader)
        op = value.producer
        if op is None or any(self._letters(user, value, change.frame)[1] is not None for user in users if user is not reader):
            return None
        law, values, sizes = self.law(op)
        result = law.results[0]
        if result is None or len(law.results) != 1 or law.mixes:
            return None
        for monomial in law.terms:
            if len(monomial.powers) != 1 or not monomial.powers[0][1].linear:
                continue
            index = monomial.powers[0][0]
            pattern = law.operands[index]
            if pattern is None or values[index].known:
                continue
            try:
                frame = self._pull(op, result, change.frame, pattern, sizes)
                factor = coefficient(op, index)
                pulled = replace(change, frame=frame, coefficient=change.coefficient / factor)
                found = self._control(values[index], pulled, after, op)
            except BrokenError:
                continue
            if found is not None:
                return found
        return None
