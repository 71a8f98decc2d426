"""Completeness: is there a symmetry that a spec does not have?

At generic weights the tangent space of the set of equivalent weights is the null space of the Jacobian of the outputs with
respect to all parameters. A spec is complete when its orbit directions span that null space:

    rank(tangents) == nullity == dimension.total

The Jacobian is taken in float64 with every cast lifted and every epsilon zero, on random inputs that give more numbers than
there are parameters (:mod:`symgraph.verify.jacobian`). The null space is cut off at the largest gap between the logarithms of
the singular values, and the gap is reported; a fixed tolerance would miscount (:mod:`symgraph.verify.nullspace`).
``missing`` is the part of the null space outside of the spec, by parameter, and ``explained`` puts it into words where it is
small.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from symgraph.errors import SymgraphError
from symgraph.frontend.graph import Graph
from symgraph.infer.discover import without_epsilons
from symgraph.spec.model import ShiftTerm, SymmetrySpec
from symgraph.spec.operations import canonicalize, tangents
from symgraph.verify.discrete import Discrete, discrete
from symgraph.verify.jacobian import Jacobian, Level, idealized, is_epsilon, read_entries
from symgraph.verify.missing import explained
from symgraph.verify.nullspace import NullSpace, cut, drawn, settled
from symgraph.verify.preservation import belongs, random_state

LARGEST = 5000
"""Most parameters of an audit, which then takes two minutes on two cores."""
UNSOUND = 1e-6
"""How much a direction of the spec may change the outputs, relative to the direction that changes them most."""
SHOWN = 0.05
"""Share of a direction's energy from which a parameter is named."""
LARGE_EPSILON = 0.1
"""What the epsilons are made to be, to see which scales they break."""
BROKEN = 1e-9
"""How much a direction changes the outputs then, at least, relative to the direction that changes them most."""
CLEAR = 4
"""Decades between the singular values of orbit directions that count as a gap."""
SECONDS = 10.0
"""Time for the search for permutations and signs that the spec has not."""
LISTED = 16
"""Most missing directions whose parameters are listed one by one."""


@dataclass(frozen=True)
class AuditReport:
    """What was counted. ``gap`` is the ratio of the singular values at the cut, in decades.

    ``approximate`` counts the scales that only an epsilon breaks: epsilons are zero here, so they are part of the nullity, but
    not of ``dimension``. ``surplus`` is what ``dimension`` has too many, a direction that two generators share; ``unread``
    counts directions that move nothing but what the example does not read (positions beyond its length), so that

        dimension + approximate - surplus - unread == rank

    ``complete`` speaks of the continuous group. ``missing_discrete`` are permutations and signs that the spec has not, among
    those ``searched``.
    """

    parameters: int
    rank: int
    nullity: int
    dimension: int
    complete: bool
    gap: float
    residual: float
    missing: dict[str, float]
    directions: tuple[dict[str, float], ...]
    level: Level = "outputs"
    approximate: int = 0
    surplus: int = 0
    unread: int = 0
    explained: tuple[str, ...] = ()
    missing_discrete: tuple[Discrete, ...] = ()
    searched: str = "nothing"

    @property
    def summary(self) -> str:
        """One line."""
        counted = f"nullity {self.nullity}, rank {self.rank}, dimension {self.dimension}, gap 10^{self.gap:.1f}"
        if self.complete and self.missing_discrete:
            return f"incomplete: {len(self.missing_discrete)} discrete missing ({self.missing_discrete[0]}); {counted}"
        if self.complete:
            return f"complete: {counted}"
        if self.residual > UNSOUND:
            return f"unsound: directions of the spec change the outputs ({self.residual:.1e}); run verify. {counted}"
        if not self.missing:
            return f"miscounted: the dimension is {abs(self.surplus)} too {'large' if self.surplus > 0 else 'small'}; {counted}"
        named = ", ".join(sorted(self.missing, key=lambda name: -self.missing[name])[:4])
        words = f" ({self.explained[0]})" if self.explained else ""
        lacking = self.nullity - self.rank
        count = f"{lacking} direction{' is' if lacking == 1 else 's are'} missing"
        return f"incomplete: {count}, in {named}{words}; {counted}"


def audit(
    graph: Graph, spec: SymmetrySpec, state_dict: Mapping[str, Tensor] | None = None, level: Level = "outputs", seed: int = 0,
    seconds: float = SECONDS,
) -> AuditReport:  # fmt: skip
    """Count the null space of the Jacobian at generic weights against the directions of the spec.

    ``level="log_softmax"`` counts after a log-softmax of the last axis of every output. The weights are random ones, since
    trained weights need not be generic, unless a state dict is given. ``seconds`` bound the search for permutations and signs
    (0: none). Raises :class:`~symgraph.errors.SymgraphError` for a
    model with more than :data:`LARGEST` parameters.
    """
    belongs(graph, spec)
    moving = _moving(spec)
    names = [tensor.name for tensor in spec.tensors if tensor.numel]
    count = sum(tensor.numel for tensor in spec.tensors)
    if count > LARGEST:
        raise SymgraphError(f"the model has {count} parameters; an audit takes at most {LARGEST}: give a smaller config of it")
    state = random_state(graph, spec, seed) if state_dict is None else {k: v.double() for k, v in state_dict.items()}
    canon = canonicalize(moving, state)
    jacobian = Jacobian(idealized(graph), canon, names, level, spec.identity.untied)
    read = read_entries(graph, names, {name: canon[name].shape for name in names}, spec.identity.untied)
    null = settled((block[:, read] for block in jacobian.rows(seed)), int(read.sum()))
    exact = tangents(moving, canon, names)
    loose = _approximate(graph, spec, jacobian, null, read, seed)
    counted = _count(null, torch.cat([exact[read], loose], 1), canon, names, read)
    everything, known = _span(exact).shape[1], _span(exact[read]).shape[1]
    surplus = spec.dimension.total - everything
    others, searched = discrete(graph, spec, canon, seconds, seed) if seconds else ((), "nothing")
    return replace(
        counted, dimension=spec.dimension.total, complete=counted.complete and not surplus, level=level,
        approximate=counted.rank - known, surplus=surplus, unread=everything - known,
        missing_discrete=others, searched=searched,
    )  # fmt: skip


