"""Axes that nothing may permute, along which two parameters may still trade a scale.

Input channels, classes and vocabularies are pinned: an index there means what it means. A number for every such index is
a symmetry nevertheless where it passes from one parameter to another: a depthwise kernel and what reads its channels, a
weight and the scale of its rows. Such an axis is a leaf like any other, of which every index is used, and whose scales are
zero on inputs and outputs.
"""

from __future__ import annotations

from collections.abc import Iterator

from symgraph.infer.equations import Layout
from symgraph.infer.interpret import Record, Typing
from symgraph.infer.ir import Program, Value
from symgraph.infer.spaces import IndexSpace
from symgraph.rules.law import Pattern, Structure, pattern_letters


def release(program: Program, typing: Typing, layout: Layout) -> frozenset[IndexSpace]:
    """Make leaves of pinned axes that several parameters share and that every operator passes by itself; these leaves."""
    for applied in typing.applied:  # all is read off before any leaf changes
        for space in applied.letters.values():
            layout.of(space)
    found = _shared(program, typing, layout)
    for applied in typing.applied:
        if not found:
            break
        law, letters = applied.law, applied.letters
        found -= {leaf for use in law.uses if use.structure is Structure.ANCHOR and use.letter in letters
                  for branch in layout.of(letters[use.letter]) for leaf in branch}  # fmt: skip
        results = zip(law.results, applied.op.results, strict=False)
        for pattern, value in (*zip(applied.patterns, applied.operands, strict=True), *results):
            if not value.known:
                found -= set(_leaves(value, typing, layout)) ^ set(_through(pattern, letters, layout))
    for leaf in found:
        leaf.anchored = False
    return frozenset(found)


def records(leaves: frozenset[IndexSpace], typing: Typing) -> Iterator[Record]:
    """Why nothing moves along them: the first operator that reads them."""
    for applied in typing.applied:
        for space in applied.letters.values():
            if space.root() in leaves:
                yield Record(space, Structure.FIXED, applied.op.origin, "read from the input, or part of the output")


def _shared(program: Program, typing: Typing, layout: Layout) -> set[IndexSpace]:
    """Anchored leaves that stand on at least two parameters or buffers."""
    seen: dict[IndexSpace, int] = {}
    for value in program.tensors.values():
        for leaf in set(_leaves(value, typing, layout)):
            seen[leaf] = seen.get(leaf, 0) + 1
    return {leaf for leaf, count in seen.items() if count > 1 and leaf.anchored and not leaf.kind and leaf.size > 1}


def _leaves(value: Value, typing: Typing, layout: Layout) -> Iterator[IndexSpace]:
    for space in typing.types.get(value, ()):
        for branch in layout.of(space) if space is not None else []:
            yield from branch


def _through(pattern: Pattern | None, letters: dict[str, IndexSpace], layout: Layout) -> Iterator[IndexSpace]:
    for letter in pattern_letters(pattern or ()):
        for branch in layout.of(letters[letter]) if letter in letters else []:
            yield from branch
