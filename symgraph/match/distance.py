"""How far two checkpoints are apart, relative to the first: over all parameters, or those that a space stands on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from torch import Tensor

from symgraph.spec.model import SymmetrySpec
from symgraph.spec.state import State, fetch, names


def relative(spec: SymmetrySpec, a: State, b: State) -> float:
    """``|a - b| / |a|`` over all float parameters of the spec."""
    pairs = _squares(spec, a, b)
    return _ratio([gap for gap, _ in pairs.values()], [size for _, size in pairs.values()])


def spread(spec: SymmetrySpec, states: Sequence[State], mean: State) -> float:
    """The root mean square of the distances to the mean, relative to the first state."""
    gaps = [gap for state in states for gap, _ in _squares(spec, mean, state).values()]
    return _ratio(gaps, [len(states) * size for _, size in _squares(spec, states[0], mean).values()])


def per_space(spec: SymmetrySpec, a: State, b: State) -> dict[str, float]:
    """The same over the tensors that each space stands on."""
    pairs = _squares(spec, a, b)
    carriers: dict[str, list[str]] = defaultdict(list)
    for tensor in spec.tensors:
        for space in {factor.space for word in tensor.words for factor in word.factors()}:
            if tensor.name in pairs:
                carriers[space].append(tensor.name)
    return {
        space: _ratio([pairs[name][0] for name in found], [pairs[name][1] for name in found])
        for space, found in sorted(carriers.items())
    }


def _squares(spec: SymmetrySpec, a: State, b: State) -> dict[str, tuple[float, float]]:
    found = {}
    for tensor in spec.tensors:
        if tensor.kind == "parameter" and names(tensor, a):
            first, second = _double(fetch(tensor, a)), _double(fetch(tensor, b))
            found[tensor.name] = (float((first - second).square().sum()), float(first.square().sum()))
    return found


def _double(value: Tensor) -> Tensor:
    return value.detach().double()


def _ratio(gaps: list[float], sizes: list[float]) -> float:
    if not sum(gaps):
        return 0.0
    return float((sum(gaps) / max(sum(sizes), 1e-300)) ** 0.5)
