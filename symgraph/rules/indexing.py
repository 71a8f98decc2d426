"""Reading by index. What is indexed is pinned; the other axes pass.

``index_select``: ``x[a, v, b], i[k] -> y[a, k, b]``. The indices are inputs or constants here; those that depend on float
activations are in :mod:`symgraph.rules.routing`.
"""

from __future__ import annotations

from typing import Any

import torch

from symgraph.rules.examples import example
from symgraph.rules.law import GENERIC, Law, Pattern, Term, Use, pin, term
from symgraph.rules.registry import Call, Operand, lettered, rule


def read(call: Call, source: Operand, indexed: set[int], first: int, width: int) -> Law:
    """Axes ``indexed`` of the source are replaced by ``width`` axes of positions, which start at ``first``."""
    pattern = list(lettered(source.shape))
    uses: list[Use] = []
    for axis in indexed:
        if pattern[axis]:
            uses += pin(f"a{axis}", "read by index")
    passing = [letter for axis, letter in enumerate(pattern) if axis not in indexed]
    positions = lettered((call.shapes[0] or ())[first : first + width], "i")
    for letter in positions:
        if isinstance(letter, str):
            uses += pin(letter, "read by index")
    result: Pattern = (*passing[:first], *positions, *passing[first:])
    blank: list[Pattern | None] = [None] * len(call.operands)
    blank[source.index] = tuple(pattern)
    return Law(tuple(blank), (result,), (term(source.index),), tuple(uses))


def known(operand: Operand) -> bool:
    """Whether it is a constant whose entries are at hand."""
    return operand.value is not None


@rule("aten.index_select", examples=lambda draw: [example(draw(3, 11, 5), 1, draw.integers(11, 7))])
def index_select(call: Call) -> Law | None:
    """``x[a, v, b], i[k] -> y[a, k, b]``."""
    axis = call.args[1] % call.args[0].rank
    return read(call, call.args[0], {axis}, axis, 1) if known(call.args[2]) else None


@rule("aten.select.int", "aten.select_copy.int", examples=lambda draw: [
    example(draw(3, 11, 5), 1, 4), example(draw(7, 3), 0, -1),
])  # fmt: skip
def select(call: Call) -> Law:
    """``x[a, v, b] -> y[a, b]`` at one fixed index."""
    axis = call.args[1] % call.operands[0].rank
    return read(call, call.operands[0], {axis}, axis, 0)


def _pinned(letters: set[Any], reason: str) -> tuple[Use, ...]:
    return tuple(use for letter in sorted(each for each in letters if isinstance(each, str)) for use in pin(letter, reason))


@rule("aten.masked_scatter", "aten.masked_scatter_", examples=lambda draw: [
    example(draw(3, 5, 7), torch.tensor([0, 1, 0, 1, 1, 0, 1, 0, 0, 1, 0, 0, 1, 0, 1]).reshape(3, 5, 1).expand(3, 5, 7) > 0,
            draw(11, 7), constants=(1,)),
])  # fmt: skip
def masked_scatter(call: Call) -> Law | None:
    """``x[b, t, d], m[b, t], s[n, d] -> y[b, t, d]``: rows are replaced by the next rows of the source, for a known mask."""
    target, mask, source = call.operands
    if mask.value is None or target.shape[-1:] != source.shape[-1:] or source.rank < 2 or mask.rank != target.rank:
        return None
    if not bool((mask.value == mask.value[..., :1]).all()):
        return None
    pattern = lettered(target.shape)
    rows = (*lettered(source.shape[:-1], "s"), pattern[-1])
    uses = _pinned({*pattern[:-1], *rows[:-1]}, "rows are replaced by a mask")
    return Law((pattern, None, rows), (pattern,), (term(0), term(2)), uses)


@rule("aten.index_copy", "aten.index_copy_", "aten.index_add", "aten.index_add_", examples=lambda draw: [
    example(draw(3, 11, 5), 1, torch.tensor([2, 7, 3]), draw(3, 3, 5)),
])  # fmt: skip
def write_along(call: Call) -> Law | None:
    """``x[a, v, b], i[k], s[a, k, b] -> y[a, v, b]`` at known places of one axis."""
    target, places, source = call.operands
    if not known(places) or source.rank != target.rank:
        return None
    axis = call.args[1] % target.rank
    pattern = lettered(target.shape)
    written = (*pattern[:axis], *lettered(source.shape[axis : axis + 1], "k"), *pattern[axis + 1 :])
    uses = _pinned({pattern[axis], written[axis]}, "written by index")
    return Law((pattern, None, written), (pattern,), (term(0), term(2)), uses)


def written(call: Call) -> Law | None:
    """``x[v, b], s[k, b] -> y[v, b]``: entries at known places of leading axes, or of a known mask, are replaced."""
    target, indices, values = call.args[0], call.args[1], call.args[2]
    used = [each for each in indices if each is not None]
    if any(not known(each) or each.dtype.is_floating_point for each in used) or None in indices[: len(used)]:
        return None
    masks = [each for each in used if each.dtype == torch.bool]
    if masks and len(used) > 1:
        return None
    count = masks[0].rank if masks else len(used)
    pattern = lettered(target.shape)
    rows = max(0, values.rank - (target.rank - count))
    passing = pattern[target.rank - (values.rank - rows) :] if values.rank > rows else ()
    source = (*lettered(values.shape[:rows], "k"), *(() if size == 1 else letter for letter, size in
                                                     zip(passing, values.shape[rows:], strict=True)))  # fmt: skip
    uses = _pinned({*pattern[:count], *source[:rows]}, "written by index")
    patterns: list[Pattern | None] = [None] * len(call.operands)
    patterns[target.index], patterns[values.index] = pattern, source
    return Law(tuple(patterns), (pattern,), (term(target.index), term(values.index)), uses)


@rule("aten.bucketize.Tensor", examples=lambda draw: [example(draw(3, 5), torch.tensor([-1.0, 0.0, 0.5]), constants=(1,))])
def bucketize(call: Call) -> Law | None:
    """In which interval of a known table a number falls: elementwise."""
    pattern = lettered(call.operands[0].shape)
    return Law((pattern, None), (pattern,), (Term(((0, GENERIC),)),)) if known(call.operands[1]) else None
