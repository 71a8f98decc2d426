"""Completeness: is there a symmetry that a spec does not have?

At generic weights the tangent space of the set of equivalent weights is the null space of the Jacobian of the outputs with
respect to all parameters. A spec is complete when its orbit directions span that null space:

    rank(tangents) == nullity == dimension.total

The Jacobian is taken in float64 with every cast lifted and every epsilon zero, on random inputs that give more numbers than
there are parameters. The null space is cut off at the largest gap between the logarithms of the singular values, and the gap is
reported; a fixed tolerance would miscount. ``missing`` is the part of the null space outside of the spec, by parameter.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, log10
from typing import Literal

import torch
from torch import Tensor, fx

from symgraph.errors import SymgraphError
from symgraph.frontend.graph import Graph
from symgraph.spec.model import SymmetrySpec
from symgraph.spec.operations import canonicalize, tangents
from symgraph.verify.preservation import belongs, random_state

LARGEST = 6000
"""Most parameters of an audit: a singular value decomposition of that size ends within minutes."""
OVERSAMPLED = 1.3
"""Outputs per parameter, at least; more are drawn until the count no longer changes."""
MORE = 0.5
"""By how many outputs per parameter the sample grows between two counts."""
STEADY = 3
"""How many counts in a row have to agree."""
FLOOR = 1e-17
"""Singular values below this, relative to the largest, count as this."""
SHOWN = 0.05
"""Share of a direction's energy from which a parameter is named."""

Level = Literal["outputs", "log_softmax"]


@dataclass(frozen=True)
class AuditReport:
    """What was counted. ``gap`` is the ratio of the singular values at the cut, in decades."""

    parameters: int
    rank: int
    nullity: int
    dimension: int
    complete: bool
    gap: float
    residual: float
    missing: dict[str, float]
    directions: tuple[dict[str, float], ...]
    level: Level

    @property
    def summary(self) -> str:
        """One line."""
        counted = f"nullity {self.nullity}, rank {self.rank}, dimension {self.dimension}, gap 10^{self.gap:.1f}"
        if self.complete:
            return f"complete: {counted}"
        if self.residual > 1e-6:
            return f"unsound: directions of the spec change the outputs ({self.residual:.1e}); run verify. {counted}"
        named = ", ".join(sorted(self.missing, key=lambda name: -self.missing[name])[:4])
        return f"incomplete: {self.nullity - self.rank} directions are missing, in {named}; {counted}"


def audit(
    graph: Graph, spec: SymmetrySpec, state_dict: Mapping[str, Tensor] | None = None, level: Level = "outputs", seed: int = 0
) -> AuditReport:
    """Count the null space of the Jacobian at generic weights against the directions of the spec.

    ``level="log_softmax"`` counts after a log-softmax of the last axis of every output. The weights are random ones, since
    trained weights need not be generic, unless a state dict is given. Raises :class:`~symgraph.errors.SymgraphError` for a
    model with more than :data:`LARGEST` parameters.
    """
    belongs(graph, spec)
    original, spec = spec, _moving(spec)
    names = [tensor.name for tensor in spec.tensors if tensor.numel]
    count = sum(tensor.numel for tensor in spec.tensors if tensor.name in set(names))
    if count > LARGEST:
        raise SymgraphError(f"the model has {count} parameters; an audit takes at most {LARGEST}: give a smaller config of it")
    state = random_state(graph, original, seed) if state_dict is None else {k: v.double() for k, v in state_dict.items()}
    canon = canonicalize(spec, state)
    jacobian = _settled(_rows(graph, spec, canon, names, level, seed), count)
    directions = torch.cat([tangents(spec, canon, names), _approximate(spec, canon, names)], 1)
    read = _read(graph, spec, names)
    return _count(jacobian[:, read], directions[read], spec, names, read, level)


def _approximate(spec: SymmetrySpec, canon: dict[str, Tensor], names: list[str]) -> Tensor:
    """Directions [parameters, k] of the scales that only an epsilon breaks: epsilons are zero here."""
    columns = [torch.cat([each.weights.get(name, 0) * canon[name].flatten() for name in names]) for each in spec.approximate]
    count = sum(canon[name].numel() for name in names)
    return torch.stack(columns, 1) if columns else torch.zeros(count, 0, dtype=torch.float64)


