"""Operators that only rearrange: views, permutations, slices, concatenations.

They state which axes are products and direct sums of which others; what is learned about one name holds for all.

    view      x[(h d)] -> y[h, d]           a product is split
    cat       x[a], y[b] -> z[a + b]        a direct sum is made
    slice     x[a + b + c] -> y[b]          a direct sum is split
"""

from __future__ import annotations

from typing import Any

from symgraph.rules.elementwise import addend
from symgraph.rules.law import Axis, Cat, Law, Pattern, Use, pin, term
from symgraph.rules.registry import Call, lettered, rule


def regroup(source: tuple[int, ...], target: tuple[int, ...]) -> tuple[Pattern, Pattern, dict[str, int], list[str]]:
    """Patterns of a row-major reshape, by walking both shapes from the left and splitting the longer axis.

    Returns the two patterns, the letters' sizes, and the letters whose axes share no common refinement (pinned).

    >>> regroup((2, 12), (2, 3, 4))[:2]
    (('v0', ('v1', 'v2')), ('v0', 'v1', 'v2'))
    """
    sizes: dict[str, int] = {}
    bad: list[str] = []
    groups: tuple[list[list[str]], list[list[str]]] = ([[] for _ in source], [[] for _ in target])
    i = j = 0
    left, right = (source[0] if source else 1), (target[0] if target else 1)
    while i < len(source) and j < len(target):
        if left == 1 or right == 1:
            step = 1
        elif left % right == 0 or right % left == 0:
            step = min(left, right)
        else:
            return _incommensurable(source, target)
        if step > 1:
            letter = f"v{len(sizes)}"
            sizes[letter] = step
            groups[0][i].append(letter)
            groups[1][j].append(letter)
        left, right = left // step, right // step
        if left == 1:
            i += 1
            left = source[i] if i < len(source) else 1
        if right == 1:
            j += 1
            right = target[j] if j < len(target) else 1
    return _pattern(groups[0]), _pattern(groups[1]), sizes, bad


def _pattern(groups: list[list[str]]) -> Pattern:
    return tuple(group[0] if len(group) == 1 else tuple(group) for group in groups)


def _incommensurable(
    source: tuple[int, ...], target: tuple[int, ...]
) -> tuple[Pattern, Pattern, dict[str, int], list[str]]:
    """No common refinement: every axis on its own, pinned."""
    first, second = lettered(source, "s"), lettered(target, "t")
    sizes = {f"{name}{axis}": size for name, shape in (("s", source), ("t", target))
             for axis, size in enumerate(shape) if size > 1}  # fmt: skip
    return first, second, sizes, list(sizes)


def _blank(call: Call, patterns: dict[int, Pattern]) -> tuple[Pattern | None, ...]:
    return tuple(patterns.get(operand.index) for operand in call.operands)


@rule("aten.view", "aten.reshape", "aten._unsafe_view", "aten.flatten", "aten.unflatten", "aten.view_as",
      "aten.reshape_as", "aten._reshape_alias", "aten.squeeze", "aten.unsqueeze")  # fmt: skip
def view(call: Call) -> Law:
    """``x[(h d)] -> y[h, d]`` and back, row-major."""
    source, target, sizes, bad = regroup(call.operands[0].shape, call.shapes[0] or ())
    uses = [use for letter in bad for use in pin(letter, "a view that splits no factor")]
    return Law(_blank(call, {0: source}), (target,), (term(0),), tuple(uses), sizes=tuple(sizes.items()))


def _permuted(call: Call, order: list[int]) -> Law:
    pattern = lettered(call.operands[0].shape)
    return Law((pattern,), (tuple(pattern[axis] for axis in order),), (term(0),))


@rule("aten.permute")
def permute(call: Call) -> Law:
    """``x[a, b, c] -> y[c, a, b]``."""
    rank = call.operands[0].rank
    return _permuted(call, [axis % rank for axis in call.args[1]])


@rule("aten.transpose.int", "aten.t", "aten.numpy_T", "aten.swapaxes", "aten.mT", "aten.adjoint")
def transpose(call: Call) -> Law:
    """``x[a, b] -> y[b, a]``."""
    rank = call.operands[0].rank
    order = list(range(rank))
    if len(call.args) > 2:
        first, second = call.args[1] % rank, call.args[2] % rank
        order[first], order[second] = second, first
    elif "numpy_T" in str(call.target):
        order.reverse()
    elif rank >= 2:
        order[-2:] = order[-1], order[-2]
    return _permuted(call, order)


@rule("aten.expand", "aten.expand_as", "aten.broadcast_to")
def expand(call: Call) -> Law:
    """``x[1, a] -> y[r, a]``: the same value at every index of r."""
    shape, operand = call.shapes[0] or (), call.operands[0]
    offset = len(shape) - operand.rank
    pattern = tuple(() if size == 1 else f"a{offset + axis}" for axis, size in enumerate(operand.shape))
    return Law(_blank(call, {0: pattern}), (lettered(shape),), (term(0),))


def _segment(axis: int, size: int, start: int, stop: int, rank_shape: tuple[int, ...]) -> tuple[Pattern, Axis, dict[str, int]]:
    """Pattern of the operand with its axis cut into before, kept and after; the kept part; sizes."""
    sizes = {name: length for name, length in (("l", start), ("m", stop - start), ("r", size - stop)) if length}
    pattern = list(lettered(rank_shape))
    parts = tuple(sizes)
    pattern[axis] = Cat(parts) if len(parts) > 1 else parts[0]
    return tuple(pattern), "m", sizes


