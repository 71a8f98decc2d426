"""``match``: from two checkpoints of one architecture to two ends that are close, with the functions they had.

Both are brought to normal form, freed of shifts and balanced; weight matching then moves ``b``; learning moves both. So

    result.a == result.transform_a.apply(canonicalize(spec, a))         and the same for b

and a line between ``result.a`` and ``result.b`` is what :func:`symgraph.match.barrier.barrier` judges.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from torch import Tensor, nn

from symgraph.errors import MatchError
from symgraph.match.activations import match_activations
from symgraph.match.distance import per_space, relative
from symgraph.match.functional import Batches, Loss
from symgraph.match.learned import Learned, Options, learn
from symgraph.match.normal import checked, normal_form, wide
from symgraph.match.selection import commuting, select
from symgraph.match.weights import match_weights
from symgraph.spec.model import SymmetrySpec
from symgraph.spec.operations import canonicalize
from symgraph.spec.state import State
from symgraph.spec.transform import Transform, identity_transform

Method = Literal["naive", "weights", "activations", "learned", "dual"]
METHODS: tuple[Method, ...] = ("naive", "weights", "activations", "learned", "dual")
LEARNED = ("learned", "dual")
STARTS = {"weights": ("weights", "activations"), **dict.fromkeys(LEARNED, ("weights", "activations", "naive"))}

EQUIVALENT = 1e-5  # relative distance below which two float32 checkpoints are the same up to symmetry


@dataclass(frozen=True)
class MatchResult:
    """The aligned ends in canonical form, how they were moved, and how close they are.

    Distances are relative, ``|a - b| / |a|`` over all parameters: ``distance_before`` of the canonical forms,
    ``distance_after`` of the result; ``distances`` the same over the tensors that each space stands on (before, after).
    """

    a: dict[str, Tensor]
    b: dict[str, Tensor]
    transform_a: Transform
    transform_b: Transform
    method: str
    distance_before: float
    distance_after: float
    distances: Mapping[str, tuple[float, float]]
    history: tuple[float, ...] = ()
    """Loss of every learning step; without learning, the squared distance (of activations: of these) after every block."""
    judged: tuple[tuple[int, float], ...] = field(default=())
    """With ``held_out``: (step, loss of the middle)."""

    @property
    def equivalent(self) -> bool:
        """Whether the two are the same up to symmetry, to rounding."""
        return self.distance_after < EQUIVALENT

    @property
    def relative(self) -> Transform:
        """What brings canonical ``b`` into the frame of canonical ``a``: near the identity for a model and its fine-tune."""
        return self.transform_a.inverse().compose(self.transform_b)

    @property
    def summary(self) -> str:
        """One line."""
        if self.equivalent:
            return f"equivalent: relative distance {self.distance_after:.0e}"
        return f"{self.method}: relative distance {self.distance_before:.3g} -> {self.distance_after:.3g}"


def match(
    spec: SymmetrySpec,
    a: State,
    b: State,
    method: str = "dual",
    *,
    module: nn.Module | None = None,
    loss: Loss | None = None,
    batches: Batches | None = None,
    only: Collection[str] | None = None,
    without: Collection[str] | None = None,
    start: str = "weights",
    activation_batches: int = 8,
    seed: int = 0,
    restarts: int = 0,
    **options: Any,
) -> MatchResult:
    """Align checkpoint ``b`` to ``a`` (raw state dicts), by one of :data:`METHODS`.

    ``only`` and ``without`` name kinds of groups, roles or spaces. ``activations``, ``learned`` and ``dual`` need ``module``,
    ``loss(model, batch)`` and ``batches``; activations are collected on the first ``activation_batches`` of them.
    ``start`` is what weight matching begins with (``weights``: evidence from the weights; ``activations``: their match), or
    what learning does (``weights``, ``activations``, or ``naive``: the balanced normal forms). ``options`` are the fields of
    :class:`symgraph.match.learned.Options`. Raises MatchError for options that do not go together, CheckpointError for
    checkpoints that do not fit.
    """
    if method not in METHODS:
        raise MatchError(f"no method {method!r}: choose {', '.join(METHODS)}")
    if start != "weights" and start not in STARTS.get(method, ()):
        raise MatchError(f"method {method!r} does not start from {start!r}")
    selection = select(spec, only, without)
    chosen = _options(options, seed)
    if chosen.batch_statistics:
        selection = commuting(spec, selection)
    by_data = method in ("activations", *LEARNED) or start == "activations"
    data = _data(method, module, loss, batches) if by_data else None
    ends = [canonicalize(spec, checked(spec, state, which)) for state, which in ((a, "first"), (b, "second"))]
    moves = [identity_transform(spec), identity_transform(spec)]
    history: tuple[float, ...] = ()
    judged: tuple[tuple[int, float], ...] = ()
    if method != "naive":
        moves = [normal_form(spec, end, selection) for end in ends]
    if data is not None and "activations" in (method, start):
        first, second = (wide(move, end) for move, end in zip(moves, ends, strict=True))
        seen = match_activations(spec, first, second, selection, *data, count=activation_batches, seed=seed)
        moves[1], history = seen.transform.compose(moves[1]), seen.history
    if method == "weights" or (method in LEARNED and start == "weights"):
        first, second = (wide(move, end) for move, end in zip(moves, ends, strict=True))
        anchored = start == "weights"
        found = match_weights(spec, first, second, selection, seed=seed, restarts=restarts, anchored=anchored)
        moves[1], history = found.transform.compose(moves[1]), found.history
    if data is not None and method in LEARNED:
        near = [move.apply(end) for move, end in zip(moves, ends, strict=True)]
        learned = learn(spec, near[0], near[1], selection, *data, both=method == "dual", options=chosen)
        moves = [learned.transform_a.compose(moves[0]), learned.transform_b.compose(moves[1])]
        history, judged = learned.history, learned.judged
    return _result(spec, ends, moves, method, history, judged)


def _data(method: str, module: nn.Module | None, loss: Loss | None, batches: Batches | None) -> tuple[nn.Module, Loss, Batches]:
    if module is None or loss is None or batches is None:
        what = "learns on" if method in LEARNED else "looks at"
        raise MatchError(f"method {method!r} {what} data: give module, loss and batches, or use 'weights'")
    return module, loss, batches


def _result(
    spec: SymmetrySpec,
    ends: list[dict[str, Tensor]],
    moves: list[Transform],
    method: str,
    history: tuple[float, ...],
    judged: tuple[tuple[int, float], ...],
) -> MatchResult:
    after = [move.apply(end) for move, end in zip(moves, ends, strict=True)]
    before_spaces, after_spaces = per_space(spec, *ends), per_space(spec, *after)
    return MatchResult(
        after[0],
        after[1],
        moves[0],
        moves[1],
        method,
        relative(spec, *ends),
        relative(spec, *after),
        {name: (before_spaces[name], after_spaces[name]) for name in before_spaces},
        history,
        judged,
    )


def _options(options: Mapping[str, Any], seed: int) -> Options:
    known = {one.name for one in fields(Options)} - {"seed"}
    unknown = sorted(options.keys() - known)
    if unknown:
        raise MatchError(f"no option {unknown[0]!r}: there are {', '.join(sorted(known))}, only, without, seed, restarts")
    return Options(**options, seed=seed)


__all__ = ["METHODS", "Learned", "MatchResult", "match"]
