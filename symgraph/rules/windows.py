"""Operators on positions: pooling, resampling, padding, unfolding. Positions are pinned, channels pass.

    x[b, c, s..] -> y[b, c, t..]

Along the channels such an operator is linear (average, interpolation, unfolding) or positively homogeneous (max).
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from symgraph.rules.arithmetic import number
from symgraph.rules.examples import Draw, Example, example
from symgraph.rules.law import GENERIC, LINEAR, POSITIVELY_HOMOGENEOUS, Law, Pattern, Power, Term, Use, pin, term
from symgraph.rules.registry import Call, lettered, rule


def _moved(call: Call, before: Pattern, after: Pattern, entry: Power, kept: int, reason: str) -> Law:
    """The law of an operator that keeps the first axes; all others are pinned, before and after."""
    uses: list[Use] = []
    for axis in (*before[kept:], *after[kept:]):
        if isinstance(axis, str):
            uses += pin(axis, reason)
    operands = (before, *(None for _ in call.operands[1:]))
    return Law(operands, (after,) * len(call.shapes), (Term(((0, entry),)),), tuple(uses))


def _pool(call: Call, spatial: int, entry: Power, uniform: bool = False) -> Law:
    operand, shape = call.operands[0], call.shapes[0] or ()
    first = operand.rank - spatial
    before = (*lettered(operand.shape[:first]), *lettered(operand.shape[first:], "s"))
    after = (*lettered(shape[:first]), *lettered(shape[first:], "t"))
    return replace(_moved(call, before, after, entry, first, "position of a window"), uniform=uniform)


def _spatial(call: Call) -> int:
    """The number in the operator's name."""
    return int(next(character for character in str(call.target) if character.isdigit()))


def _images(draw: Draw) -> tuple[Tensor, Tensor, Tensor]:
    return draw(2, 5, 11), draw(2, 3, 7, 5), draw(2, 3, 5, 7, 5)


def _max_pools(draw: Draw) -> list[Example]:
    one, two, three = _images(draw)
    return [
        example(one, [3], [2]), example(two, [3, 3], [1, 2], [1, 1]), example(three, [3, 3, 3], [2, 2, 2]),
        example(draw(3, 7, 5), [2, 2]),
    ]  # fmt: skip


@rule("aten.max_pool1d", "aten.max_pool2d", "aten.max_pool3d", "aten.max_pool1d_with_indices", "aten.max_pool2d_with_indices",
      "aten.max_pool3d_with_indices", examples=_max_pools)  # fmt: skip
def max_pool(call: Call) -> Law:
    """``x[b, c, s..] -> y[b, c, t..]``: the largest of a window, positively homogeneous; and the pinned position of it."""
    return _pool(call, _spatial(call), POSITIVELY_HOMOGENEOUS)


def _adaptive_pools(draw: Draw) -> list[Example]:
    one, two, three = _images(draw)
    return [example(one, [3]), example(two, [3, 2]), example(three, [3, 3, 2]), example(draw(3, 7, 5), [2, 2])]


@rule("aten.adaptive_max_pool1d", "aten.adaptive_max_pool2d", "aten.adaptive_max_pool3d", examples=_adaptive_pools)
def adaptive_max_pool(call: Call) -> Law:
    """The same with windows that fit a size."""
    return _pool(call, _spatial(call), POSITIVELY_HOMOGENEOUS)


def _average_pools(draw: Draw) -> list[Example]:
    one, two, three = _images(draw)
    return [
        example(one, [3], [2]), example(two, [3, 3], [1, 2], [1, 1], True, False), example(three, [3, 3, 3], [2, 2, 2]),
        example(draw(3, 7, 5), [2, 2]), example(two, [3, 3], [1, 2], [1, 1], False, True), example(one, 3),
    ]  # fmt: skip


@rule("aten.avg_pool1d", "aten.avg_pool2d", "aten.avg_pool3d", examples=_average_pools)
def average_pool(call: Call) -> Law:
    """``x[b, c, s..] -> y[b, c, t..]``: linear along the positions, nothing asked of the channels."""
    return _pool(call, _spatial(call), LINEAR)


@rule("aten.adaptive_avg_pool1d", "aten.adaptive_avg_pool2d", "aten._adaptive_avg_pool2d", "aten.adaptive_avg_pool3d",
      "aten._adaptive_avg_pool3d", examples=_adaptive_pools)  # fmt: skip
def adaptive_average_pool(call: Call) -> Law:
    """The same with windows that fit a size."""
    return _pool(call, _spatial(call), LINEAR, uniform=True)


