"""Operators that are others in another form, as they come out of decompositions, losses and image code."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from symgraph.rules.composites import attention, batch_norm, group_norm, layer_norm, rms_norm, sum_of_squares, vector_norm
from symgraph.rules.examples import Draw, Example, example
from symgraph.rules.registry import composite

# --- norms that also return their statistics --------------------------------------------------------------------------


@composite("aten.native_layer_norm", examples=lambda draw: [
    example(draw(3, 5), [5], draw(5), draw(5), 1e-5), example(draw(3, 5, 7), [7], None, None, 0.1),
])  # fmt: skip
def native_layer_norm(
    x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Layer norm, the mean and the reciprocal root."""
    dims = [-1 - axis for axis in range(len(shape))]
    mean = x.mean(dims, keepdim=True)
    variance = sum_of_squares(x - mean, dims) / prod(shape)
    return layer_norm(x, shape, weight, bias, eps), mean, torch.rsqrt(variance + eps)


@composite("aten._fused_rms_norm", examples=lambda draw: [example(draw(3, 5), [5], draw(5), 1e-5)])
def native_rms_norm(x: Tensor, shape: Sequence[int], weight: Tensor | None, eps: float | None) -> tuple[Tensor, Tensor]:
    """Root mean square norm, and the reciprocal root."""
    dims = [-1 - axis for axis in range(len(shape))]
    scale = sum_of_squares(x, dims) / prod(shape) + (torch.finfo(x.dtype).eps if eps is None else eps)
    return rms_norm(x, shape, weight, eps), torch.rsqrt(scale)


@composite("aten.native_group_norm", examples=lambda draw: [
    example(draw(2, 15, 7), draw(15), draw(15), 2, 15, 7, 3, 1e-5), example(draw(2, 15, 7, 3), None, None, 2, 15, 21, 5, 0.1),
])  # fmt: skip
def native_group_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, batch: int, channels: int, positions: int, groups: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Group norm, the means and the reciprocal roots."""
    split = x.reshape(batch, groups, channels // groups, positions)
    mean = split.mean([2, 3])
    variance = sum_of_squares(split - mean[:, :, None, None], [2, 3], False) / (channels // groups * positions)
    return group_norm(x, groups, weight, bias, eps), mean, torch.rsqrt(variance + eps)


def _batch_statistics(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    dims = [0, *range(2, x.dim())]
    mean = x.mean(dims)
    centred = x - mean.reshape([1, -1] + [1] * (x.dim() - 2))
    return mean, torch.rsqrt(sum_of_squares(centred, dims, False) / (x.numel() // x.shape[1]) + eps)


@composite("aten._native_batch_norm_legit.no_stats", examples=lambda draw: [
    example(draw(3, 5, 7), draw(5), draw(5), True, 0.1, 1e-5), example(draw(7, 5), None, None, True, 0.1, 1e-5),
])  # fmt: skip
def batch_norm_of_batch(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, training: bool, momentum: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Statistics of the batch, whether training or not, and they are returned."""
    return (batch_norm(x, weight, bias, None, None, True, momentum, eps, False), *_batch_statistics(x, eps))


@composite("aten.native_batch_norm", "aten._native_batch_norm_legit.default", "aten._batch_norm_no_update",
           examples=lambda draw: [
    example(draw(3, 5, 7), draw(5), draw(5), draw(5), draw.positive(5), False, 0.1, 1e-5),
    example(draw(3, 5, 7), draw(5), draw(5), draw(5), draw.positive(5), 0.1, 1e-5),
])  # fmt: skip
def native_batch_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, var: Tensor, training: Any, momentum: float,
    eps: float | None = None,
) -> tuple[Tensor]:  # fmt: skip
    """Batch norm; the other results are not used at inference."""
    if eps is None:  # the variant without the flag
        training, momentum, eps = False, training, momentum
    return (batch_norm(x, weight, bias, mean, var, training, momentum, eps, False),)


@composite("aten.instance_norm", examples=lambda draw: [
    example(draw(3, 5, 7), draw(5), draw(5), None, None, True, 0.1, 1e-5, False),
    example(draw(3, 5, 7), None, None, draw(5), draw.positive(5), False, 0.1, 1e-5, False),
])  # fmt: skip
def instance_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor | None, var: Tensor | None, use_input_stats: bool,
    momentum: float, eps: float, cudnn_enabled: bool,
) -> Tensor:  # fmt: skip
    """Group norm with one channel in a group, or batch norm with stored statistics."""
    if use_input_stats or mean is None or var is None:
        return group_norm(x, x.shape[1], weight, bias, eps)
    return batch_norm(x, weight, bias, mean, var, False, momentum, eps, False)


# --- attention --------------------------------------------------------------------------------------------------------


