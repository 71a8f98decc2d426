"""Operators that only rearrange: views, permutations, repetitions, flips.

They state which axes are products of which others; what is learned about one name holds for all.

    view      x[(h d)] -> y[h, d]           a product is split
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from symgraph.rules.examples import Draw, Example, example
from symgraph.rules.law import Axis, Law, Pattern, pin, term
from symgraph.rules.registry import Call, blank, lettered, rule
from symgraph.rules.summands import pinned_axis


def regroup(source: tuple[int, ...], target: tuple[int, ...]) -> tuple[Pattern, Pattern, dict[str, int], list[str]]:
    """Patterns of a row-major reshape: the shapes fall into shortest runs of axes with equal products; see :func:`_refine`.

    Returns the two patterns, the letters' sizes, and the letters whose axes share no common refinement (pinned).

    >>> regroup((2, 12), (2, 3, 4))[:2]
    (('v0', ('v1', 'v2')), ('v0', 'v1', 'v2'))
    """
    sizes: dict[str, int] = {}
    bad: list[str] = []
    if 0 in (*source, *target):
        return _unrelated(source, target, sizes, bad)
    patterns: tuple[list[Axis], list[Axis]] = ([], [])
    for left, right in _runs(source, target):
        for whole, part in zip(patterns, _refine(left, right, sizes, bad), strict=True):
            whole += part
    return tuple(patterns[0]), tuple(patterns[1]), sizes, bad


def _runs(source: tuple[int, ...], target: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Shortest runs of axes of both shapes with equal products; axes of size one at the end belong to the last."""
    i = j = 0
    while i < len(source) or j < len(target):
        first, second, left, right = i, j, 1, 1
        while left != right or left == 1:
            if i < len(source) and (left <= right or j == len(target)):
                left, i = left * source[i], i + 1
            elif j < len(target):
                right, j = right * target[j], j + 1
            else:
                break
        yield source[first:i], target[second:j]


def _refine(
    source: tuple[int, ...], target: tuple[int, ...], sizes: dict[str, int], bad: list[str]
) -> tuple[Pattern, Pattern]:
    """Walk both from the left and split the longer axis; pinned, each on its own, where neither length divides the other."""
    found: dict[str, int] = {}
    groups: tuple[list[list[str]], list[list[str]]] = ([[] for _ in source], [[] for _ in target])
    remaining = [list(source), list(target)]
    position = [0, 0]
    while position[0] < len(source) and position[1] < len(target):
        left, right = remaining[0][position[0]], remaining[1][position[1]]
        step = min(left, right)
        if max(left, right) % step:
            return _unrelated(source, target, sizes, bad)[:2]
        if step > 1:
            letter = f"v{len(sizes) + len(found)}"
            found[letter] = step
        for side in (0, 1):
            if step > 1:
                groups[side][position[side]].append(letter)
            remaining[side][position[side]] //= step
            position[side] += remaining[side][position[side]] == 1
    sizes.update(found)
    return _pattern(groups[0]), _pattern(groups[1])


def _pattern(groups: list[list[str]]) -> Pattern:
    return tuple(group[0] if len(group) == 1 else tuple(group) for group in groups)


def _unrelated(
    source: tuple[int, ...], target: tuple[int, ...], sizes: dict[str, int], bad: list[str]
) -> tuple[Pattern, Pattern, dict[str, int], list[str]]:
    """No common refinement: every axis on its own, pinned."""
    patterns: list[Pattern] = []
    for shape in (source, target):
        pattern: list[Axis] = []
        for size in shape:
            letter = f"v{len(sizes)}"
            pattern.append(letter if size != 1 else ())
            if size != 1:
                sizes[letter] = size
                bad.append(letter)
        patterns.append(tuple(pattern))
    return patterns[0], patterns[1], sizes, bad


def _views(draw: Draw) -> list[Example]:
    return [
        example(draw(3, 35), [3, 5, 7]), example(draw(3, 5, 7), [15, 7]), example(draw(15, 7), [3, 35]),
        example(draw(3, 6, 35), [3, 15, 14]), example(draw(3, 5, 1), [3, 1, 5]), example(draw(3, 5, 7), 1, 2),
        example(draw(3, 35), 1, [5, 7]), example(draw(3, 35), draw(15, 7)), example(draw(3, 1, 5)), example(draw(3, 1, 5), 1),
        example(draw(3, 1, 5, 1), [1, 3]), example(draw(3, 35), [3, 5, 7], [35, 7, 1]),
    ]  # fmt: skip