def _resamplings(draw: Draw) -> list[Example]:
    one, two, three = _images(draw)
    return [
        example(one, [13]), example(two, [13, 11]), example(three, [7, 11, 7]), example(one, [13], False),
        example(two, [13, 11], True), example(three, [7, 11, 7], False), example(one, None, [2.0]),
        example(two, None, [2.0, 3.0]), example(three, None, [2.0, 2.0, 2.0]), example(one, None, False, [2.0]),
        example(two, None, False, [2.0, 3.0]), example(three, [7, 11, 7], True, None),
    ]  # fmt: skip


@rule("aten.upsample_nearest1d", "aten.upsample_nearest2d", "aten.upsample_nearest3d", "aten._upsample_nearest_exact1d",
      "aten._upsample_nearest_exact2d", "aten._upsample_nearest_exact3d", "aten.upsample_linear1d",
      "aten.upsample_bilinear2d", "aten.upsample_trilinear3d", "aten.upsample_bicubic2d", "aten._upsample_bilinear2d_aa",
      "aten._upsample_bicubic2d_aa", examples=_resamplings)  # fmt: skip
def resample(call: Call) -> Law:
    """``x[b, c, s..] -> y[b, c, t..]``: interpolation is linear along the positions."""
    return _pool(call, _spatial(call), LINEAR, uniform=True)


def _paddings(draw: Draw) -> list[Example]:
    one, two, three = _images(draw)
    return [example(one, [2, 1]), example(two, [1, 1, 2, 0]), example(three, [1, 1, 1, 0, 2, 1])]


@rule("aten.reflection_pad1d", "aten.reflection_pad2d", "aten.reflection_pad3d", "aten.replication_pad1d",
      "aten.replication_pad2d", "aten.replication_pad3d", examples=_paddings)  # fmt: skip
def reflected(call: Call) -> Law:
    """Padding with entries of the tensor itself."""
    return _pool(call, _spatial(call), LINEAR, uniform=True)


@rule("aten.constant_pad_nd", "aten.pad", examples=lambda draw: [
    example(draw(3, 5, 7), [2, 1]), example(draw(3, 5), [1, -1]), example(draw(3, 5), [0, 0, 2, 1], 0.7),
    example(draw(3, 5, 7), [1, 2], "constant", 0.7), example(draw(3, 5, 7), [1, 2], "reflect"),
    example(draw(3, 5, 7), [1, 2], "circular"), example(draw(3, 5), [1, 1], "constant", value=0.4),
])  # fmt: skip
def pad(call: Call) -> Law:
    """``x[a, s] -> y[a, t]``: positions move along the axes that are padded or cut, which are pinned."""
    operand, shape = call.operands[0], call.shapes[0] or ()
    before, after = list(lettered(operand.shape)), list(lettered(shape))
    amounts = call.args[1]
    uses: list[Use] = []
    for axis in range(operand.rank):
        position = 2 * (operand.rank - 1 - axis)
        if any(amounts[position : position + 2]):
            for each, name in ((before, f"u{axis}"), (after, f"w{axis}")):
                if each[axis]:
                    each[axis] = name
                    uses += pin(name, "padding")
    given = [item for item in (*call.args[2:], call.kwargs.get("value")) if isinstance(item, int | float)]
    filled = number(given[0]) if given and any(amount > 0 for amount in amounts) else ()
    return Law((tuple(before),), (tuple(after),), (term(0), *filled), tuple(uses))


@rule("aten.im2col", examples=lambda draw: [
    example(draw(2, 3, 7, 5), [3, 3], [1, 1], [1, 1], [1, 1]), example(draw(3, 7, 5), [2, 3], [1, 1], [0, 0], [2, 1]),
])  # fmt: skip
def unfold_windows(call: Call) -> Law:
    """``x[b, c, s..] -> y[b, (c k), t]``: every window as a column."""
    operand, shape = call.operands[0], call.shapes[0] or ()
    first = operand.rank - 3
    batch, channels = lettered(operand.shape[:first]), operand.shape[first]
    window = shape[first] // channels
    column = tuple(name for name, size in (("c", channels), ("k", window)) if size > 1)
    before = (*batch, "c" if channels > 1 else (), *lettered(operand.shape[first + 1 :], "s"))
    after = (*batch, column, *lettered(shape[first + 1 :], "t"))
    pinned = [axis for axis in (*before[first + 1 :], *after[first + 1 :], *(["k"] if window > 1 else [])) if axis]
    uses = tuple(use for axis in pinned for use in pin(str(axis), "position of a window"))
    return Law((before,), (after,), (term(0),), uses, sizes=(("c", channels), ("k", window)))


