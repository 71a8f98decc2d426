"""Where the index spaces of a spec stand on the values inside of the graph.

The engine types every value on its way to the spec; the spec keeps parameters and buffers alone. Here the types of the
others are read off once more, for those who want to look at activations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from symgraph.frontend.graph import Graph
from symgraph.infer.absorb import absorb
from symgraph.infer.discover import prepare
from symgraph.infer.interpret import interpret
from symgraph.infer.naming import names, parametric_values
from symgraph.infer.solve import Solution, solve
from symgraph.infer.spaces import IndexSpace
from symgraph.spec.model import SymmetrySpec


@dataclass(frozen=True)
class Activation:
    """The value of a node, reshaped to ``dims``: for each the name of a space (empty: nothing moves it) and the size."""

    node: str
    dims: tuple[tuple[str, int], ...]

    @property
    def spaces(self) -> tuple[str, ...]:
        """Names of the spaces, in order."""
        return tuple(name for name, _ in self.dims if name)


def activations(graph: Graph, spec: SymmetrySpec) -> tuple[Activation, ...]:
    """Activations on which spaces of ``spec`` stand, each at most once; axes that are direct sums are left out.

    ``graph`` is traced from the model that ``spec`` was discovered for, on an example of any shape.
    """
    program = prepare(graph, spec.identity.untied)
    absorb(program)
    typing = interpret(program)
    solution = solve(program, typing)
    sizes = {space.name: space.size for space in spec.spaces}
    named = {leaf: name for leaf, (name, _) in names(program, typing, solution).items() if sizes.get(name) == leaf.size}
    shapes = {node.name: _shape(node.meta.get("val")) for node in graph.nodes}
    parametric = parametric_values(program)
    found: dict[str, Activation] = {}
    for op in program.ops:
        if len(op.results) != 1 or shapes.get(op.node) != (value := op.results[0]).shape:
            continue
        found.pop(op.node, None)  # an operator that was written out: its last part has the value of the node
        if value.known or id(value) in parametric or not value.dtype.is_floating_point:
            continue
        dims = _dims(typing.types.get(value, ()), value.shape, solution, named)
        if dims is not None:
            found[op.node] = Activation(op.node, dims)
    return tuple(found.values())


def _shape(value: Any) -> tuple[int, ...] | None:
    return tuple(value.shape) if isinstance(value, Tensor) else None


def _dims(
    types: tuple[IndexSpace | None, ...], shape: tuple[int, ...], solution: Solution, named: dict[IndexSpace, str]
) -> tuple[tuple[str, int], ...] | None:
    """The factors of all axes; None where there is a direct sum, no space, or a space twice."""
    dims: list[tuple[str, int]] = []
    for space, size in zip(types, shape, strict=True):
        branches = [()] if space is None else solution.layout.of(space)
        if len(branches) != 1:
            return None
        leaves = [(named.get(leaf.root(), ""), leaf.size) for leaf in branches[0]]
        dims += leaves if any(name for name, _ in leaves) else [("", size)]
    met = [name for name, _ in dims if name]
    return tuple(dims) if met and len(set(met)) == len(met) else None