def _read(graph: Graph, spec: SymmetrySpec, names: list[str]) -> Tensor:
    """Which entries [parameters] the example can read at all: rows of a table that a fixed index never chooses are none.

    Positions beyond the example's length are such rows: nothing can be said of them, and nothing is claimed.
    """
    masks = {name: torch.ones(spec.tensor_map[name].shape, dtype=torch.bool) for name in names}
    seen: dict[str, Tensor] = {}
    for node in graph.nodes:
        if node.target is not torch.ops.aten.embedding.default:
            continue
        table, index = node.args[0], node.args[1]
        assert isinstance(table, fx.Node)
        assert isinstance(index, fx.Node)
        if table.name not in graph.parameters:
            continue
        name = graph.names.get(table.name, "") if spec.identity.untied else graph.parameters[table.name]
        rows = seen.setdefault(name, torch.zeros(table.meta["val"].shape[0], dtype=torch.bool))
        fixed = graph.folded.get(index.name, graph.constants.get(index.name))
        if fixed is None or _from_inputs(graph, index):
            rows[:] = True
        else:
            rows[fixed.flatten()] = True
    for node in graph.nodes:
        if node.target is not torch.ops.aten.embedding.default:
            for source in node.all_input_nodes:
                seen.pop(graph.parameters.get(source.name, ""), None)
    for name, rows in seen.items():
        if name in masks:
            masks[name][~rows] = False
    return torch.cat([masks[name].flatten() for name in names])


def _from_inputs(graph: Graph, node: fx.Node) -> bool:
    """Whether a constant was computed from the inputs of the example."""
    return node.name in graph.inputs or any(_from_inputs(graph, source) for source in node.all_input_nodes)


def _moving(spec: SymmetrySpec) -> SymmetrySpec:
    """The spec with its buffers as parameters: statistics move with the weights, so they are counted with them."""
    return spec.model_copy(update={"tensors": tuple(each.model_copy(update={"kind": "parameter"}) for each in spec.tensors)})