def _approximate(graph: Graph, spec: SymmetrySpec, jacobian: Jacobian, null: NullSpace, read: Tensor, seed: int) -> Tensor:
    """Directions [n, k] of the null space that only epsilons break, orthogonal to those that they do not break.

    They are scales of whole tensors that the spec lists, and those of the model without epsilons (translations are exact);
    what breaks is seen as soon as the epsilons are large.
    """
    canon, names = jacobian.state, jacobian.names
    ideal = _moving(without_epsilons(graph, spec.identity.untied)).model_copy(update={"shifts": (), "absorptions": ()})
    scales = _span(torch.cat([tangents(ideal, canon, names), _whole(spec, canon, names)], 1)[read])
    wide = replace(jacobian, graph=idealized(graph, LARGE_EPSILON), epsilon=LARGE_EPSILON)
    rows = drawn((block[:, read] for block in wide.rows(seed)), 2 * scales.shape[1] + 8)
    _, values, right = torch.linalg.svd(rows @ null.basis, full_matrices=False)
    broken = null.basis @ right[values > BROKEN * null.scale].mT
    left, strength, _ = torch.linalg.svd(broken.mT @ scales, full_matrices=False)
    found: Tensor = broken @ left[:, strength > UNSOUND]
    return found


def _whole(spec: SymmetrySpec, canon: dict[str, Tensor], names: list[str]) -> Tensor:
    """Directions [parameters, k] of the approximate scales of whole tensors that a spec lists."""
    columns = [torch.cat([each.weights.get(name, 0) * (canon[name] + each.offsets.get(name, 0)).flatten() for name in names])
               for each in spec.approximate]  # fmt: skip
    count = sum(canon[name].numel() for name in names)
    return torch.stack(columns, 1) if columns else torch.zeros(count, 0, dtype=torch.float64)


def _moving(spec: SymmetrySpec) -> SymmetrySpec:
    """The spec with its buffers as parameters (statistics move with the weights, so they count), and without epsilons."""
    tensors = tuple(each.model_copy(update={"kind": "parameter"}) for each in spec.tensors)
    shifts = tuple(shift.model_copy(update={"terms": tuple(map(_without_epsilon, shift.terms))}) for shift in spec.shifts)
    return spec.model_copy(update={"tensors": tensors, "shifts": shifts})


def _without_epsilon(term: ShiftTerm) -> ShiftTerm:
    reads = tuple(read.model_copy(update={"offset": 0.0}) if is_epsilon(read.offset) else read for read in term.reads)
    return term.model_copy(update={"reads": reads})


def _count(null: NullSpace, directions: Tensor, canon: dict[str, Tensor], names: list[str], read: Tensor) -> AuditReport:
    """Compare a null space with ``directions`` [n, k]; ``read`` [parameters] are the n entries that both speak of."""
    known = _span(directions)
    rank, nullity = known.shape[1], null.basis.shape[1]
    residual = float((null.matrix @ known).norm(dim=0).max()) / (null.scale or 1.0) if rank else 0.0
    left, strength, _ = torch.linalg.svd(null.basis - known @ (known.mT @ null.basis), full_matrices=False)
    missing = left[:, strength > 0.5]
    places = _places(canon, names, read)
    words: tuple[str, ...] = ()
    if residual < UNSOUND and missing.shape[1]:
        values = torch.cat([canon[name].flatten() for name in names])[read]
        words = explained(null.basis, known, {name: values[rows] for name, rows in places.items()}, places)
    columns = tuple(_energy(missing[:, [index]], places) for index in range(min(missing.shape[1], LISTED)))
    complete = rank == nullity and residual < UNSOUND and not missing.shape[1]
    return AuditReport(
        len(read), rank, nullity, 0, complete, null.gap, residual, _energy(missing, places), columns, explained=words
    )


def _span(directions: Tensor) -> Tensor:
    """An orthonormal basis of the span of the columns."""
    norms = directions.norm(dim=0)
    left: Tensor
    left, values, _ = torch.linalg.svd(directions[:, norms > 0] / norms[norms > 0], full_matrices=False)
    rank, gap = cut(values)
    return left[:, : rank if gap > CLEAR else len(values)]


def _places(canon: dict[str, Tensor], names: list[str], read: Tensor) -> dict[str, Tensor]:
    """The rows of every parameter among those that are read."""
    owner = torch.cat([torch.full((canon[name].numel(),), index) for index, name in enumerate(names)])[read]
    return {name: rows for index, name in enumerate(names) if len(rows := (owner == index).nonzero()[:, 0])}


def _energy(columns: Tensor, places: dict[str, Tensor]) -> dict[str, float]:
    """Squared length of directions by parameter; shares below :data:`SHOWN` are left out."""
    energy = {name: float(columns[rows].square().sum()) for name, rows in places.items()}
    total = sum(energy.values())
    return {name: value for name, value in sorted(energy.items(), key=lambda item: -item[1]) if value > SHOWN * total}
