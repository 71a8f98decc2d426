"""Operators that make direct sums and take them apart: slices, splits, concatenations.

    cat       x[a], y[b] -> z[a + b]        a direct sum is made
    slice     x[a + b + c] -> y[b]          a direct sum is split
"""

from __future__ import annotations

import torch

from symgraph.rules.examples import example
from symgraph.rules.law import Axis, Cat, Law, Pattern, Use, pin, term
from symgraph.rules.registry import Call, blank, lettered, rule


def pinned_axis(call: Call, axis: int, reason: str) -> Law:
    """A linear operator of no particular law along one axis; the other axes pass."""
    operand, shape = call.operands[0], call.shapes[0] or ()
    pattern, result = list(lettered(operand.shape)), list(lettered(shape))
    uses: list[Use] = []
    for each, name in ((pattern, "u"), (result, "w")):
        if each[axis]:
            each[axis] = name
            uses += pin(name, reason)
    return Law(blank(call, {0: tuple(pattern)}), (tuple(result),), (term(0),), tuple(uses))


def _segment(axis: int, size: int, start: int, stop: int, rank_shape: tuple[int, ...]) -> tuple[Pattern, Axis, dict[str, int]]:
    """Pattern of the operand with its axis cut into before, kept and after; the kept part; sizes."""
    sizes = {name: length for name, length in (("l", start), ("m", stop - start), ("r", size - stop)) if length}
    pattern = list(lettered(rank_shape))
    parts = tuple(sizes)
    pattern[axis] = Cat(parts) if len(parts) > 1 else parts[0]
    return tuple(pattern), "m", sizes


@rule("aten.slice.Tensor", "aten.slice_copy", examples=lambda draw: [
    example(draw(3, 13), 1, 3, 8), example(draw(11, 5), 0, 0, 5), example(draw(3, 11), 1, -4, 2**63 - 1), example(draw(3, 5)),
    example(draw(3, 11), 1, 0, 11, 2),
])  # fmt: skip
def slice_(call: Call) -> Law | None:
    """``x[l + m + r] -> y[m]``; a step other than one, or an empty result, leaves nothing along the axis."""
    operand = call.operands[0]
    axis = call.get(1, "dim", 0) % operand.rank
    size = operand.shape[axis]
    start, stop = bounds(call, 2, size)
    if call.get(4, "step", 1) != 1 or stop <= start:
        return pinned_axis(call, axis, "a slice with a step")
    return window(call, axis, start, stop)


def bounds(call: Call, position: int, size: int) -> tuple[int, int]:
    """Start and end of a slice, the arguments at a position, within an axis."""
    start, stop, _ = slice(call.get(position, "start"), call.get(position + 1, "end")).indices(size)
    return start, stop


@rule("aten.narrow.default", "aten.narrow_copy", examples=lambda draw: [
    example(draw(3, 11), 1, 2, 5), example(draw(11, 3), 0, -5, 3),
])  # fmt: skip
def narrow(call: Call) -> Law | None:
    """``x[l + m + r] -> y[m]``."""
    axis, start, length = call.args[1] % call.operands[0].rank, call.args[2], call.args[3]
    if not isinstance(start, int) or length == 0:
        return None
    first = start % call.operands[0].shape[axis]
    return window(call, axis, first, first + length)


@rule("aten.split.Tensor", "aten.split_with_sizes", "aten.chunk", "aten.unsafe_split", "aten.unsafe_chunk",
      "aten.unsafe_split_with_sizes", "aten.tensor_split.sections", "aten.tensor_split.indices", "aten.split.sizes",
      "aten.hsplit.int", "aten.split_copy", "aten.split_with_sizes_copy", examples=lambda draw: [
          example(draw(3, 15), 5, 1), example(draw(13, 3), 5), example(draw(3, 15), [3, 5, 7], -1),
          example(draw(3, 15), 3, dim=1), example(draw(3, 15), 3),
      ])  # fmt: skip
def split(call: Call) -> Law:
    """``x[a + b + c] -> y[a], z[b], u[c]``."""
    operand = call.operands[0]
    axis = call.get(2, "dim", 1 if "hsplit" in str(call.target) else 0) % operand.rank
    parts = {f"c{position}": (shape or ())[axis] for position, shape in enumerate(call.shapes)}
    pattern, names = list(lettered(operand.shape)), tuple(parts)
    results = tuple((*pattern[:axis], name, *pattern[axis + 1 :]) for name in names)
    pattern[axis] = Cat(names) if len(names) > 1 else names[0]
    return Law(blank(call, {0: tuple(pattern)}), results, (term(0),), sizes=tuple(parts.items()))


@rule("aten.unbind.int", "aten.unbind_copy", examples=lambda draw: [example(draw(3, 5, 7), 1), example(draw(3, 5))])
def unbind(call: Call) -> Law:
    """``x[a, e] -> y0[a], y1[a], ..``: every index of the axis becomes a tensor, which pins it."""
    operand = call.operands[0]
    axis = call.get(1, "dim", 0) % operand.rank
    pattern = lettered(operand.shape)
    result = (*pattern[:axis], *pattern[axis + 1 :])
    uses = pin(pattern[axis], "one tensor for every index") if isinstance(pattern[axis], str) else ()
    return Law((pattern,), (result,) * len(call.shapes), (term(0),), uses)


