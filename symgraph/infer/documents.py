"""Translations as documents: what moves, what takes it back, as views and einsums."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from symgraph.infer.changes import Taken
from symgraph.infer.frames import Frame
from symgraph.infer.frames import Run as FrameRun
from symgraph.infer.ir import Value
from symgraph.spec import model

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRS"
_ONES = "TUVWXYZ"


@dataclass(frozen=True)
class Family:
    """A translation before it is written down: what moves first, and what takes it back."""

    kind: str
    tensor: str
    frame: Frame
    taken: tuple[Taken, ...]


def divided(bias: str, size: int) -> model.ShiftTerm:
    """``bias -= v sum(bias) / (1 + sum(v))``."""
    view = model.View(tensor=bias, shape=(size,), window=((0, size),))
    return model.ShiftTerm(target=view, equation="aZ,b->a", reads=(view,), coefficient=-1.0, divided=True)


def along(weight: Value, axis: int) -> model.ShiftTerm:
    """``W += (W v) 1^T`` along one axis of a weight."""
    letters = _LETTERS[1 : len(weight.shape) + 1]
    out = letters[:axis] + "Z" + letters[axis + 1 :]
    view = model.View(tensor=weight.tensor, shape=weight.shape, window=tuple((0, size) for size in weight.shape))
    return model.ShiftTerm(target=view, equation=f"{letters[axis]}Z,{letters}->{out}", reads=(view,))


class _Alphabet:
    """Single letters of an einsum for the letters of frames."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}

    def __getitem__(self, letter: str) -> str:
        if letter not in self.known:
            self.known[letter] = _LETTERS[len(self.known)]
        return self.known[letter]


def write(family: Family, name: str) -> model.Shift:
    """The shift as a document: one value, and one term for every tensor that moves."""
    first = family.taken[0] if family.taken else None
    weighted = first is not None and first.tensor == family.tensor and first.frame == family.frame
    start = () if weighted else (Taken(family.tensor, family.frame, (), 1.0),)
    taken_letters = {run.letter for read in (first.reads if weighted and first else ()) for runs in read.frame for run in runs}
    lettered = [run for runs in family.frame for run in runs if run.letter and run.letter not in taken_letters]
    entries = [*start, *family.taken]
    ones = max(_constants(entry.frame) for entry in entries)
    lengths = {run.letter: run.high - run.low for run in lettered}
    shape = tuple(lengths.values())
    return model.Shift(
        name=name, shape=(*shape, *(1,) * ones),
        terms=tuple(_term(entry, lengths, ones) for entry in entries), kind=family.kind, dimension=prod(shape),
    )  # fmt: skip


def _merged(frame: Frame) -> list[FrameRun]:
    """All runs of a frame; constant ones that follow each other are one, since a reshape may join them."""
    runs: list[FrameRun] = []
    for run in (run for each in frame for run in each):
        last = runs[-1] if runs else None
        if last is not None and last.full and run.full and not last.letter and not run.letter:
            runs[-1] = FrameRun(last.size * run.size, 0, last.size * run.size)
        else:
            runs.append(run)
    return runs


def _constants(frame: Frame) -> int:
    return sum(not run.letter for run in _merged(frame))


def _term(entry: Taken, lengths: dict[str, int], ones: int) -> model.ShiftTerm:
    """One translation as an einsum; what is constant takes axes of size one, which the value has at its end."""
    alphabet = _Alphabet()
    value = "".join(alphabet[name] for name in lengths) + _ONES[:ones]
    spare = iter(_ONES)
    runs = _merged(entry.frame)
    out = "".join(alphabet[run.letter] if run.letter else next(spare) for run in runs)
    reads = [[run for each in read.frame for run in each] for read in entry.reads]
    texts = ["".join(alphabet[run.letter] for run in each) for each in reads]
    views = tuple(_view(read.tensor, each, lengths, read.power, read.offset)
                  for read, each in zip(entry.reads, reads, strict=True))  # fmt: skip
    return model.ShiftTerm(
        target=_view(entry.tensor, runs, lengths), equation=f"{','.join([value, *texts])}->{out}", reads=views,
        coefficient=entry.coefficient,
    )  # fmt: skip


def _view(tensor: str, runs: list[FrameRun], lengths: dict[str, int], power: float = 1.0, offset: float = 0.0) -> model.View:
    shape = tuple(run.size for run in runs)
    window = tuple((run.low, run.low + lengths.get(run.letter, run.high - run.low)) for run in runs)
    return model.View(tensor=tensor, shape=shape, window=window, power=power, offset=offset)