@rule("aten.view.default", "aten.reshape", "aten._unsafe_view", "aten.flatten", "aten.unflatten.int", "aten.view_as",
      "aten.reshape_as", "aten._reshape_alias", "aten.squeeze", "aten.squeeze_", "aten.unsqueeze", "aten.unsqueeze_",
      "aten.ravel", "aten.atleast_1d", "aten.view_copy.default", "aten.squeeze_copy", "aten.unsqueeze_copy",
      examples=_views)  # fmt: skip
def view(call: Call) -> Law | None:
    """``x[(h d)] -> y[h, d]`` and back, row-major."""
    if not call.shapes or not isinstance(call.shapes[0], tuple) or call.dtypes[:1] != (call.operands[0].dtype,):
        return None
    source, target, sizes, bad = regroup(call.operands[0].shape, call.shapes[0] or ())
    uses = [use for letter in bad for use in pin(letter, "a view that splits no factor")]
    return Law(blank(call, {0: source}), (target,), (term(0),), tuple(uses), sizes=tuple(sizes.items()))


@rule("aten.view_as_real", "aten.view_as_real_copy", examples=lambda draw: [example(torch.complex(draw(3, 5), draw(3, 5)))])
def real_view(call: Call) -> Law:
    """``z[a] -> x[a, 2]``: real and imaginary part; only real numbers multiply both alike."""
    pattern = lettered(call.operands[0].shape)
    return Law((pattern,), ((*pattern, "c"),), (term(0),), pin("c", "real and imaginary part"))


@rule("aten.view_as_complex", "aten.view_as_complex_copy", examples=lambda draw: [example(draw(3, 5, 2))])
def complex_view(call: Call) -> Law:
    """``x[a, 2] -> z[a]``."""
    pattern = lettered(call.operands[0].shape[:-1])
    return Law(((*pattern, "c"),), (pattern,), (term(0),), pin("c", "real and imaginary part"))


def _permuted(call: Call, order: list[int]) -> Law:
    pattern = lettered(call.operands[0].shape)
    return Law((pattern,), (tuple(pattern[axis] for axis in order),), (term(0),))


@rule("aten.permute", "aten.permute_copy", examples=lambda draw: [
    example(draw(3, 5, 7), [2, 0, 1]), example(draw(3, 5), [-1, 0]),
])  # fmt: skip
def permute(call: Call) -> Law:
    """``x[a, b, c] -> y[c, a, b]``."""
    rank = call.operands[0].rank
    return _permuted(call, [axis % rank for axis in call.args[1]])


@rule("aten.transpose.int", "aten.transpose_", "aten.t", "aten.t_", "aten.numpy_T", "aten.swapaxes", "aten.swapdims",
      "aten.mT", "aten.mH", "aten.adjoint", "aten.matrix_H", "aten.t_copy", "aten.transpose_copy", examples=lambda draw: [
          example(draw(3, 5, 7), 0, 2), example(draw(3, 5, 7), -1, -2), example(draw(3, 5)), example(draw(3, 5, 7)),
      ])  # fmt: skip
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


@rule("aten.movedim.int", "aten.movedim.intlist", "aten.moveaxis.int", "aten.moveaxis.intlist", examples=lambda draw: [
    example(draw(3, 5, 7), 0, 2), example(draw(3, 5, 7), 2, 0), example(draw(3, 5, 7), [0, 1], [2, 0]),
])  # fmt: skip
def movedim(call: Call) -> Law:
    """``x[a, b, c] -> y[b, c, a]``."""
    rank = call.operands[0].rank
    sources, targets = ([each] if isinstance(each, int) else each for each in call.args[1:3])
    placed = {target % rank: source % rank for source, target in zip(sources, targets, strict=True)}
    rest = iter(axis for axis in range(rank) if axis not in placed.values())
    return _permuted(call, [placed[axis] if axis in placed else next(rest) for axis in range(rank)])


@rule("aten.expand", "aten.expand_as", "aten.broadcast_to", "aten.expand_copy", examples=lambda draw: [
    example(draw(3, 1, 5), [3, 7, 5]), example(draw(3, 5), [7, -1, 5]), example(draw(3, 1), draw(3, 5)),
])  # fmt: skip
def expand(call: Call) -> Law:
    """``x[1, a] -> y[r, a]``: the same value at every index of r."""
    shape, operand = call.shapes[0] or (), call.operands[0]
    offset = len(shape) - operand.rank
    pattern = tuple(() if size == 1 else f"a{offset + axis}" for axis, size in enumerate(operand.shape))
    return Law(blank(call, {0: pattern}), (lettered(shape),), (term(0),))


