"""Soundness: does the function of the model stay what it is under what a spec claims?

One random element of the whole group, and one of every space and shift alone, is applied to weights in normal form, and the
traced graph is run in float64 with all casts lifted. A claim that is wrong shows at 1e-2, one that is right at 1e-12; the
line is drawn at :data:`TOLERANCE`. Where a claim fails, the tensors without which it would hold are named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from symgraph.errors import CheckpointError, SpecError
from symgraph.frontend.graph import Graph
from symgraph.spec.model import SymmetrySpec
from symgraph.spec.operations import canonicalize, moves, sample
from symgraph.spec.transform import Transform

TOLERANCE = 1e-9
"""Largest difference of outputs, relative to their largest entry, that counts as none in float64."""
SCALE = 0.3
"""Bound of the logarithms of sampled scales: large enough to show a wrong claim, small enough to stay well conditioned."""


@dataclass(frozen=True)
class Failure:
    """A space or shift that changes the function, and the tensors that are typed wrongly as far as can be told."""

    name: str
    error: float
    tensors: tuple[str, ...]


@dataclass(frozen=True)
class VerifyReport:
    """Relative errors: of the normal form, of the whole group at once, of every space and shift alone.

    ``silent`` names weights on which the outputs say nothing, zeros or no numbers: there, no claim can fail.
    """

    passed: bool
    max_relative_error: float
    normal_form: float
    whole: tuple[float, ...]
    spaces: dict[str, float]
    failures: tuple[Failure, ...]
    weights: tuple[str, ...]
    rounding: float | None = None
    silent: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """One line."""
        if self.silent:
            return f"nothing to compare: on {' and '.join(self.silent)} weights the outputs are zero or nowhere finite"
        if self.passed:
            return f"preserved: largest relative error {self.max_relative_error:.1e} ({', '.join(self.weights)} weights)"
        if self.normal_form > TOLERANCE:
            return f"not preserved: the normal form changes the outputs by {self.normal_form:.1e}"
        worst = max(self.failures, key=lambda failure: failure.error, default=None)
        if worst is None:
            return f"not preserved: the whole group together changes the outputs by {max(self.whole):.1e}"
        where = f"; look at {', '.join(worst.tensors[:3])}" if worst.tensors else ""
        return f"not preserved: {worst.name} changes the outputs by {worst.error:.1e}{where}"


def verify(
    graph: Graph, spec: SymmetrySpec, state_dict: Mapping[str, Tensor] | None = None, samples: int = 3, seed: int = 0
) -> VerifyReport:
    """Check a spec on random weights, and on the given ones or those of the traced module where it has them.

    Raises :class:`~symgraph.errors.SpecError` where the spec is that of another model.
    """
    belongs(graph, spec)
    trials: list[tuple[str, dict[str, Tensor]]] = []
    given = graph.state if state_dict is None else state_dict
    if given:
        trials.append(("given", _state(graph, spec, given)))
    trials.append(("random", random_state(graph, spec, seed)))
    reports = [_check(graph, spec, state, samples, seed) for _, state in trials]
    worst = max(range(len(reports)), key=lambda index: reports[index].max_relative_error)
    chosen = reports[worst] if not all(report.passed for report in reports) else reports[0]
    largest = max(report.max_relative_error for report in reports)
    telling = any(report.passed and not report.silent for report in reports)
    return VerifyReport(
        all(report.passed for report in reports) and telling, largest, chosen.normal_form, chosen.whole, chosen.spaces,
        chosen.failures, tuple(name for name, _ in trials), rounding_budget(graph, spec, given, seed) if given else None,
        () if telling else tuple(name for (name, _), report in zip(trials, reports, strict=True) if report.silent),
    )  # fmt: skip


def belongs(graph: Graph, spec: SymmetrySpec) -> None:
    """Raise SpecError unless the spec types the tensors of the graph, all of them and in their shapes."""
    shapes: dict[str, tuple[int, ...]] = {}
    for node in graph.module.graph.find_nodes(op="placeholder"):
        if node.name in graph.parameters or node.name in graph.persistent:
            canonical = graph.parameters.get(node.name) or graph.buffers[node.name]
            name = graph.names.get(node.name, canonical) if spec.identity.untied else canonical
            if node.meta["val"].dtype.is_floating_point:
                shapes[name] = tuple(node.meta["val"].shape)
    typed = spec.tensor_map
    for name, shape in shapes.items():
        if name not in typed:
            raise SpecError(f"the spec is for another model: it does not type {name!r}; discover it anew")
        if typed[name].shape != shape:
            raise SpecError(f"the spec is for another model: {name!r} is {list(typed[name].shape)} there, {list(shape)} here")
    for name in typed:
        if name not in shapes:
            raise SpecError(f"the spec is for another model: this one has no {name!r}; discover it anew")


def _state(graph: Graph, spec: SymmetrySpec, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of the spec in float64, under their names in the spec."""
    state: dict[str, Tensor] = {}
    for tensor in spec.tensors:
        same = [name for canonical, others in graph.aliases.items() for name in (canonical, *others)
                if tensor.name in (canonical, *others)]  # fmt: skip
        found = next((given[name] for name in (tensor.name, *tensor.aliases, *same) if name in given), None)
        if found is None:
            raise CheckpointError(f"tensor {tensor.name!r} is missing from the weights")
        if tuple(found.shape) != tensor.shape:
            raise CheckpointError(f"tensor {tensor.name!r} has shape {list(found.shape)}, the spec says {list(tensor.shape)}")
        if bool(found.isnan().any()) or (tensor.kind == "parameter" and not bool(found.isfinite().all())):
            raise CheckpointError(f"tensor {tensor.name!r} has entries that are not finite")
        state[tensor.name] = found.detach().double()
    return state