@composite("aten._scaled_dot_product_flash_attention_for_cpu", examples=lambda draw: [
    example(draw(2, 3, 5, 7), draw(2, 3, 11, 7), draw(2, 3, 11, 7)),
    example(draw(2, 3, 5, 7), draw(2, 3, 11, 7), draw(2, 3, 11, 7), attn_mask=draw(2, 3, 5, 11), scale=0.3),
])  # fmt: skip
def flash_attention(
    q: Tensor, k: Tensor, v: Tensor, dropout_p: float = 0.0, is_causal: bool = False, *, attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor]:  # fmt: skip
    """Attention; the logarithm of the normaliser, which it also returns, is for its derivative."""
    return (attention(q, k, v, attn_mask, dropout_p, is_causal, scale=scale),)


@composite("aten._scaled_dot_product_attention_math", examples=lambda draw: [
    example(draw(2, 3, 5, 7), draw(2, 3, 11, 7), draw(2, 3, 11, 7)),
    example(draw(2, 3, 5, 7), draw(2, 3, 11, 7), draw(2, 3, 11, 7), draw(5, 11), scale=0.3),
])  # fmt: skip
def attention_math(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, dropout_p: float = 0.0, is_causal: bool = False,
    dropout_mask: Tensor | None = None, *, scale: float | None = None, enable_gqa: bool = False,
) -> tuple[Tensor]:  # fmt: skip
    """Attention; its weights, which it also returns, are not used."""
    return (attention(q, k, v, mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa),)


# --- arithmetic -------------------------------------------------------------------------------------------------------


@composite("aten.addcdiv", "aten.addcdiv_", examples=lambda draw: [
    example(draw(3, 5), draw(3, 5), draw.positive(5)), example(draw(3, 5), draw(3, 5), draw.positive(3, 1), value=2),
])  # fmt: skip
def addcdiv(x: Tensor, first: Tensor, second: Tensor, *, value: float = 1) -> Tensor:
    """``x + value * first / second``."""
    return x + value * (first / second)


