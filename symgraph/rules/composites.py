"""Operators stated as a few simpler ones, which carry the laws.

Each is the definition of the operator in torch, written with operators that have rules. ``layer_norm`` then *is* a mean
(it pairs the axis with the vector of ones), a sum of squares (an inner product), a root (a power of a scale) and a product
with its gain (coordinates): no rule has to say any of it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

from symgraph.rules.examples import Draw, Example, example
from symgraph.rules.registry import composite


def sum_of_squares(x: Tensor, dims: Sequence[int], keepdim: bool = True) -> Tensor:
    """``sum_k x[.., k]^2`` as the contraction of x with itself."""
    letters = [chr(97 + axis) for axis in range(x.dim())]
    reduced = {axis % x.dim() for axis in dims}
    equation = "".join(letters)
    out = "".join(letter for axis, letter in enumerate(letters) if axis not in reduced)
    total = torch.einsum(f"{equation},{equation}->{out}", x, x)
    return total.reshape([1 if axis in reduced else size for axis, size in enumerate(x.shape)]) if keepdim else total


def _standardize(x: Tensor, dims: Sequence[int], eps: float) -> Tensor:
    """``(x - mean) / sqrt(var + eps)`` over the axes."""
    centred = x - x.mean(list(dims), keepdim=True)
    count = prod(x.shape[axis] for axis in dims)
    return centred * torch.rsqrt(sum_of_squares(centred, dims) / count + eps)


def _affine(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


@composite("aten.layer_norm", examples=lambda draw: [
    example(draw(3, 5), [5], draw(5), draw(5)), example(draw(3, 5, 7), [5, 7], draw(5, 7)),
    example(draw(3, 5), [5], None, None, 0.1),
])
def layer_norm(
    x: Tensor, shape: Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:  # fmt: skip
    """Mean and variance over the last axes."""
    return _affine(_standardize(x, [-1 - axis for axis in range(len(shape))], eps), weight, bias)


@composite("aten.rms_norm", examples=lambda draw: [
    example(draw(3, 5), [5], draw(5)), example(draw(3, 5), [5], draw(5), 0.1), example(draw(3, 5, 7), [5, 7]),
])
def rms_norm(x: Tensor, shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """Root mean square over the last axes."""
    dims = [-1 - axis for axis in range(len(shape))]
    scale = sum_of_squares(x, dims) / prod(shape) + (torch.finfo(x.dtype).eps if eps is None else eps)
    return _affine(x * torch.rsqrt(scale), weight, None)


def _channel(x: Tensor, value: Tensor | None) -> Tensor | None:
    return None if value is None else value.reshape([1, -1] + [1] * (x.dim() - 2))


@composite("aten.batch_norm", examples=lambda draw: [
    example(draw(3, 5, 7), draw(5), draw(5), draw(5), draw.positive(5), False, 0.1, 1e-5, False),
    example(draw(3, 5, 7), draw(5), draw(5), None, None, True, 0.1, 1e-5, False),
    example(draw(7, 5), None, None, draw(5), draw.positive(5), True, 0.1, 1e-5, False),
])
def batch_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor | None, var: Tensor | None, training: bool,
    momentum: float, eps: float, cudnn_enabled: bool,
) -> Tensor:  # fmt: skip
    """Statistics of the batch in training, stored ones otherwise; per channel (axis 1)."""
    if training or mean is None or var is None:
        return _affine(_standardize(x, [0, *range(2, x.dim())], eps), _channel(x, weight), _channel(x, bias))
    root = torch.rsqrt(var + eps)
    centred = x - mean.reshape([1, -1] + [1] * (x.dim() - 2))
    return _affine(centred * root.reshape([1, -1] + [1] * (x.dim() - 2)), _channel(x, weight), _channel(x, bias))


@composite("aten._native_batch_norm_legit_no_training", examples=lambda draw: [
    example(draw(3, 5, 7), draw(5), draw(5), draw(5), draw.positive(5), 0.1, 1e-5),
])
def native_batch_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, var: Tensor, momentum: float, eps: float
) -> tuple[Tensor]:
    """The same; the statistics that it also returns are never used at inference."""
    return (batch_norm(x, weight, bias, mean, var, False, momentum, eps, False),)


@composite("aten.group_norm", examples=lambda draw: [
    example(draw(2, 15, 7), 3, draw(15), draw(15)), example(draw(2, 15, 7, 3), 5), example(draw(2, 15), 5, draw(15), draw(15)),
])
def group_norm(
    x: Tensor, groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Tensor:  # fmt: skip
    """Channels are ``(g c)``; mean and variance over c and the positions."""
    split = x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    whole = _standardize(split, list(range(2, split.dim())), eps).reshape(x.shape)
    return _affine(whole, _channel(x, weight), _channel(x, bias))


def _attentions(draw: Draw) -> list[Example]:
    q, k, v = draw(2, 3, 5, 7), draw(2, 3, 11, 7), draw(2, 3, 11, 13)
    mask = draw.mask(5, 11)
    mask[:, 0] = True
    grouped = example(draw(2, 6, 5, 7), draw(2, 3, 11, 7), draw(2, 3, 11, 7), enable_gqa=True)
    return [
        example(q, k, v), example(q, k, v, draw(5, 11)), example(q, k, v, mask, 0.0, False, scale=0.3), grouped,
        example(q, k, v, None, 0.0, True),
    ]  # fmt: skip


@composite("aten.scaled_dot_product_attention", examples=_attentions)
def attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, dropout_p: float = 0.0, is_causal: bool = False, *,
    scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """``softmax_s(q[.., t, d] k[.., s, d]) v[.., s, e]``; with grouped queries the heads are ``(g r)``."""
    if enable_gqa and q.shape[-3] != k.shape[-3]:
        times = q.shape[-3] // k.shape[-3]
        k, v = (x.unsqueeze(-3).expand(*x.shape[:-2], times, *x.shape[-2:]).flatten(-4, -3) for x in (k, v))
    scores = torch.matmul(q, k.transpose(-2, -1)) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        hidden = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril().logical_not()
        scores = scores.masked_fill(hidden, float("-inf"))
    if mask is not None:
        scores = scores.masked_fill(mask.logical_not(), float("-inf")) if mask.dtype == torch.bool else scores + mask
    weights = torch.softmax(scores, -1)
    return torch.matmul(torch.dropout(weights, dropout_p, True) if dropout_p else weights, v)


@composite("aten.glu", examples=lambda draw: [example(draw(3, 10)), example(draw(10, 3), 0)])
def glu(x: Tensor, dim: int = -1) -> Tensor:
    """``a * sigmoid(b)`` of the two halves."""
    half = x.shape[dim] // 2
    return x.narrow(dim, 0, half) * torch.sigmoid(x.narrow(dim, half, half))


def _norms(draw: Draw) -> list[Example]:
    return [
        example(draw(3, 5)), example(draw(3, 5), 2, [1], True), example(draw(3, 5, 7), 1, [0, 2]),
        example(draw(3, 5), float("inf"), [1]), example(draw(3, 5), 3, [-1]), example(draw(3, 5), float("-inf"), [0]),
    ]  # fmt: skip


@composite("aten.linalg_vector_norm", examples=_norms)
def vector_norm(
    x: Tensor, order: float = 2, dim: Sequence[int] | None = None, keepdim: bool = False, *, dtype: None = None
) -> Tensor:
    """The Euclidean norm; other orders are sums of powers of magnitudes."""
    dims = list(range(x.dim())) if dim is None else list(dim)
    if order == 2:
        return sum_of_squares(x, dims, keepdim).sqrt()
    if abs(order) == float("inf"):
        return x.abs().amax(dims, keepdim) if order > 0 else x.abs().amin(dims, keepdim)
    return x.abs().pow(order).sum(dims, keepdim).pow(1 / order)


def _variances(draw: Draw) -> list[Example]:
    return [
        example(draw(3, 5)), example(draw(3, 5), [1]), example(draw(3, 5, 7), [0, 2], correction=0, keepdim=True),
        example(draw(3, 5), [1], False, True), example(draw(3, 5), None, correction=2),
    ]  # fmt: skip


def _spread(
    x: Tensor, dim: Sequence[int] | None, correction: float | bool | None, keepdim: bool, unbiased: bool | None
) -> tuple[Tensor, Tensor]:
    """Variance and mean."""
    dims = list(range(x.dim())) if dim is None or not len(dim) else list(dim)
    mean = x.mean(dims, keepdim=True)
    chosen = correction if unbiased is None else unbiased
    divisor = prod(x.shape[axis] for axis in dims) - (1 if chosen is None else float(chosen))
    return sum_of_squares(x - mean, dims, keepdim) / divisor, mean if keepdim else x.mean(dims)


@composite("aten.var.correction", "aten.var.dim", examples=_variances)
def variance(
    x: Tensor, dim: Sequence[int] | None = None, correction: float | bool | None = 1, keepdim: bool = False, *,
    unbiased: bool | None = None,
) -> Tensor:  # fmt: skip
    """``sum (x - mean)^2 / (n - correction)``."""
    return _spread(x, dim, correction, keepdim, unbiased)[0]


@composite("aten.std.correction", "aten.std.dim", examples=_variances)
def deviation(
    x: Tensor, dim: Sequence[int] | None = None, correction: float | bool | None = 1, keepdim: bool = False, *,
    unbiased: bool | None = None,
) -> Tensor:  # fmt: skip
    """The root of the variance."""
    return _spread(x, dim, correction, keepdim, unbiased)[0].sqrt()


@composite("aten.var_mean.correction", "aten.var_mean.dim", examples=_variances)
def variance_and_mean(
    x: Tensor, dim: Sequence[int] | None = None, correction: float | bool | None = 1, keepdim: bool = False, *,
    unbiased: bool | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Both."""
    return _spread(x, dim, correction, keepdim, unbiased)