def _rows(
    graph: Graph, spec: SymmetrySpec, canon: dict[str, Tensor], names: list[str], level: Level, seed: int
) -> Iterator[Tensor]:
    """Jacobians [outputs, parameters] on random inputs, without end."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield _jacobian(graph, spec, canon, names, random_inputs(graph, generator), level)


def _settled(blocks: Iterator[Tensor], count: int) -> Tensor:
    """A matrix with the singular values of the Jacobian on so many inputs that its rank does not grow any more.

    The triangular factor of a QR decomposition stands for the rows seen so far: it has their singular values.
    """
    triangle = torch.zeros(0, count, dtype=torch.float64)
    ranks: list[int] = []
    goal, seen = ceil(OVERSAMPLED * count) + 8, 0
    while True:
        fresh: list[Tensor] = []
        while seen < goal:
            fresh.append(next(blocks))
            seen += len(fresh[-1])
        triangle = torch.linalg.qr(torch.cat([triangle, *fresh]), mode="r").R
        ranks.append(cut(torch.linalg.svdvals(triangle))[0])
        if ranks[-STEADY:] == [ranks[-1]] * STEADY:
            settled: Tensor = triangle
            return settled
        goal += ceil(MORE * count)


def random_inputs(graph: Graph, generator: torch.Generator) -> dict[str, Tensor]:
    """New values for the float inputs, and for integers that only choose rows of an embedding."""
    fresh: dict[str, Tensor] = {}
    for node in graph.module.graph.find_nodes(op="placeholder"):
        example = graph.inputs.get(node.name)
        if example is None:
            continue
        if example.is_floating_point():
            fresh[node.name] = torch.randn(example.shape, generator=generator, dtype=torch.float64)
        elif (rows := _vocabulary(node)) is not None:
            fresh[node.name] = torch.randint(0, rows, example.shape, generator=generator, dtype=example.dtype)
    return fresh


_COPYING = {
    torch.ops.aten.view.default, torch.ops.aten.reshape.default, torch.ops.aten.clone.default,
    torch.ops.aten._to_copy.default, torch.ops.aten.unsqueeze.default, torch.ops.aten.alias.default,
}  # fmt: skip


def _vocabulary(node: fx.Node) -> int | None:
    """Rows of the table that an integer input chooses from; None where it is used otherwise."""
    sizes: list[int] = []
    for user in node.users:
        if user.target in _COPYING:
            rows = _vocabulary(user)
        elif user.target is torch.ops.aten.embedding.default and user.args[1] is node:
            table = user.args[0]
            assert isinstance(table, fx.Node)
            rows = int(table.meta["val"].shape[0])
        else:
            rows = None
        if rows is None:
            return None
        sizes.append(rows)
    return min(sizes, default=None)


def _jacobian(
    graph: Graph, spec: SymmetrySpec, canon: dict[str, Tensor], names: list[str], inputs: dict[str, Tensor], level: Level
) -> Tensor:
    shapes = {name: canon[name].shape for name in names}
    start = torch.cat([canon[name].flatten() for name in names])

    def outputs(vector: Tensor) -> Tensor:
        pieces = torch.split(vector, [shape.numel() for shape in shapes.values()])
        moved = {name: piece.reshape(shape) for (name, shape), piece in zip(shapes.items(), pieces, strict=True)}
        results = graph.run({**canon, **moved}, inputs, epsilons=0.0, untie=spec.identity.untied)
        if level == "log_softmax":
            results = [torch.log_softmax(result, -1) for result in results]
        return torch.cat([result.flatten() for result in results])

    with torch.no_grad():
        expected = outputs(start)
    finite = expected.isfinite()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # some kernels have no batching rule: slower, not wrong
        jacobian: Tensor = torch.func.jacrev(lambda vector: outputs(vector)[finite], chunk_size=256)(start)
    return jacobian.detach()


def _count(
    jacobian: Tensor, directions: Tensor, spec: SymmetrySpec, names: list[str], read: Tensor, level: Level
) -> AuditReport:
    _, values, right = torch.linalg.svd(jacobian, full_matrices=True)
    count = jacobian.shape[1]
    kept, gap = cut(values)
    null = right[kept:].mT
    rank, basis = _span(directions)
    scale = float(values.max()) or 1.0
    residual = float((jacobian @ basis).abs().max()) / scale if rank else 0.0
    rest = null - basis @ (basis.mT @ null) if rank else null
    left, strength, _ = torch.linalg.svd(rest, full_matrices=False) if null.shape[1] else (rest, rest.new_zeros(0), rest)
    missing = left[:, strength > 0.5]
    complete = rank == null.shape[1] and residual < 1e-6 and not missing.shape[1]
    whole = missing.new_zeros(len(read), missing.shape[1])
    whole[read] = missing
    energy = _energy(whole, spec, names)
    columns = tuple(_energy(whole[:, [index]], spec, names) for index in range(min(missing.shape[1], 16)))
    return AuditReport(count, rank, null.shape[1], spec.dimension.total, complete, gap, residual, energy, columns, level)


def cut(values: Tensor) -> tuple[int, float]:
    """How many singular values (descending) are above the largest gap of their logarithms, and the gap in decades.

    A spectrum without zeros ends in a gap to :data:`FLOOR`.
    """
    if not len(values) or float(values[0]) == 0.0:
        return 0, float("inf")
    scaled = [max(float(value) / float(values[0]), FLOOR) for value in values] + [FLOOR]
    gaps = [log10(a / b) for a, b in pairwise(scaled)]
    best = max(range(len(gaps)), key=lambda index: gaps[index])
    return best + 1, gaps[best]


def _span(directions: Tensor) -> tuple[int, Tensor]:
    """Rank and an orthonormal basis of the columns."""
    if not directions.shape[1]:
        return 0, directions
    norms = directions.norm(dim=0)
    scaled = directions[:, norms > 0] / norms[norms > 0]
    left, values, _ = torch.linalg.svd(scaled, full_matrices=False)
    rank, gap = cut(values)
    rank = rank if gap > 4 else len(values)
    return rank, left[:, :rank]


def _energy(columns: Tensor, spec: SymmetrySpec, names: list[str]) -> dict[str, float]:
    """Squared length of directions by parameter; shares below :data:`SHOWN` are left out."""
    if not columns.shape[1]:
        return {}
    tensors = spec.tensor_map
    pieces = torch.split(columns, [tensors[name].numel for name in names])
    energy = {name: float(piece.square().sum()) for name, piece in zip(names, pieces, strict=True)}
    total = sum(energy.values())
    return {name: value for name, value in sorted(energy.items(), key=lambda item: -item[1]) if value > SHOWN * total}