@composite("aten.lerp.Tensor", "aten.lerp_.Tensor", examples=lambda draw: [
    example(draw(3, 5), draw(3, 5), draw(3, 5)), example(draw(3, 5), draw(3, 5), draw(3, 1)),
])  # fmt: skip
def lerp(x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    """``x + w (y - x)``."""
    return x + weight * (y - x)


@composite("aten._prelu_kernel", examples=lambda draw: [example(draw(3, 5), draw(3, 5)), example(draw(3, 5, 7), draw(1, 5, 1))])
def prelu_kernel(x: Tensor, weight: Tensor) -> Tensor:
    """``max(x, 0) + w min(x, 0)``, broadcast."""
    return torch.relu(x) - weight * torch.relu(-x)


# --- norms and distances ----------------------------------------------------------------------------------------------


def _dimensions(x: Tensor, dim: int | Sequence[int] | None) -> list[int]:
    return list(range(x.dim())) if dim is None or dim == [] else [dim] if isinstance(dim, int) else list(dim)


@composite("aten.norm.Scalar", "aten.norm.ScalarOpt_dim", "aten.linalg_norm.default", examples=lambda draw: [
    example(draw(3, 5)), example(draw(3, 5), 2, [1], True), example(draw(3, 5, 7), None, [1], True),
    example(draw(3, 5), 3, [0]),
])  # fmt: skip
def norm(
    x: Tensor, order: float | None = None, dim: int | Sequence[int] | None = None, keepdim: bool = False, *, dtype: None = None
) -> Tensor:
    """The Euclidean norm, or another one along one axis."""
    dims = _dimensions(x, dim)
    if order is not None and order != 2 and len(dims) > 1:
        raise NotImplementedError("norms of matrices")
    return vector_norm(x, 2 if order is None else order, dims, keepdim)


@composite("aten.cosine_similarity", examples=lambda draw: [
    example(draw(3, 5), draw(3, 5)), example(draw(3, 5), draw(3, 5), 0),
])  # fmt: skip
def cosine_similarity(x: Tensor, y: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """``x . y / (|x| |y|)`` along one axis."""
    first, second = (vector_norm(each, 2, [dim], True).clamp_min(eps) for each in (x, y))
    return ((x / first) * (y / second)).sum([dim])


@composite("aten.cdist", "aten._cdist_forward", examples=lambda draw: [
    example(draw(3, 5), draw(7, 5), 2.0, None), example(draw(2, 3, 5), draw(2, 7, 5), 1.0, None),
])  # fmt: skip
def distances(x: Tensor, y: Tensor, p: float = 2, compute_mode: int | None = None) -> Tensor:
    """``|x[.., m, k] - y[.., n, k]|``."""
    return vector_norm(x.unsqueeze(-2) - y.unsqueeze(-3), p, [-1])


def _reduced(x: Tensor, reduction: int) -> Tensor:
    return x if reduction == 0 else x.mean() if reduction == 1 else x.sum()


def _losses(draw: Draw) -> list[Example]:
    return [example(draw(3, 5), draw(3, 5), reduction) for reduction in range(3)]


@composite("aten.mse_loss", examples=_losses)
def mse_loss(x: Tensor, y: Tensor, reduction: int = 1) -> Tensor:
    """``(x - y)^2``."""
    difference = x - y
    if reduction == 0:
        return difference * difference
    total = sum_of_squares(difference, range(x.dim()), False)
    return total if reduction == 2 else total / x.numel()


@composite("aten.l1_loss", examples=_losses)
def l1_loss(x: Tensor, y: Tensor, reduction: int = 1) -> Tensor:
    """``|x - y|``."""
    return _reduced((x - y).abs(), reduction)


# --- rearranging ------------------------------------------------------------------------------------------------------


@composite("aten.broadcast_tensors", examples=lambda draw: [
    example([draw(3, 1), draw(5)]), example([draw(7, 1, 5), draw(3, 1)]),
])  # fmt: skip
def broadcast_tensors(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Every tensor expanded to the common shape."""
    total = tensors[0]
    for tensor in tensors[1:]:
        total = total + torch.zeros_like(tensor)
    return [tensor.expand(total.shape) for tensor in tensors]


@composite("aten.meshgrid", examples=lambda draw: [
    example([draw(3), draw(5)]), example([draw(3), draw(5), draw(7)], indexing="ij"),
    example([draw(3), draw(5)], indexing="xy"),
])  # fmt: skip
def meshgrid(tensors: Sequence[Tensor], *, indexing: str = "ij") -> list[Tensor]:
    """Every tensor on an axis of its own, expanded; ``xy`` exchanges the first two axes."""
    sizes = [tensor.numel() for tensor in tensors]
    grids = [tensor.reshape([-1 if axis == own else 1 for axis in range(len(tensors))]).expand(sizes)
             for own, tensor in enumerate(tensors)]  # fmt: skip
    return [grid.transpose(0, 1) for grid in grids] if indexing == "xy" and len(grids) > 1 else grids


@composite("aten.hstack", examples=lambda draw: [example([draw(3, 5), draw(3, 7)]), example([draw(3), draw(5)])])
def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """Concatenation along the second axis (the first of vectors)."""
    return torch.cat(list(tensors), 0 if tensors[0].dim() == 1 else 1)


@composite("aten.vstack", examples=lambda draw: [example([draw(3, 5), draw(7, 5)]), example([draw(5), draw(5)])])
def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """Concatenation along the first axis, vectors as rows."""
    return torch.cat([tensor.unsqueeze(0) if tensor.dim() == 1 else tensor for tensor in tensors], 0)


@composite("aten.select_scatter", examples=lambda draw: [
    example(draw(3, 5, 7), draw(3, 7), 1, 2), example(draw(3, 5), draw(5), 0, -1), example(draw(3, 5), draw(5), 0, 0),
])  # fmt: skip
def select_scatter(x: Tensor, source: Tensor, dim: int, index: int) -> Tensor:
    """One index is replaced: a window of size one."""
    start = index % x.shape[dim]
    return torch.slice_scatter(x, source.unsqueeze(dim), dim, start, start + 1)


@composite("aten.pixel_shuffle", examples=lambda draw: [example(draw(2, 12, 3, 5), 2)])
def pixel_shuffle(x: Tensor, factor: int) -> Tensor:
    """``x[.., (c r s), h, w] -> y[.., c, (h r), (w s)]``."""
    *batch, channels, height, width = x.shape
    split = x.reshape(*batch, channels // factor**2, factor, factor, height, width)
    first = len(batch)
    order = [*range(first), first, first + 3, first + 1, first + 4, first + 2]
    return split.permute(order).reshape(*batch, channels // factor**2, height * factor, width * factor)


@composite("aten.pixel_unshuffle", examples=lambda draw: [example(draw(2, 3, 6, 10), 2)])
def pixel_unshuffle(x: Tensor, factor: int) -> Tensor:
    """``x[.., c, (h r), (w s)] -> y[.., (c r s), h, w]``."""
    *batch, channels, height, width = x.shape
    split = x.reshape(*batch, channels, height // factor, factor, width // factor, factor)
    first = len(batch)
    order = [*range(first), first, first + 2, first + 4, first + 1, first + 3]
    return split.permute(order).reshape(*batch, channels * factor**2, height // factor, width // factor)


@composite("aten.channel_shuffle", "aten.native_channel_shuffle", examples=lambda draw: [example(draw(2, 15, 3, 5), 3)])
def channel_shuffle(x: Tensor, groups: int) -> Tensor:
    """``x[b, (g c), ..] -> y[b, (c g), ..]``."""
    split = x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    return split.transpose(1, 2).reshape(x.shape)
