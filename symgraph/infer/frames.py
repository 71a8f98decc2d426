"""What a small change of a tensor looks like, and what an operator makes of it.

A *frame* describes a change of a value axis by axis. An axis is a row of runs (its factors, row-major), each a window of
a size with a letter: the change is an arbitrary function of the lettered indices, constant along runs without a letter,
and zero outside of the windows. ``*`` stands for an index along which the change depends on the data.

Adding u[n] to the bias of ``y[b, t, n] = x w + bias`` is the frame (-, -, n) of y. A law carries frames forward:
letters that pass are kept, what comes from a weight gets the weight's letters, what comes from activations is data.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from symgraph.infer.equations import Layout
from symgraph.infer.spaces import IndexSpace
from symgraph.rules.law import Axis, Cat, Pattern, letters_of

DATA = "*"


@dataclass(frozen=True)
class Run:
    """A factor of an axis: its size, the window ``low .. high``, and the letter of the change (empty: constant)."""

    size: int
    low: int
    high: int
    letter: str = ""

    @property
    def full(self) -> bool:
        """Whether the window is the whole factor."""
        return self.low == 0 and self.high == self.size


Runs = tuple[Run, ...]
Frame = tuple[Runs, ...]


class BrokenError(Exception):
    """The change cannot be followed through an operator."""


def constant(size: int) -> Runs:
    """The same at every index."""
    return (Run(size, 0, size),) if size != 1 else ()


def data(size: int) -> Runs:
    """Depends on the data."""
    return (Run(size, 0, size, DATA),) if size != 1 else ()


def windows(space: IndexSpace | None, layout: Layout, free: dict[IndexSpace, list[tuple[int, int]]]) -> list[Runs]:
    """The summands of an axis as rows of runs without letters; ``free`` cuts some leaves into windows."""
    if space is None:
        return [()]
    root = space.root()
    if not root.kind or layout.of(root) in ([(root,)], [()]):
        return [(Run(root.size, low, high),) if root.size != 1 else () for low, high in free.get(root, [(0, root.size)])]
    if root.kind == "product":
        rows: list[Runs] = [()]
        for part in root.parts:
            rows = [row + other for row in rows for other in windows(part, layout, free)]
        return rows
    found: list[Runs] = []
    start = 0
    for part in root.parts:
        found += [_shifted(row, start, root.size, part.root().size) for row in windows(part, layout, free)]
        start += part.root().size
    return found


def whole(space: IndexSpace | None) -> Runs:
    """The factors of an axis, each in full; a direct sum is one factor."""
    if space is None:
        return ()
    root = space.root()
    if root.kind == "product":
        return tuple(run for part in root.parts for run in whole(part))
    return constant(root.size)


def _shifted(row: Runs, start: int, total: int, size: int) -> Runs:
    """The runs of a part of a longer axis: the first run takes the offset."""
    if not row:
        return (Run(total, start, start + 1),)
    inner = size // row[0].size
    if start % inner or total % inner:
        letters = {run.letter for run in row}
        if letters - {"", DATA} or not all(run.full for run in row):
            raise BrokenError
        return (Run(total, start, start + size, DATA if DATA in letters else ""),)
    first = replace(row[0], size=total // inner, low=row[0].low + start // inner, high=row[0].high + start // inner)
    return (first, *row[1:])


def assign(axis: Axis, runs: Runs, sizes: dict[str, int], found: dict[str, Runs]) -> bool:
    """Give the letters of a pattern's axis their runs; False if the change lies outside of what the pattern keeps."""
    if isinstance(axis, str):
        found[axis] = runs
        return True
    if isinstance(axis, Cat):
        return _assign_part(axis, runs, sizes, found)
    parts = [part for part in axis if axis_size(part, sizes) != 1]
    pending = list(runs)
    for part in parts:
        taken, pending = _take(pending, axis_size(part, sizes))
        if not assign(part, taken, sizes, found):
            return False
    return True


def axis_size(axis: Axis, sizes: dict[str, int]) -> int:
    """Number of indices of a pattern's axis."""
    if isinstance(axis, str):
        return sizes[axis]
    total = 0 if isinstance(axis, Cat) else 1
    for part in axis.parts if isinstance(axis, Cat) else axis:
        size = axis_size(part, sizes)
        total = total + size if isinstance(axis, Cat) else total * size
    return total


def _take(pending: list[Run], size: int) -> tuple[Runs, list[Run]]:
    """The first runs whose product is ``size``; a run that says nothing of its index is cut where needed."""
    taken: list[Run] = []
    while size > 1:
        if not pending:
            raise BrokenError
        run = pending[0]
        if size % run.size == 0:
            taken.append(run)
            pending = pending[1:]
            size //= run.size
        elif run.size % size == 0 and run.full and run.letter in ("", DATA):
            rest = run.size // size
            taken.append(Run(size, 0, size, run.letter))
            pending = [Run(rest, 0, rest, run.letter), *pending[1:]]
            size = 1
        else:
            raise BrokenError
    return tuple(taken), pending


def _assign_part(axis: Cat, runs: Runs, sizes: dict[str, int], found: dict[str, Runs]) -> bool:
    total = axis_size(axis, sizes)
    if not runs:
        raise BrokenError
    first = runs[0]
    inner = total // first.size
    start = 0
    inside = False
    for part in axis.parts:
        size = axis_size(part, sizes)
        low, high = start, start + size
        start = high
        begin, end = first.low * inner, first.high * inner
        if end <= low or begin >= high:
            continue
        if begin < low or end > high:
            if first.letter or not first.full:
                raise BrokenError
            assign(part, constant(size), sizes, found)
            inside = True
            continue
        if low % inner or size % inner:
            raise BrokenError
        moved = replace(first, size=size // inner, low=first.low - low // inner, high=first.high - low // inner)
        row = (moved, *runs[1:]) if moved.size > 1 else runs[1:]
        return assign(part, row, sizes, found)
    return inside


def compose(axis: Axis, sizes: dict[str, int], found: dict[str, Runs]) -> Runs:
    """Runs of a pattern's axis from those of its letters."""
    if isinstance(axis, str):
        return found[axis]
    if isinstance(axis, Cat):
        start, total = 0, axis_size(axis, sizes)
        for part in axis.parts:
            size = axis_size(part, sizes)
            if all(letter in found for letter in letters_of(part)):
                return _shifted(compose(part, sizes, found), start, total, size)
            start += size
        raise BrokenError
    return tuple(run for part in axis for run in compose(part, sizes, found))


def letters_in(frame: Frame) -> set[str]:
    """Letters of a frame."""
    return {run.letter for runs in frame for run in runs if run.letter}


def pattern_frame(pattern: Pattern, sizes: dict[str, int], found: dict[str, Runs]) -> Frame:
    """The frame of a tensor from the runs of the letters of its pattern."""
    return tuple(compose(axis, sizes, found) for axis in pattern)


def is_constant(runs: Iterable[Run]) -> bool:
    """Whether the change is the same at every index of an axis."""
    return all(run.full and not run.letter for run in runs)
