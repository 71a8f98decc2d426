"""Loops in JSON: a run of list items (or dict entries) that differ by integers only is written once.

    ["layers.0.w", "layers.1.w", .., "layers.125.w"]      {"for i in 0..125": ["layers.{i}.w"]}
    {"norm.0": 8, "norm.1": 8, "norm.2": 8}               {"for i in 0..2": {"norm.{i}": 8}}

The body of a loop may have several items, which follow one another for every value of the index, and loops of its own
(experts within layers). An integer inside a string may be any ``a i + b`` of the index: ``{i}``, ``{i+1}``, ``{2i+1}``;
a number is written ``"{#i+64}"``. Braces in strings are doubled, and ``{}`` is nothing: it marks a key that is no loop.
Order is kept exactly, so ``unfold(fold(x)) == x``; both take time linear in the number of items.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from string import ascii_lowercase
from typing import Any

from symgraph.errors import SpecError

Json = Any

PERIODS = (
    1,
    2,
    4,
    8,
    64,
    512,
)  # longest bodies to look for, short ones first so that inner loops are found before outer ones
CANDIDATES = 4  # how many periods to try at one place
LIMIT = 1_000_000  # items that a document may unfold to

_HEADER = re.compile(r"for ([a-z]) in (\d+)\.\.(\d+)(?: \(\d+\))?")
_LITERAL = re.compile(r'"(?:[^"\\]|\\.)*"')
_IN_STRING = re.compile(r"\{\{|\}\}|\{[^{}]*\}|\d+")
_NUMBER = re.compile(r'"(?:[^"\\]|\\.)*"|(?<![\w.-])\d+(?![\w.])')
_PLACE = re.compile(r"\{\{|\}\}|\{\}|\{(#?)(\d*)([a-z])([+-]\d+)?\}")
_ESCAPES = {"{{": "{", "}}": "}", "{}": ""}


def fold(value: Json) -> Json:
    """The value with its repetitions written as loops."""
    if isinstance(value, str):
        return value.replace("{", "{{").replace("}", "}}")
    if isinstance(value, dict):
        pairs = [["{}" * key.startswith("for ") + fold(key), fold(item)] for key, item in value.items()]
        return _as_dict(_fold_items(pairs, 3)) if len(pairs) > 2 else dict(pairs)
    if isinstance(value, list):
        items = [fold(item) for item in value]
        return _fold_items(items, 3 if any(isinstance(item, dict) for item in items) else 8)
    return value


def unfold(value: Json) -> Json:
    """What :func:`fold` was given; SpecError for malformed loops."""
    return _Unfolder().value(value, {})


@dataclass(frozen=True)
class _Item:
    """An item as JSON text, cut at the integers that may vary: ``pieces[0] slots[0] pieces[1] ..``."""

    text: str
    pieces: tuple[str, ...]
    slots: tuple[int, ...]
    numeric: bool


@dataclass(frozen=True)
class _Run:
    """``count`` repetitions of ``period`` items from ``start``; slots grow by ``steps`` from one to the next."""

    start: int
    period: int
    count: int
    steps: tuple[tuple[int, ...], ...]

    @property
    def length(self) -> int:
        return self.period * self.count


def _fold_items(items: list[Json], least: int) -> list[Json]:
    """Loops for all runs of at least ``least`` repetitions."""
    if len(items) < least:
        return items
    texts = [json.dumps(item, ensure_ascii=False) for item in items]
    numeric = not any(_cut(text, numeric=False).slots for text in texts)
    cut = [_cut(text, numeric) for text in texts]
    for longest in PERIODS:
        before = len(cut) + 1
        while len(cut) < before:
            before = len(cut)
            cut = _one_pass(cut, least, longest)
    return [json.loads(item.text) for item in cut]


def _cut(text: str, numeric: bool) -> _Item:
    """Varying integers: those inside strings or, if ``numeric``, the JSON numbers."""
    pieces, slots, start = [], [], 0
    for begin, end in _integers(text, numeric):
        pieces.append(text[start:begin])
        slots.append(int(text[begin:end]))
        start = end
    return _Item(text, (*pieces, text[start:]), tuple(slots), numeric)


def _integers(text: str, numeric: bool) -> Iterator[tuple[int, int]]:
    if numeric:
        spans = [match.span() for match in _NUMBER.finditer(text) if match.group()[0] != '"']
    else:
        spans = [
            (literal.start() + match.start(), literal.start() + match.end())
            for literal in _LITERAL.finditer(text)
            for match in _IN_STRING.finditer(literal.group())
            if match.group()[0] not in "{}"
        ]
    for begin, end in spans:
        if end - begin < 10 and (text[begin] != "0" or end - begin == 1):
            yield begin, end


def _one_pass(items: list[_Item], least: int, longest: int) -> list[_Item]:
    """Replace runs by loops, from left to right."""
    later = _next_alike(items)
    result: list[_Item] = []
    place = 0
    while place < len(items):
        run = _best_run(items, later, place, least, longest)
        if run is None:
            result.append(items[place])
            place += 1
        else:
            result.append(_loop(items, run))
            place += run.length
    return result


def _next_alike(items: list[_Item]) -> list[int]:
    """For every item the place of the next one that differs by integers only; -1 if there is none."""
    later, last = [-1] * len(items), dict[tuple[str, ...], int]()
    for place in range(len(items) - 1, -1, -1):
        later[place] = last.get(items[place].pieces, -1)
        last[items[place].pieces] = place
    return later


def _best_run(items: list[_Item], later: list[int], start: int, least: int, longest: int) -> _Run | None:
    """The run from ``start`` that covers most, and has the shortest body among those."""
    best, other = None, later[start]
    for _ in range(CANDIDATES):
        if other < 0 or other - start > longest:
            break
        run = _run(items, start, other - start)
        if run.count >= least and (best is None or run.length > best.length):
            best = run
        other = later[other]
    return best


def _run(items: list[_Item], start: int, period: int) -> _Run:
    """As many repetitions as are equal up to integers that grow evenly, of which one at least has to grow."""
    steps, place = [], start + period
    for place in range(start + period, start + 2 * period):
        if place >= len(items) or items[place].pieces != items[place - period].pieces:
            return _Run(start, period, 1, ())
        steps.append(tuple(b - a for a, b in zip(items[place - period].slots, items[place].slots, strict=True)))
    if min(step for one in steps for step in (*one, 0)) < 0 or not any(map(any, steps)):
        return _Run(start, period, 1, ())
    place += 1
    while place < len(items) and items[place].pieces == items[place - period].pieces:
        before, step = items[place - period].slots, steps[(place - start) % period]
        if any(a + d != b for a, d, b in zip(before, step, items[place].slots, strict=True)):
            break
        place += 1
    return _Run(start, period, (place - start) // period, tuple(steps))


def _loop(items: list[_Item], run: _Run) -> _Item:
    """The run as one item. The index is the first integer that varies, if that grows by one."""
    body = items[run.start : run.start + run.period]
    first, step = next(
        (slot, step)
        for item, steps in zip(body, run.steps, strict=True)
        for slot, step in zip(item.slots, steps, strict=True)
        if step
    )
    begin = first if step == 1 else 0
    inner = set(re.findall(r'"for ([a-z]) in', " ".join(item.text for item in body)))
    letter = next(one for one in ascii_lowercase[8:] if one not in inner)
    header = f"for {letter} in {begin}..{begin + run.count - 1}"
    texts = []
    for item, steps in zip(body, run.steps, strict=True):
        text = item.pieces[0]
        for slot, step, piece in zip(item.slots, steps, item.pieces[1:], strict=True):
            text += (_place(slot - step * begin, step, letter, item.numeric) if step else str(slot)) + piece
        texts.append(text)
    return _cut(f'{{"{header}": [{", ".join(texts)}]}}', numeric=False)


def _place(offset: int, step: int, letter: str, numeric: bool) -> str:
    inside = f"{'' if step == 1 else step}{letter}{f'{offset:+d}' if offset else ''}"
    return f'"{{#{inside}}}"' if numeric else f"{{{inside}}}"


def _as_dict(items: list[Json]) -> dict[str, Json]:
    """Loops over pairs as loops over the entries of a dict; headers that are there already get a number."""
    result: dict[str, Json] = {}
    for item in items:
        if isinstance(item, dict):
            ((header, body),) = item.items()
            repeated = sum(key.split(" (")[0] == header for key in result)
            result[f"{header} ({repeated + 1})" if repeated else header] = _as_dict(body)
        else:
            result[item[0]] = item[1]
    return result


class _Unfolder:
    """Expands loops from the outside in, counting what it makes."""

    def __init__(self) -> None:
        self.made = 0

    def value(self, value: Json, indices: dict[str, int]) -> Json:
        if isinstance(value, str):
            return _substitute(value, indices)
        if isinstance(value, dict):
            result = {}
            for key, item in self.entries(value, indices):
                if key in result:
                    raise SpecError(f"{key!r} is written twice")
                result[key] = item
            return result
        return list(self.items(value, indices)) if isinstance(value, list) else value

    def entries(self, value: dict[str, Json], indices: dict[str, int]) -> Iterator[tuple[str, Json]]:
        for key, item in value.items():
            name = str(_substitute(key, indices))
            if key.startswith("for "):
                if not isinstance(item, dict):
                    raise SpecError(f"the loop {name!r} has to hold an object here")
                for inner in self.loop(name, indices):
                    yield from self.entries(item, inner)
            else:
                yield name, self.value(item, indices)

    def items(self, value: list[Json], indices: dict[str, int]) -> Iterator[Json]:
        for item in value:
            header = next(iter(item), "") if isinstance(item, dict) and len(item) == 1 else ""
            if header.startswith("for "):
                if not isinstance(item[header], list):
                    raise SpecError(f"the loop {header!r} has to hold a list here")
                for inner in self.loop(str(_substitute(header, indices)), indices):
                    yield from self.items(item[header], inner)
            else:
                yield self.value(item, indices)

    def loop(self, header: str, indices: dict[str, int]) -> Iterator[dict[str, int]]:
        match = _HEADER.fullmatch(header)
        if match is None or match[1] in indices:
            raise SpecError(f"{header!r} is not a loop: expected 'for i in 0..7', with an index of its own")
        for number in range(int(match[2]), int(match[3]) + 1):
            self.made += 1
            if self.made > LIMIT:
                raise SpecError(f"the loops make more than {LIMIT} items")
            yield {**indices, match[1]: number}


def _substitute(text: str, indices: dict[str, int]) -> str | int:
    """The text at these indices; an int for ``"{#i}"``."""
    if "{" not in text and "}" not in text:
        return text
    whole = _PLACE.fullmatch(text)
    if whole and whole[1]:
        return _at(whole, indices)
    if "{" in (rest := _PLACE.sub("", text)) or "}" in rest:
        raise SpecError(f"{text!r} has a brace that is neither an index nor doubled")
    return _PLACE.sub(lambda place: str(_at(place, indices)) if place[3] else _ESCAPES[place.group()], text)


def _at(place: re.Match[str], indices: dict[str, int]) -> int:
    """``a i + b``."""
    if place[3] not in indices:
        raise SpecError(f"{place.group()!r} stands outside of a loop over {place[3]}")
    return int(place[2] or 1) * indices[place[3]] + int(place[4] or 0)