@rule("aten.repeat", "aten.tile", examples=lambda draw: [
    example(draw(3, 5), [1, 3]), example(draw(3, 5), [7, 2, 1]), example(draw(3, 1), [1, 5]), example(draw(5), [3]),
])  # fmt: skip
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
    return Law(blank(call, {0: pattern}), (tuple(result),), (term(0),), sizes=tuple(sizes.items()))


@rule("aten.repeat_interleave.self_int", examples=lambda draw: [
    example(draw(3, 5), 3, 1), example(draw(5, 3), 2, dim=0), example(draw(3, 1), 5, -1), example(draw(3, 5), 2),
])  # fmt: skip
def repeat_interleave(call: Call) -> Law | None:
    """``x[a] -> y[(a r)]``."""
    operand = call.operands[0]
    dim = call.get(2, "dim")
    if dim is None:
        return None  # flattened before
    axis, times = dim % operand.rank, call.args[1]
    pattern = lettered(operand.shape)
    result: list[Axis] = list(pattern)
    if times > 1:
        result[axis] = (pattern[axis], "r") if pattern[axis] else "r"
    return Law(blank(call, {0: pattern}), (tuple(result),), (term(0),), sizes=(("r", times),))


@rule("aten.diagonal", "aten.diagonal_copy", examples=lambda draw: [example(draw(5, 5)), example(draw(3, 5, 5), 1, 1, 2)])
def diagonal(call: Call) -> Law:
    """``x[i, i] -> y[i]``: two axes are read at the same index, which pins them; the others pass."""
    operand, shape = call.operands[0], call.shapes[0] or ()
    first, second = (call.get(position, name, default) % operand.rank
                     for position, name, default in ((2, "dim1", 0), (3, "dim2", 1)))  # fmt: skip
    pattern = lettered(operand.shape)
    result = (*(axis for index, axis in enumerate(pattern) if index not in (first, second)), *lettered(shape[-1:], "d"))
    pinned = [axis for axis in (pattern[first], pattern[second], result[-1]) if isinstance(axis, str)]
    return Law((pattern,), (result,), (term(0),), tuple(use for axis in pinned for use in pin(axis, "a diagonal")))


def _along(call: Call, axes: list[int], reason: str) -> Law:
    """A fixed linear operator that keeps the shape, along given axes."""
    pattern = lettered(call.operands[0].shape)
    letters = tuple(letter for axis in axes if isinstance(letter := pattern[axis], str))
    uses = tuple(use for letter in letters for use in pin(letter, reason))
    return Law(blank(call, {0: pattern}), (pattern,), (term(0),), uses, mixes=letters)


@rule("aten.flip", "aten.fliplr", "aten.flipud", examples=lambda draw: [example(draw(3, 5, 7), [1]), example(draw(3, 5))])
def flip(call: Call) -> Law:
    """``x[.., i] -> y[.., n - i]``."""
    name = str(call.target)
    return _along(call, [1] if "fliplr" in name else [0] if "flipud" in name else call.args[1], "flipped along the axis")


@rule("aten.roll", examples=lambda draw: [
    example(draw(3, 5, 7), [2], [1]), example(draw(3, 5, 7), [1, 2], [0, -1]), example(draw(3, 5), [4]),
])  # fmt: skip
def roll(call: Call) -> Law:
    """``x[.., i] -> y[.., i + s]``; without axes, along all of them."""
    return _along(call, list(call.get(2, "dims") or range(call.operands[0].rank)), "rolled along the axis")


@rule("aten.tril", "aten.triu", "aten.tril_", "aten.triu_", examples=lambda draw: [
    example(draw(3, 5, 7)), example(draw(5, 5), 1),
])  # fmt: skip
def triangle(call: Call) -> Law:
    """Entries above or below the diagonal of the last two axes become zero."""
    return _along(call, [-2, -1], "a triangle of the axes")


@rule("aten.diff", examples=lambda draw: [
    example(draw(3, 5, 7)), example(draw(3, 5, 7), 1, 1), example(draw(3, 5), 2, dim=0), example(draw(3, 5), 1, -1, draw(3, 1)),
])  # fmt: skip
def difference(call: Call) -> Law | None:
    """``x[.., i + 1] - x[.., i]``."""
    if len(call.operands) > 1:
        return None
    return pinned_axis(call, call.get(2, "dim", -1) % call.operands[0].rank, "differences along the axis")
