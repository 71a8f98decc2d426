"""The loss along the straight line between two checkpoints.

The barrier is the largest excess over the line between the losses of the ends: ``max L(x) - ((1 - x) L(0) + x L(1))``.
It is zero at the ends, so never negative.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from symgraph.errors import MatchError
from symgraph.match.functional import Batches, Functional, Loss, fresh, on_module
from symgraph.match.merge import interpolate
from symgraph.match.statistics import reestimate


@dataclass(frozen=True)
class BarrierCurve:
    """Mean losses over all batches at the points ``alphas`` of the line, and their barrier."""

    alphas: tuple[float, ...]
    losses: tuple[float, ...]

    @property
    def excess(self) -> tuple[float, ...]:
        """Loss above the line between the ends, at every point."""
        first, last = self.losses[0], self.losses[-1]
        return tuple(loss - ((1 - x) * first + x * last) for x, loss in zip(self.alphas, self.losses, strict=True))

    @property
    def barrier(self) -> float:
        """The largest excess."""
        return max(self.excess)


def barrier(
    module: nn.Module,
    a: Mapping[str, Tensor],
    b: Mapping[str, Tensor],
    loss: Loss,
    batches: Batches,
    points: int = 11,
    *,
    statistics: Batches | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> BarrierCurve:
    """The loss curve from state dict ``a`` to ``b``, at ``points`` equally spaced points.

    ``loss(model, batch)`` gives a scalar; ``model`` is called as ``module`` is. ``batches`` is a list, or a function that
    returns a fresh iterator. With ``statistics``, running statistics (of batch norms) are taken anew on these batches at
    every point. MatchError for fewer than two points, or no batches.
    """
    if points < 2:
        raise MatchError(f"a curve needs at least 2 points, not {points}")
    first, second = on_module(a, module), on_module(b, module)
    alphas = tuple(k / (points - 1) for k in range(points))
    losses = []
    for k, alpha in enumerate(alphas):
        model = Functional(module, interpolate(first, second, alpha))
        if statistics is not None:
            reestimate(model, loss, statistics)
        losses.append(mean_loss(model, loss, batches))
        if progress is not None:
            progress(k + 1, points)
    return BarrierCurve(alphas, tuple(losses))


def mean_loss(model: Functional, loss: Loss, batches: Batches) -> float:
    """The mean of the loss over the batches, without gradients."""
    total, count = 0.0, 0
    with torch.no_grad():
        for batch in fresh(batches):
            total += float(loss(model, batch))
            count += 1
    if not count:
        raise MatchError("there are no batches to judge on: give a list, or a function that returns a fresh iterator")
    return total / count
