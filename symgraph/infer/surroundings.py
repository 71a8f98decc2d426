"""What following a change needs to know of the program: who reads a value, the laws, the frames of a tensor."""

from __future__ import annotations

from dataclasses import dataclass, field

from symgraph.infer.frames import BrokenError, Frame, windows
from symgraph.infer.frames import Run as FrameRun
from symgraph.infer.interpret import Typing, law_of, letter_sizes
from symgraph.infer.ir import Op, Program, Value
from symgraph.infer.solve import Solution
from symgraph.infer.spaces import IndexSpace
from symgraph.rules.law import Law


@dataclass
class Surroundings:
    """The program with what following changes needs to know of it."""

    program: Program
    typing: Typing
    solution: Solution
    users: dict[Value, list[Op]] = field(default_factory=dict)
    order: dict[int, int] = field(default_factory=dict)
    outputs: set[int] = field(default_factory=set)
    fresh: int = 0

    def __post_init__(self) -> None:
        self.users = self.program.users()
        self.order = {id(op): index for index, op in enumerate(self.program.ops)}
        self.outputs = {id(value) for value in self.program.outputs}
        self.laws: dict[int, tuple[Law | None, list[Value], dict[str, int]]] = {}

    def law(self, op: Op) -> tuple[Law, list[Value], dict[str, int]]:
        """The law of an operator, its operands, and the sizes of its letters."""
        if id(op) not in self.laws:
            law, values = law_of(op)
            self.laws[id(op)] = (law, values, letter_sizes(law, values, op) if law is not None else {})
        law, values, sizes = self.laws[id(op)]
        if law is None:
            raise BrokenError
        return law, values, sizes

    def letter(self) -> str:
        """A letter that no frame has yet."""
        self.fresh += 1
        return f"l{self.fresh}"

    def frames(self, value: Value, free: dict[IndexSpace, list[tuple[int, int]]]) -> list[Frame]:
        """All combinations of windows of a tensor's axes, without letters; none where they cannot be written so."""
        found: list[Frame] = [()]
        try:
            for space in self.typing.types[value]:
                found = [(*frame, runs) for frame in found for runs in windows(space, self.solution.layout, free)]
        except BrokenError:  # a summand that is no window of whole factors
            return []
        return found

    def named(self, frame: Frame, skip: frozenset[tuple[int, int]] = frozenset()) -> Frame:
        """The frame with a new letter on every run, less those skipped: (axis, position among its runs)."""
        return tuple(
            tuple(run if (axis, index) in skip else FrameRun(run.size, run.low, run.high, self.letter())
                  for index, run in enumerate(runs))
            for axis, runs in enumerate(frame)
        )  # fmt: skip