@composite("aten.std_mean.correction", "aten.std_mean.dim", examples=_variances)
def deviation_and_mean(
    x: Tensor, dim: Sequence[int] | None = None, correction: float | bool | None = 1, keepdim: bool = False, *,
    unbiased: bool | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Root of the variance, and mean."""
    spread, mean = _spread(x, dim, correction, keepdim, unbiased)
    return spread.sqrt(), mean


@composite("aten.prelu", examples=lambda draw: [
    example(draw(3, 5), draw(5)), example(draw(3, 5, 7), draw(1)), example(draw(3), draw(1)),
])  # fmt: skip
def prelu(x: Tensor, weight: Tensor) -> Tensor:
    """``max(x, 0) + w min(x, 0)``."""
    slope = weight if weight.numel() == 1 or x.dim() < 2 else weight.reshape([1, -1] + [1] * (x.dim() - 2))
    return torch.relu(x) - slope * torch.relu(-x)


@composite("aten._weight_norm", examples=lambda draw: [
    example(draw(3, 5), draw(3, 1)), example(draw(3, 5, 7), draw(1, 1, 7), 2),
])  # fmt: skip
def weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """``g v / |v|``, the norm over all axes but one."""
    others = [axis for axis in range(v.dim()) if axis != dim % v.dim()]
    return v * (g * torch.rsqrt(sum_of_squares(v, others)))


@composite("aten.stack", examples=lambda draw: [
    example([draw(3, 5), draw(3, 5)]), example([draw(3, 5), draw(3, 5), draw(3, 5)], -1),
])  # fmt: skip
def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """A new axis of size one on each, then concatenated."""
    return torch.cat([tensor.unsqueeze(dim) for tensor in tensors], dim)


@composite("aten.addcmul", examples=lambda draw: [
    example(draw(3, 5), draw(3, 5), draw(5)), example(draw(3, 5), draw(3, 5), draw(3, 1), value=2),
])  # fmt: skip
def addcmul(x: Tensor, first: Tensor, second: Tensor, *, value: float = 1) -> Tensor:
    """``x + value * first * second``."""
    return x + value * (first * second)