@rule("aten.slice_scatter", "aten.slice_scatter_copy", examples=lambda draw: [
    example(draw(3, 13), draw(3, 5), 1, 3, 8), example(draw(11, 5), draw(5, 5), 0, 0, 5), example(draw(3, 5), draw(3, 5), 1),
    example(draw(3, 13), draw(3, 5), 1, 3, 13, 2),
    example(torch.zeros(3, 13, dtype=torch.float64), draw(3, 5), 1, 3, 8, constants=(0,)),
    example(torch.ones(3, 13, dtype=torch.float64), draw(3, 5), 1, 3, 8, constants=(0,)),
])  # fmt: skip
def slice_scatter(call: Call) -> Law:
    """``x[l + u + r], s[m] -> y[l + m + r]``: one summand is replaced."""
    operand = call.operands[0]
    axis = call.get(2, "dim", 0) % operand.rank
    start, stop = bounds(call, 3, operand.shape[axis])
    return replaced(call, axis, start, stop) if call.get(5, "step", 1) == 1 and stop > start else strided(call, axis)


def replaced(call: Call, axis: int, start: int, stop: int) -> Law:
    """Everything along one axis but a window is the first operand's; the window is the second one's."""
    operand = call.operands[0]
    size = operand.shape[axis]
    outside = {name: length for name, length in (("l", start), ("r", size - stop)) if length}
    names = [name for name in ("l", "m", "r") if name == "m" or name in outside]
    shared = list(lettered(operand.shape))

    def along(middle: str) -> Pattern:
        parts = tuple(middle if name == "m" else name for name in names)
        return (*shared[:axis], Cat(parts) if len(parts) > 1 else parts[0], *shared[axis + 1 :])

    inner = (*shared[:axis], "m", *shared[axis + 1 :])
    zero = operand.value is not None and not operand.value.any()
    kept = () if zero or not outside else (term(0),)
    sizes = (*outside.items(), ("m", stop - start), ("u", stop - start))
    first = along("u") if kept else None
    return Law((first, inner), (along("m"),), (*kept, term(1)), sizes=sizes)


def strided(call: Call, axis: int) -> Law:
    """Entries are replaced at some positions, which are pinned; the other axes are shared."""
    shared = lettered(call.operands[0].shape)
    inner = (*shared[:axis], "m", *shared[axis + 1 :])
    uses = [use for letter in ("m", shared[axis]) for use in pin(str(letter), "written at some positions")]
    return Law((shared, inner), (shared,), (term(0), term(1)), tuple(uses), sizes=(("m", call.operands[1].shape[axis]),))


def window(call: Call, axis: int, start: int, stop: int) -> Law:
    """The law of ``x.narrow(axis, start, stop - start)``."""
    operand = call.operands[0]
    pattern, kept, sizes = _segment(axis, operand.shape[axis], start, stop, operand.shape)
    result = list(pattern)
    result[axis] = kept
    return Law(blank(call, {0: pattern}), (tuple(result),), (term(0),), sizes=tuple(sizes.items()))


@rule("aten.cat", "aten.concatenate", "aten.concat", examples=lambda draw: [
    example([draw(3, 5), draw(3, 7), draw(3, 11)], 1), example([draw(5, 3), draw(7, 3)]), example([draw(3, 5), draw(3, 1)], -1),
    example([draw(3, 5)], 1), example([draw(0), draw(3, 5), draw(4, 5)]),
    example([torch.zeros(3, 5, dtype=torch.float64), draw(3, 7)], 1, constants=(0,)),
    example([torch.ones(3, 5, dtype=torch.float64), draw(3, 7)], 1, constants=(0,)),
])  # fmt: skip
def cat(call: Call) -> Law | None:
    """``x[a], y[b] -> z[a + b]``; the other axes are shared."""
    shape = call.shapes[0] or ()
    tensors = [tensor for tensor in call.args[0] if tensor.rank == len(shape) and 0 not in tensor.shape]
    if not tensors:
        return None
    axis = call.get(1, "dim", 0) % len(shape)
    shared = lettered(shape)
    patterns: dict[int, Pattern] = {}
    sizes: dict[str, int] = {}
    for position, tensor in enumerate(tensors):
        sizes[f"c{position}"] = tensor.shape[axis]
        patterns[tensor.index] = (*shared[:axis], f"c{position}", *shared[axis + 1 :])
    parts = tuple(sizes)
    result = (*shared[:axis], Cat(parts) if len(parts) > 1 else parts[0], *shared[axis + 1 :])
    filled = [tensor for tensor in tensors if tensor.value is None or tensor.value.any()]
    patterns = {tensor.index: patterns[tensor.index] for tensor in filled}
    terms = tuple(term(tensor.index) for tensor in filled)
    return Law(blank(call, patterns), (result,), terms, sizes=tuple(sizes.items()))
