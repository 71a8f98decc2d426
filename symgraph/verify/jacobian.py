"""Rows of the Jacobian of a traced graph at given weights, on as many random inputs as one asks for.

What would hide or fake a symmetry is taken out first (:func:`idealized`): small constants that only keep a division finite, and
the padding row of an embedding, to which no gradient flows. Everything runs in float64 with all casts lifted.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, fx

from symgraph.errors import SymgraphError
from symgraph.frontend.graph import Graph
from symgraph.rules.elementwise import EPSILON_LIMIT

CHUNK = 256
"""Outputs that are differentiated at once."""
BARREN = 8
"""How many inputs in a row may give no finite row."""

Level = Literal["outputs", "log_softmax"]

aten = torch.ops.aten

# Operators whose second argument is a summand or a lower bound: an epsilon where it is tiny.
BOUNDED = frozenset({aten.add.Tensor, aten.add.Scalar, aten.clamp_min.default, aten.clamp.default})

# Operators that hand the values of an index on.
COPYING = frozenset({
    aten.view.default, aten.reshape.default, aten.clone.default, aten._to_copy.default, aten.unsqueeze.default,
    aten.alias.default,
})  # fmt: skip


def idealized(graph: Graph, epsilon: float = 0.0) -> Graph:
    """A copy of the graph with another number for the epsilons that stand in it, and without padding rows.

    The epsilons of norms, which are arguments, are those of ``Graph.run``.
    """
    nodes = copy.deepcopy(graph.module.graph)
    place = dict(zip(graph.nodes, nodes.nodes, strict=True))
    for original, node in place.items():
        node.name = original.name  # copying renames what is named like a function of Python
        if node.target is aten.embedding.default:
            node.args, node.kwargs = node.args[:2], {}
        elif node.target in BOUNDED and len(node.args) > 1 and is_epsilon(node.args[1]):
            node.args = (node.args[0], epsilon, *node.args[2:])
    module = fx.GraphModule(graph.module, nodes)
    return replace(graph, module=module, output_nodes=[place[node] for node in graph.output_nodes])


def is_epsilon(value: Any) -> bool:
    """Whether a number only keeps a division finite."""
    return isinstance(value, float) and 0 < value <= EPSILON_LIMIT


@dataclass(frozen=True)
class Jacobian:
    """The outputs as a function of the tensors ``names``, at the weights ``state``, with ``epsilon`` in all norms."""

    graph: Graph
    state: dict[str, Tensor]
    names: list[str]
    level: Level = "outputs"
    untied: bool = False
    epsilon: float = 0.0

    @property
    def columns(self) -> int:
        """Number of parameters."""
        return sum(self.state[name].numel() for name in self.names)

    def rows(self, seed: int) -> Iterator[Tensor]:
        """Blocks [outputs, parameters], each on an input of its own, without end."""
        generator = torch.Generator().manual_seed(seed)
        barren = 0
        while True:
            block = self.on(random_inputs(self.graph, generator))
            barren = 0 if len(block) else barren + 1
            if barren > BARREN:
                raise SymgraphError("the outputs are nowhere finite with all epsilons zero: nothing can be counted")
            yield block

    def on(self, inputs: dict[str, Tensor]) -> Tensor:
        """The rows [outputs, parameters] that are finite on one input."""
        start = torch.cat([self.state[name].flatten() for name in self.names])
        with torch.no_grad():
            finite = self._outputs(start, inputs).isfinite()
        if not finite.any():
            return start.new_zeros(0, len(start))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # some kernels have no batching rule: slower, not wrong
            rows = torch.func.jacrev(lambda vector: self._outputs(vector, inputs)[finite], chunk_size=CHUNK)(start)
        kept: Tensor = rows[rows.isfinite().all(1)].detach()
        return kept

    def _outputs(self, vector: Tensor, inputs: dict[str, Tensor]) -> Tensor:
        shapes = {name: self.state[name].shape for name in self.names}
        pieces = torch.split(vector, [shape.numel() for shape in shapes.values()])
        moved = {name: piece.reshape(shape) for (name, shape), piece in zip(shapes.items(), pieces, strict=True)}
        results = self.graph.run({**self.state, **moved}, inputs, epsilons=self.epsilon, untie=self.untied)
        if self.level == "log_softmax":
            results = [torch.log_softmax(result, -1) for result in results]
        return torch.cat([result.flatten() for result in results])


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


def _vocabulary(node: fx.Node) -> int | None:
    """Rows of the table that an integer input chooses from; None where it is used otherwise."""
    sizes: list[int] = []
    for user in node.users:
        if user.target in COPYING:
            rows = _vocabulary(user)
        elif user.target is aten.embedding.default and user.args[1] is node:
            table = user.args[0]
            assert isinstance(table, fx.Node)
            rows = int(table.meta["val"].shape[0])
        else:
            rows = None
        if rows is None:
            return None
        sizes.append(rows)
    return min(sizes, default=None)


def read_entries(graph: Graph, names: list[str], shapes: dict[str, torch.Size], untied: bool) -> Tensor:
    """Which entries [parameters] the example can read at all: rows of a table that a fixed index never chooses are none.

    Positions beyond the example's length are such rows: nothing can be said of them, and nothing is claimed.
    """
    masks = {name: torch.ones(shapes[name], dtype=torch.bool) for name in names}
    seen: dict[str, Tensor] = {}
    elsewhere: set[str] = set()
    for node in graph.nodes:
        looked_up = node.args[0] if node.target is aten.embedding.default else None
        for source in node.all_input_nodes:
            if source.name not in graph.parameters:
                continue
            name = graph.names.get(source.name, "") if untied else graph.parameters[source.name]
            if source is not looked_up:
                elsewhere.add(name)
                continue
            rows = seen.setdefault(name, torch.zeros(source.meta["val"].shape[0], dtype=torch.bool))
            _choose(graph, node.args[1], rows)
    for name, rows in seen.items():
        if name in masks and name not in elsewhere:
            masks[name][~rows] = False
    return torch.cat([masks[name].flatten() for name in names])


def _choose(graph: Graph, index: Any, rows: Tensor) -> None:
    """Mark the rows that an index chooses: all of them where it depends on the input."""
    assert isinstance(index, fx.Node)
    fixed = graph.folded.get(index.name, graph.constants.get(index.name))
    if fixed is None or _from_inputs(graph, index):
        rows[:] = True
    else:
        rows[fixed.flatten()] = True


def _from_inputs(graph: Graph, node: fx.Node) -> bool:
    """Whether a constant was computed from the inputs of the example."""
    return node.name in graph.inputs or any(_from_inputs(graph, source) for source in node.all_input_nodes)
