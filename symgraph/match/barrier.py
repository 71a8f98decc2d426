"""The loss along the straight line between two checkpoints.

The barrier is the largest excess over the line between the losses of the ends: ``max L(x) - ((1 - x) L(0) + x L(1))``.
It is zero at the ends, so never negative.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sized
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
    progress: Callable[[int, int | None], None] | None = None,
) -> BarrierCurve:
    """The loss curve from state dict ``a`` to ``b``, at ``points`` equally spaced points.

    ``loss(model, batch)`` gives a scalar; ``model`` is called as ``module`` is. ``batches`` is a list, or a function that
    returns a fresh iterator. With ``statistics``, running statistics (of batch norms) are taken anew on these batches at
    every point. ``progress(done, total)`` counts batches, over all points; the total is None while it is not known.
    MatchError for fewer than two points, or no batches.
    """
    if points < 2:
        raise MatchError(f"a curve needs at least 2 points, not {points}")
    first, second = on_module(a, module), on_module(b, module)
    alphas = tuple(k / (points - 1) for k in range(points))
    losses: list[float] = []
    count = len(batches) if isinstance(batches, Sized) else None
    for k, alpha in enumerate(alphas):
        model = Functional(module, interpolate(first, second, alpha))
        if statistics is not None:
            reestimate(model, loss, statistics)
        value, count = mean_loss(model, loss, batches, _counting(progress, k, points, count))
        losses.append(value)
    return BarrierCurve(alphas, tuple(losses))


def _counting(
    progress: Callable[[int, int | None], None] | None, point: int, points: int, count: int | None
) -> Callable[[int], None] | None:
    """``progress`` told of batches of one point, as one of all points; ``count`` is how many there are, once known."""
    if progress is None:
        return None
    known = (count or 0, None if count is None else points * count)
    return lambda done: progress(point * known[0] + done, known[1])


def mean_loss(
    model: Functional, loss: Loss, batches: Batches, progress: Callable[[int], None] | None = None
) -> tuple[float, int]:
    """The mean of the loss over the batches, without gradients, and how many there were."""
    total, count = 0.0, 0
    with torch.no_grad():
        for batch in fresh(batches):
            total += float(loss(model, batch))
            count += 1
            if progress is not None:
                progress(count)
    if not count:
        raise MatchError("there are no batches to judge on: give a list, or a function that returns a fresh iterator")
    return total / count, count
