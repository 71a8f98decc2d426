"""Activation matching: the element that brings the activations of ``b`` closest to those of ``a``, on the same inputs.

The activations are those of the traced graph on which a space of the spec stands. As tensors with typed axes they go
through the solvers of weight matching: an activation ``x[tokens, head, inner]`` is a piece like any other, and what the
solvers see of it are the cross-covariances of the two models.

    token axis    centred on every batch; once it is longer than both models are wide together, replaced by the R of a QR
                  decomposition of both side by side, which has the same covariances
    checked       the type of every activation is put to the test: random elements must move it as its type says
    signs         whether an activation turns with the sign of a space is read off in the same test

Both sides must be balanced, as for weight matching: then only compact groups are left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice
from math import prod
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.utils import _pytree as pytree

from symgraph.algebra.elements import Element, Monomial
from symgraph.algebra.words import Factor, Pinned
from symgraph.errors import MatchError, SpecError
from symgraph.frontend.graph import Graph
from symgraph.frontend.trace import trace
from symgraph.infer.activations import Activation, activations
from symgraph.match.ascent import Ascent, random_element
from symgraph.match.functional import Batches, Loss, call_of, fresh, on_module
from symgraph.match.pieces import Pieces, Shape
from symgraph.match.selection import Selection
from symgraph.match.weights import WeightMatch
from symgraph.spec.model import SymmetrySpec
from symgraph.spec.stages import Stage
from symgraph.spec.state import State
from symgraph.spec.transform import Transform

TESTS = 6  # random elements that every activation is tested with
TOLERANCE = 1e-6  # relative, in float64: how exactly an activation must move
ROWS = 512  # of an activation that are kept of every batch, evenly spaced
WIDEST = 8192  # entries of an activation along its spaces: wider ones are left out


@dataclass(frozen=True)
class _Watched:
    """An activation, and the sign generators that it turns with, by space."""

    activation: Activation
    signs: tuple[tuple[str, str], ...] = ()

    def shape(self, rows: int) -> Shape:
        """Its type as a piece, rows first."""
        found = [(name, size) for name, size in self.activation.dims if name]
        words = [Factor(name, False, tuple((sign, 1) for space, sign in self.signs if space == name)) for name, _ in found]
        dims = ((Pinned(rows), 0), *((word, axis + 1) for axis, word in enumerate(words)))
        return Shape(self.activation.node, dims, (rows, *(size for _, size in found)))

    def rows(self, value: Tensor) -> Tensor:
        """``value`` as ``[rows, *spaces]``, at most :data:`ROWS` of them."""
        dims = self.activation.dims
        value = value.reshape([size for _, size in dims])
        still = [k for k, (name, _) in enumerate(dims) if not name]
        value = value.permute(*still, *(k for k, (name, _) in enumerate(dims) if name)).flatten(0, len(still) - 1)
        if len(value) > ROWS:
            value = value[torch.linspace(0, len(value) - 1, ROWS, dtype=torch.float64).long().to(value.device)]
        return value.detach().double().cpu()


def match_activations(
    spec: SymmetrySpec,
    a: State,
    b: State,
    selection: Selection,
    module: nn.Module,
    loss: Loss,
    batches: Batches,
    *,
    count: int = 8,
    seed: int = 0,
    sweeps: int = 50,
    tol: float = 1e-5,
) -> WeightMatch:
    """Match balanced canonical ``b`` to ``a`` by what they compute on the first ``count`` batches of one shape.

    Raises MatchError where the model cannot be traced on a batch, or no activation has a space that takes part.
    """
    calls = [call_of(module, loss, batch) for batch in islice(fresh(batches), count)]
    if not calls:
        raise MatchError("there are no batches to collect activations on: give a list, or a function that returns an iterator")
    graph = trace(module, calls[0][0], calls[0][1])
    inputs = [found for args, kwargs in calls if (found := _inputs(graph, args, kwargs)) is not None]
    first, second = on_module(a, module), on_module(b, module)
    watched = _tested(spec, graph, first, inputs[0], selection, Generator().manual_seed(seed))
    if not watched:
        raise MatchError("no activation of the model has a space that takes part")
    gathered = _gathered(spec, graph, (first, second), inputs, watched)
    shapes = [one.shape(len(x)) for one, (x, _) in zip(watched, gathered, strict=True)]
    pieces = Pieces(spec.space_map, shapes)
    sides = [[pair[side].reshape(shape.sizes) for pair, shape in zip(gathered, shapes, strict=True)] for side in (0, 1)]
    ascent = Ascent(pieces, sides[0], sides[1], selection.spaces)
    ascent.run(ascent.start(), sweeps, tol)
    return WeightMatch(Transform(spec, (Stage(ascent.elements),)), ascent.objective(), tuple(ascent.history))


def _inputs(graph: Graph, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Tensor] | None:
    """The tensors of a call by placeholder; None where they have other shapes than those of the traced one."""
    found = [leaf for leaf in pytree.tree_leaves((tuple(args), dict(kwargs))) if isinstance(leaf, Tensor)]
    same = len(found) == len(graph.inputs) and all(
        x.shape == y.shape for x, y in zip(found, graph.inputs.values(), strict=True)
    )
    return dict(zip(graph.inputs, found, strict=True)) if same else None


def _tested(
    spec: SymmetrySpec, graph: Graph, state: State, inputs: dict[str, Tensor], selection: Selection, generator: Generator
) -> list[_Watched]:
    """The activations that move as their types say, one of those that only differ in layout, with their signs."""
    spaces = spec.space_map
    freedom = {name: one for name, one in selection.spaces.items() if spaces[name].size > 1}
    candidates = [_Watched(one) for one in activations(graph, spec) if _fits(one, freedom, spec)]
    wide = {name: value.double() if value.is_floating_point() else value for name, value in state.items()}
    base = _values(spec, graph, wide, inputs, candidates, torch.float64)
    candidates = _distinct(candidates, base)
    left = {one: _parities(one, freedom) for one in candidates}
    for _ in range(TESTS):
        elements = {name: random_element(spaces[name], own, spaces, generator) for name, own in freedom.items()}
        signs = {(name, sign): _coin(generator) for name, own in freedom.items() for sign in own.signs}
        plain = {name: _signed(one, {}) for name, one in elements.items()}
        turned = {name: _signed(one, {sign: signs[name, sign] for sign in freedom[name].signs})
                  for name, one in elements.items()}  # fmt: skip
        found = _values(spec, graph, Transform(spec, (Stage(turned),)).apply(wide), inputs, list(left), torch.float64)
        for one in list(left):
            x = base[one]
            (expected,) = Pieces(spaces, [one.shape(len(x))]).apply(plain, [x])
            left[one] = [chosen for chosen in left[one] if _close(found[one], prod(signs[each] for each in chosen) * expected)]
            if not left[one]:
                del left[one]
    return [replace(one, signs=chosen[0]) for one, chosen in left.items()]


def _fits(one: Activation, freedom: Mapping[str, Any], spec: SymmetrySpec) -> bool:
    """Whether a space that takes part stands on it, with all that it depends on."""
    if not set(one.spaces) & freedom.keys() or prod(size for name, size in one.dims if name) > WIDEST:
        return False
    try:
        Pieces(spec.space_map, [_Watched(one).shape(1)])
    except SpecError:
        return False
    return True


def _distinct(candidates: Sequence[_Watched], base: Mapping[_Watched, Tensor]) -> list[_Watched]:
    """Without those that have the spaces and the entries of an earlier one: views, transposes, copies."""
    seen: set[object] = set()
    kept = []
    for one in candidates:
        moments = (float(base[one].square().sum()), float(base[one].sum().abs()))
        key = (frozenset(one.activation.spaces), *(f"{moment:.9e}" for moment in moments))
        if moments[0] > 0 and key not in seen:
            kept.append(one)
        seen.add(key)
    return kept


def _parities(one: _Watched, freedom: Mapping[str, Any]) -> list[tuple[tuple[str, str], ...]]:
    """All sets of sign generators that it may turn with, smallest first."""
    known = [(name, sign) for name in one.activation.spaces if name in freedom for sign in freedom[name].signs]
    return [chosen for size in range(len(known) + 1) for chosen in combinations(known, size)]


def _coin(generator: Generator) -> float:
    return 1.0 if float(torch.rand((), generator=generator)) < 0.5 else -1.0


def _signed(element: Element, signs: Mapping[str, float]) -> Element:
    """The same permutation, with one sign for all indices."""
    if not isinstance(element, Monomial):
        return element
    ones = torch.ones(element.permutation.shape, dtype=torch.float64)
    return replace(element, sign={name: ones * signs.get(name, 1.0) for name in element.sign})


def _close(x: Tensor, y: Tensor) -> bool:
    return float((x - y).norm()) <= TOLERANCE * float(y.norm())


def _values(
    spec: SymmetrySpec,
    graph: Graph,
    state: State,
    inputs: dict[str, Tensor],
    watched: Sequence[_Watched],
    dtype: torch.dtype | None,
) -> dict[_Watched, Tensor]:
    """Rows of all watched activations."""
    by_node = {one.activation.node: one for one in watched}
    found: dict[_Watched, Tensor] = {}

    def watch(name: str, value: Any) -> None:
        if name in by_node:
            found[by_node[name]] = by_node[name].rows(value)

    with torch.no_grad():
        graph.run(state, inputs, dtype, untie=spec.identity.untied, watch=watch)
    return found


def _gathered(
    spec: SymmetrySpec,
    graph: Graph,
    states: tuple[State, State],
    inputs: Sequence[dict[str, Tensor]],
    watched: Sequence[_Watched],
) -> list[tuple[Tensor, Tensor]]:
    """``[rows, width]`` of both models for every activation: same covariances, norm one."""
    held: dict[_Watched, Tensor] = {}
    for one_call in inputs:
        pair = [_values(spec, graph, state, one_call, watched, None) for state in states]
        for one in watched:
            sides = [values[one].flatten(1) for values in pair]
            rows = torch.cat([side - side.mean(0) if len(side) > 1 else side for side in sides], 1)
            rows = torch.cat([held[one], rows]) if one in held else rows
            held[one] = torch.linalg.qr(rows, mode="r")[1] if len(rows) > rows.shape[1] else rows
    return [(_unit(x), _unit(y)) for x, y in (held[one].chunk(2, 1) for one in watched)]


def _unit(x: Tensor) -> Tensor:
    size = float(x.norm())
    return x / size if size > 0 else x