def random_state(graph: Graph, spec: SymmetrySpec, seed: int = 0) -> dict[str, Tensor]:
    """Generic weights [*shape] by name: unit gain for matrices, noise around one for gains, positive variances.

    A buffer has positive noise about its own value: means and variances become generic, bounds and frequencies keep their
    sign and their order of magnitude, and what is infinite stays so.
    """
    generator = torch.Generator().manual_seed(seed)
    gains = {each.source: each.neutral for each in spec.absorptions}
    own = graph.state or {}
    state: dict[str, Tensor] = {}
    for tensor in spec.tensors:
        value = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
        if tensor.kind == "buffer":
            value = own[tensor.name].detach().double() + 0.3 * value.abs() if tensor.name in own else 0.5 + value.abs()
        elif tensor.name in gains:
            value = gains[tensor.name] + 0.2 * value
        elif len(tensor.shape) > 1:
            value = value / max(1, tensor.numel // max(1, tensor.shape[0])) ** 0.5
        else:
            value = 0.5 + 0.3 * value
        state[tensor.name] = value
    return state


def difference(actual: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """Largest difference of outputs relative to the largest finite entry of each; infinite where one is not finite."""
    largest = 0.0
    for a, b in zip(actual, expected, strict=True):
        finite = b.isfinite()
        if not torch.equal(finite, a.isfinite()):
            return float("inf")
        if bool(finite.any()):
            scale = float(b[finite].abs().max()) or 1.0
            largest = max(largest, float((a[finite] - b[finite]).abs().max()) / scale)
    return largest


def _check(graph: Graph, spec: SymmetrySpec, state: dict[str, Tensor], samples: int, seed: int) -> VerifyReport:
    untie = spec.identity.untied
    expected = graph.run(state, untie=untie)
    canon = canonicalize(spec, state)
    normal_form = difference(graph.run(canon, untie=untie), expected)

    def error(transform: Transform) -> float:
        return difference(graph.run(transform.apply(canon), untie=untie), expected)

    whole = tuple(error(sample(spec, seed=seed + number, scale=SCALE)) for number in range(samples))
    names = [space.name for space in spec.spaces if moves(space)] + [shift.name for shift in spec.shifts]
    alone: dict[str, float] = {}
    if samples:
        alone = {name: error(sample(spec, seed=seed, scale=SCALE, only=[name])) for name in names}
    failures = tuple(Failure(name, value, _suspects(graph, spec, canon, expected, name, seed))
                     for name, value in alone.items() if not value <= TOLERANCE)  # fmt: skip
    largest = max([normal_form, *whole, *alone.values()])
    silent = () if any(_speaks(output) for output in expected) else ("these",)
    return VerifyReport(largest <= TOLERANCE, largest, normal_form, whole, alone, failures, (), silent=silent)


def _speaks(output: Tensor) -> bool:
    """Whether some finite entry of an output is not zero."""
    return bool((output.isfinite() & (output != 0)).any())


def _suspects(
    graph: Graph, spec: SymmetrySpec, canon: dict[str, Tensor], expected: list[Tensor], name: str, seed: int
) -> tuple[str, ...]:
    """Tensors that, left where they are, make the claim true; else those it moves."""
    moved = sample(spec, seed=seed, scale=SCALE, only=[name]).apply(canon)
    changed = [tensor.name for tensor in spec.tensors if not torch.equal(moved[tensor.name], canon[tensor.name])]
    guilty = [tensor for tensor in changed[:LOCALIZED]
              if difference(graph.run({**moved, tensor: canon[tensor]}, untie=spec.identity.untied), expected)
              <= TOLERANCE]  # fmt: skip
    return tuple(guilty or changed)


LOCALIZED = 64
"""Most tensors that are left out one by one to find the culprit."""


def rounding_budget(graph: Graph, spec: SymmetrySpec, given: Mapping[str, Tensor], seed: int = 0) -> float | None:
    """Error of a transformed checkpoint in its own dtype, in units of what rounding weights to that dtype costs.

    That cost is measured on the normal form; where it has lost no bits, on weights as large with all bits set. None for
    float64, where there is nothing to compare with.
    """
    dtypes = {value.dtype for value in given.values() if value.is_floating_point()}
    own = next((dtype for dtype in (torch.bfloat16, torch.float16, torch.float32) if dtype in dtypes), None)
    if own is None:
        return None
    canon = canonicalize(spec, _state(graph, spec, given))
    untie = spec.identity.untied

    def rounded(values: dict[str, Tensor]) -> float:
        cast = {name: value.to(own).double() for name, value in values.items()}
        return difference(graph.run(cast, untie=untie), graph.run(values, untie=untie))

    generator = torch.Generator().manual_seed(seed)
    jittered = {name: value * (1 + 0.1 * torch.rand(value.shape, generator=generator, dtype=torch.float64))
                for name, value in canon.items()}  # fmt: skip
    cost = rounded(canon) or rounded(jittered)
    moved = rounded(sample(spec, seed=seed, scale=SCALE).apply(canon))
    return moved / cost if cost else None