@rule("aten.slice.Tensor")
def slice_(call: Call) -> Law | None:
    """``x[l + m + r] -> y[m]``; a step other than one, or an empty result, leaves nothing along the axis."""
    operand = call.operands[0]
    axis = call.get(1, "dim", 0) % operand.rank
    size = operand.shape[axis]
    start, stop, _ = slice(call.get(2, "start"), call.get(3, "end")).indices(size)
    if call.get(4, "step", 1) != 1 or stop <= start:
        return pinned_axis(call, axis, "a slice with a step")
    return window(call, axis, start, stop)


def window(call: Call, axis: int, start: int, stop: int) -> Law:
    """The law of ``x.narrow(axis, start, stop - start)``."""
    operand = call.operands[0]
    pattern, kept, sizes = _segment(axis, operand.shape[axis], start, stop, operand.shape)
    result = list(pattern)
    result[axis] = kept
    return Law(_blank(call, {0: pattern}), (tuple(result),), (term(0),), sizes=tuple(sizes.items()))


def pinned_axis(call: Call, axis: int, reason: str) -> Law:
    """A linear operator of no particular law along one axis; the other axes pass."""
    operand, shape = call.operands[0], call.shapes[0] or ()
    pattern, result = list(lettered(operand.shape)), list(lettered(shape))
    uses: list[Use] = []
    for each, name in ((pattern, "u"), (result, "w")):
        if each[axis]:
            each[axis] = name
            uses += pin(name, reason)
    return Law(_blank(call, {0: tuple(pattern)}), (tuple(result),), (term(0),), tuple(uses))


@rule("aten.flip", "aten.roll", "aten.tril", "aten.triu", "aten.diff")
def along(call: Call) -> Law:
    """Fixed linear operators along given axes (all of them, where none are given)."""
    operand = call.operands[0]
    name = str(call.target)
    last_two = list(range(operand.rank))[-2:]
    dims: Any = last_two if "tri" in name else call.get(2 if "roll" in name or "diff" in name else 1, "dims")
    axes = [dims] if isinstance(dims, int) else (dims or range(operand.rank))
    pattern = lettered(operand.shape)
    letters = [letter for axis in axes if isinstance(letter := pattern[axis], str)]
    uses = tuple(use for letter in letters for use in pin(letter, f"{name} along the axis"))
    if operand.shape != call.shapes[0]:
        return pinned_axis(call, list(axes)[0] % operand.rank, f"{name} along the axis")
    return Law(_blank(call, {0: pattern}), (pattern,), (term(0),), uses, mixes=tuple(letters))


@rule("aten.cat", "aten.concatenate", "aten.concat")
def cat(call: Call) -> Law:
    """``x[a], y[b] -> z[a + b]``; the other axes are shared."""
    tensors = [tensor for tensor in call.args[0] if tensor.rank and 0 not in tensor.shape]
    rank = tensors[0].rank
    axis = call.get(1, "dim", 0) % rank
    shared = lettered(call.shapes[0] or ())
    patterns: dict[int, Pattern] = {}
    sizes: dict[str, int] = {}
    for position, tensor in enumerate(tensors):
        sizes[f"c{position}"] = tensor.shape[axis]
        patterns[tensor.index] = (*shared[:axis], f"c{position}", *shared[axis + 1 :])
    parts = tuple(sizes)
    result = (*shared[:axis], Cat(parts) if len(parts) > 1 else parts[0], *shared[axis + 1 :])
    terms = tuple(term(tensor.index) for tensor in tensors)
    return Law(_blank(call, patterns), (result,), terms, sizes=tuple(sizes.items()))


@rule("aten.repeat", "aten.tile")
def repeat(call: Call) -> Law:
    """``x[a] -> y[(r a)]``."""
    operand, shape = call.operands[0], call.shapes[0] or ()
    offset = len(shape) - operand.rank
    pattern = lettered(operand.shape)
    result: list[Axis] = []
    sizes: dict[str, int] = {}
    for axis, size in enumerate(shape):
        inner = pattern[axis - offset] if axis >= offset else ()
        times = size // (operand.shape[axis - offset] if axis >= offset else 1)
        if times > 1:
            sizes[f"r{axis}"] = times
            result.append((f"r{axis}", inner) if inner else f"r{axis}")
        else:
            result.append(inner)
    return Law(_blank(call, {0: pattern}), (tuple(result),), (term(0),), sizes=tuple(sizes.items()))


@rule("aten.repeat_interleave.self_int")
def repeat_interleave(call: Call) -> Law | None:
    """``x[a] -> y[(a r)]``."""
    operand = call.operands[0]
    dim = call.get(2, "dim")
    if dim is None:
        return None
    axis, times = dim % operand.rank, call.args[1]
    pattern = lettered(operand.shape)
    result: list[Axis] = list(pattern)
    if times > 1:
        result[axis] = (pattern[axis], "r") if pattern[axis] else "r"
    return Law(_blank(call, {0: pattern}), (tuple(result),), (term(0),), sizes=(("r", times),))


@rule("aten.constant_pad_nd", "aten.pad")
def pad(call: Call) -> Law:
    """Padding: positions move along the padded axes, which are pinned; the other axes pass."""
    operand, shape = call.operands[0], call.shapes[0] or ()
    before, after = list(lettered(operand.shape)), list(lettered(shape))
    uses: list[Use] = []
    for axis in range(operand.rank):
        if operand.shape[axis] != shape[axis]:
            for each, name in ((before, f"u{axis}"), (after, f"w{axis}")):
                if each[axis]:
                    each[axis] = name
                    uses += pin(name, "padding")
    value = next((item for item in (*call.args[2:], call.kwargs.get("value")) if isinstance(item, int | float)), 0)
    return Law(_blank(call, {0: tuple(before)}), (tuple(after),), (term(0), *addend(value)), tuple(uses))

