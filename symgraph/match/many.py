"""More than two checkpoints: all aligned to a common frame, and the loss over the simplex between them.

Every checkpoint is first matched to the first one, then in turn to the mean of all others, from where it is. Each step is
weight matching, so the sum of inner products over all pairs never falls; it ends when a round moves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import torch
from torch import Tensor, nn

from symgraph.errors import MatchError
from symgraph.match.barrier import mean_loss
from symgraph.match.distance import spread
from symgraph.match.functional import Batches, Functional, Loss, on_module
from symgraph.match.normal import checked, normal_form, wide
from symgraph.match.selection import Selection, select
from symgraph.match.statistics import reestimate
from symgraph.match.weights import match_weights
from symgraph.spec.model import SymmetrySpec
from symgraph.spec.operations import canonicalize
from symgraph.spec.state import State
from symgraph.spec.transform import Transform, identity_transform

GAIN = 1e-9  # relative: a round that brings the checkpoints less closer together is the last


@dataclass(frozen=True)
class ManyResult:
    """The aligned checkpoints in canonical form, how they were moved, and their spread after every round.

    The spread is the root mean square of the distances to the mean, relative to the size of the first checkpoint.
    """

    states: tuple[dict[str, Tensor], ...]
    transforms: tuple[Transform, ...]
    history: tuple[float, ...]

    def merged(self, weights: Sequence[float] | None = None) -> dict[str, Tensor]:
        """The mean of the aligned checkpoints, or another point of their simplex."""
        return combine(self.states, weights)


def match_many(
    spec: SymmetrySpec,
    states: Sequence[State],
    *,
    only: Collection[str] | None = None,
    without: Collection[str] | None = None,
    rounds: int = 20,
    progress: Callable[[int, float], None] | None = None,
) -> ManyResult:
    """Align checkpoints (raw state dicts) to a common frame by weight matching, iterating towards their mean.

    ``only`` and ``without`` are those of ``match``; ``progress(round, spread)`` is told of every round. MatchError for fewer
    than two checkpoints, CheckpointError for those that do not fit.
    """
    if len(states) < 2:
        raise MatchError(f"there is nothing to align {len(states)} checkpoint to: give two or more")
    selection = select(spec, only, without)
    canon = [canonicalize(spec, checked(spec, state, f"{number + 1}.")) for number, state in enumerate(states)]
    moves = [normal_form(spec, state, selection) for state in canon]
    current = [wide(move, state) for move, state in zip(moves, canon, strict=True)]
    history = [spread(spec, current, combine(current))]
    for number in range(rounds):
        for k in range(1 if number == 0 else 0, len(current)):
            others = current[:1] if number == 0 else [*current[:k], *current[k + 1 :]]
            found = _step(spec, combine(others), current[k], selection, first=number == 0)
            moves[k] = found.compose(moves[k])
            current[k] = found.apply(current[k])
        history.append(spread(spec, current, combine(current)))
        if progress is not None:
            progress(number + 1, history[-1])
        if number and history[-2] - history[-1] <= GAIN * history[-2]:
            break
    return ManyResult(tuple(move.apply(one) for move, one in zip(moves, canon, strict=True)), tuple(moves), tuple(history))


def _step(spec: SymmetrySpec, target: State, state: State, selection: Selection, first: bool) -> Transform:
    if not selection.spaces:
        return identity_transform(spec)
    return match_weights(spec, target, state, selection, anchored=first).transform


def combine(states: Sequence[Mapping[str, Tensor]], weights: Sequence[float] | None = None) -> dict[str, Tensor]:
    """``sum weights[k] states[k]`` for every float tensor, the mean if no weights are given; integers are the first's."""
    chosen = [1 / len(states)] * len(states) if weights is None else list(weights)
    if len(chosen) != len(states) or abs(sum(chosen) - 1) > 1e-6:
        raise MatchError(f"{len(states)} checkpoints need as many weights that sum to one, not {chosen}")
    result: dict[str, Tensor] = {}
    for name, value in states[0].items():
        if value.is_floating_point():
            value = torch.as_tensor(sum(weight * state[name] for weight, state in zip(chosen, states, strict=True)))
        result[name] = value
    return result


def simplex(
    module: nn.Module,
    states: Sequence[Mapping[str, Tensor]],
    loss: Loss,
    batches: Batches,
    parts: int = 4,
    *,
    statistics: Batches | None = None,
) -> dict[tuple[float, ...], float]:
    """The loss at all points of the simplex between the checkpoints whose weights are multiples of ``1 / parts``."""
    placed = [on_module(state, module) for state in states]
    found = {}
    for bars in combinations(range(parts + len(placed) - 1), len(placed) - 1):
        edges = (-1, *bars, parts + len(placed) - 1)
        weights = tuple((b - a - 1) / parts for a, b in pairwise(edges))
        model = Functional(module, combine(placed, weights))
        if statistics is not None:
            reestimate(model, loss, statistics)
        found[weights], _ = mean_loss(model, loss, batches)
    return found
