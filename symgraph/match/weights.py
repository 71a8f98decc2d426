"""Weight matching: the element that brings ``b`` closest to ``a``, by assignment and Procrustes on the weights alone.

Both sides must be balanced (:mod:`symgraph.match.balance`), so that only compact groups are left. Deterministic for
a seed. Restarts begin at random elements and take the blocks in random order; the best is kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from symgraph.algebra.elements import Element, compose
from symgraph.match.ascent import Ascent, minus, random_element, whole
from symgraph.match.pieces import Pieces
from symgraph.match.selection import Selection
from symgraph.spec.model import SymmetrySpec
from symgraph.spec.stages import Stage
from symgraph.spec.state import State
from symgraph.spec.transform import Transform


@dataclass(frozen=True)
class WeightMatch:
    """The transform of ``b``, the objective ``sum <A, g B>``, and the squared distance after every block."""

    transform: Transform
    objective: float
    history: tuple[float, ...]


def match_weights(
    spec: SymmetrySpec,
    a: State,
    b: State,
    selection: Selection,
    *,
    seed: int = 0,
    restarts: int = 0,
    sweeps: int = 50,
    tol: float = 1e-5,
    anchored: bool = True,
) -> WeightMatch:
    """Match balanced canonical ``b`` to ``a``; with ``anchored`` false, from where ``b`` is."""
    pieces, first = Pieces.of(spec, a)
    _, second = Pieces.of(spec, b)
    if anchored:
        best = _anchored(pieces, first, second, selection, sweeps, tol)
    else:
        best = Ascent(pieces, first, list(second), selection.spaces)
        best.run([name for name in selection.spaces if pieces.occurrences[name]], sweeps, tol)
    best = _flipped(best, second, selection, sweeps, tol)
    for number in range(restarts):
        generator = torch.Generator().manual_seed(seed * 1_000_003 + number)
        other = _restart(pieces, first, second, selection, sweeps, tol, generator)
        if other.distance() < best.distance():
            best = other
    return WeightMatch(Transform(spec, (Stage(best.elements),)), best.objective(), tuple(best.history))


def _anchored(
    pieces: Pieces,
    a: list[Tensor],
    b: list[Tensor],
    selection: Selection,
    sweeps: int,
    tol: float,
    first: dict[str, Element] | None = None,
) -> Ascent:
    """From the anchored start, after ``first`` has moved ``b``."""
    ascent = Ascent(pieces, a, list(b), selection.spaces)
    ascent.move(first or {})
    ascent.run(ascent.start(), sweeps, tol)
    return ascent


def _restart(
    pieces: Pieces, a: list[Tensor], b: list[Tensor], selection: Selection, sweeps: int, tol: float, generator: torch.Generator
) -> Ascent:
    ascent = Ascent(pieces, a, list(b), selection.spaces)
    active = [name for name in selection.spaces if pieces.occurrences[name]]
    ascent.move(
        {name: random_element(pieces.spaces[name], selection.spaces[name], pieces.spaces, generator) for name in active}
    )
    order = [active[int(k)] for k in torch.randperm(len(active), generator=generator)]
    ascent.run(order, sweeps, tol)
    return ascent


def _flipped(best: Ascent, b: list[Tensor], selection: Selection, sweeps: int, tol: float) -> Ascent:
    """Try the other sign of whole tensors, with all else following: beside matrices, which follow a sign, it stays hidden."""
    for name, freedom in selection.spaces.items():
        space, pieces = best.pieces.spaces[name], best.pieces
        if not whole(space) or not freedom.signs or best.perfect:
            continue
        beside = {other for k in pieces.touching(name) for other in pieces.shapes[k].spaces if other in selection.spaces}
        if any(selection.spaces[other].matrix for other in beside):
            before = {name: best.elements[name]} if name in best.elements else {}
            first = compose({name: minus(space)}, before, pieces.spaces)
            other = _anchored(pieces, best.a, b, selection, sweeps, tol, first)
            if other.distance() < best.distance() * (1 - 1e-6):
                best = other
    return best