@rule("aten.col2im", examples=lambda draw: [example(draw(2, 27, 35), [7, 5], [3, 3], [1, 1], [1, 1], [1, 1])])
def fold_windows(call: Call) -> Law:
    """``x[b, (c k), s] -> y[b, c, t..]``: the windows are added up where they overlap."""
    operand, shape = call.operands[0], call.shapes[0] or ()
    first = operand.rank - 2
    batch, channels = lettered(operand.shape[:first]), shape[first]
    window = operand.shape[first] // channels
    column = tuple(name for name, size in (("c", channels), ("k", window)) if size > 1)
    before = (*batch, column, *lettered(operand.shape[first + 1 :], "s"))
    after = (*batch, "c" if channels > 1 else (), *lettered(shape[first + 1 :], "t"))
    pinned = [axis for axis in (*before[first + 1 :], *after[first + 1 :], *(["k"] if window > 1 else [])) if axis]
    uses = tuple(use for axis in pinned for use in pin(str(axis), "position of a window"))
    return Law((before,), (after,), (term(0),), uses, sizes=(("c", channels), ("k", window)))


@rule("aten.unfold", "aten.unfold_copy", examples=lambda draw: [
    example(draw(3, 5, 11), 2, 3, 2), example(draw(3, 11, 5), 1, 5, 3),
])  # fmt: skip
def sliding(call: Call) -> Law:
    """``x[a, s, b] -> y[a, t, b, k]``: windows along one axis."""
    operand, shape = call.operands[0], call.shapes[0] or ()
    axis = call.get(1, "dimension") % operand.rank
    before = list(lettered(operand.shape))
    after = [*before, *lettered(shape[-1:], "k")]
    before[axis], after[axis] = *lettered(operand.shape[axis : axis + 1], "s"), *lettered(shape[axis : axis + 1], "t")
    pinned = [each for each in (before[axis], after[axis], after[-1]) if each]
    uses = tuple(use for each in pinned for use in pin(each, "position of a window"))
    return Law((tuple(before),), (tuple(after),), (term(0),), uses)


@rule("aten.grid_sampler", "aten.grid_sampler_2d", "aten.grid_sampler_3d", examples=lambda draw: [
    example(draw(3, 5, 7, 11), draw.small(3, 5, 3, 2), 0, 0, False),
    example(draw(2, 3, 5, 5, 7), draw.small(2, 5, 3, 7, 3), 0, 1, True),
])  # fmt: skip
def sample_grid(call: Call) -> Law:
    """``x[b, c, s..], grid[b, t.., d] -> y[b, c, t..]``: linear in x, any function of the grid; output positions pass."""
    x, grid = call.operands[0], call.operands[1]
    positions = lettered(grid.shape[1:-1], "t")
    before = (*lettered(x.shape[:2]), *lettered(x.shape[2:], "s"))
    coordinates = lettered(grid.shape[-1:], "d")
    batch = before[0] if grid.shape[0] > 1 else ()
    pinned = [axis for axis in (*before[2:], *coordinates) if axis]
    uses = tuple(use for axis in pinned for use in pin(str(axis), "position that is sampled"))
    patterns: tuple[Pattern, ...] = (before, (batch, *positions, *coordinates))
    terms = (Term(((0, LINEAR), (1, GENERIC))),)
    return Law(patterns, ((*before[:2], *positions),), terms, uses)


@rule("aten.fft_fft", "aten.fft_ifft", "aten.fft_rfft", "aten.fft_irfft", "aten.fft_hfft", "aten.fft_fftshift",
      "aten.fft_ifftshift", "aten.fft_fft2", "aten.fft_ifft2", "aten.fft_fftn", "aten.fft_ifftn", "aten.fft_rfftn",
      "aten.fft_rfft2", "aten._fft_r2c", "aten._fft_c2c", "aten._fft_c2r", examples=lambda draw: [
          example(draw(3, 5, 7)), example(draw(3, 5, 7), [1], 0, True),
          example(torch.complex(draw(3, 5, 7), draw(3, 5, 7)), [1], 0, True),
          example(torch.complex(draw(3, 5, 7), draw(3, 5, 7)), [1], 0, 5), example(draw(3, 5, 7), None, [1, 2]),
          example(draw(3, 5, 7), None, 1),
      ])  # fmt: skip
def fourier(call: Call) -> Law:
    """A Fourier transform along some axes, which are pinned; the others pass. Linear, all of it."""
    name = str(call.target).split(".")[1]
    operand, shape = call.operands[0], call.shapes[0] or ()
    low_level, shift, single = name.startswith("_"), name.endswith("shift"), not name.endswith(("2", "n"))
    default = -1 if single and not shift else [-2, -1] if name.endswith("2") else None
    dims = call.get(1 if low_level or shift else 2, "dim", default)
    axes = range(operand.rank) if dims is None else [dims] if isinstance(dims, int) else dims
    moved = {axis % operand.rank for axis in axes}
    before, after = list(lettered(operand.shape)), list(lettered(shape))
    uses: list[Use] = []
    for axis in moved:
        for each, name in ((before, f"u{axis}"), (after, f"w{axis}")):
            if each[axis]:
                each[axis] = name
                uses += pin(name, "a Fourier transform along the axis")
    return Law((tuple(before),), (tuple(after),), (term(0),), tuple(uses))

