"""Whether two models compute the same function of their weights: their traced graphs, operator by operator."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor, fx

from symgraph.errors import MatchError
from symgraph.frontend.graph import Graph

SHOWN = 60  # characters of an argument in a message


def require_same(a: Graph, b: Graph, names: tuple[str, str]) -> None:
    """Raise an error that names the first difference: of a tensor, an operator, an argument or a constant."""
    orders = ({node: index for index, node in enumerate(graph.nodes)} for graph in (a, b))
    first, second = orders
    for one, other in zip_longest(first, second):
        difference = _difference(one, other, (a, b), (first, second))
        if difference:
            place = a.origin(one) if one is not None else b.origin(other)
            at = f" at {place.source}" if place.source else ""
            inside = f" in {place.module}" if place.module else ""
            mine, theirs = difference
            raise MatchError(f"the models differ{at}{inside}: {names[0]} has {mine}, {names[1]} has {theirs}")


def _difference(
    one: fx.Node | None, other: fx.Node | None, graphs: tuple[Graph, Graph], orders: tuple[Any, Any]
) -> tuple[str, str] | None:
    """What the two nodes differ in, in words; None where they are alike."""
    if one is None or other is None:
        return tuple("nothing more" if node is None else str(node.target) for node in (one, other))  # type: ignore[return-value]
    if (one.op, _target(one, graphs[0])) != (other.op, _target(other, graphs[1])):
        return _target(one, graphs[0]), _target(other, graphs[1])
    mine, theirs = (_arguments(node, order) for node, order in zip((one, other), orders, strict=True))
    if mine != theirs:
        pairs = [(x, y) for x, y in zip_longest(mine, theirs) if x != y]
        x, y = pairs[0]
        return f"{one.target} with {str(x)[:SHOWN]}", f"{str(y)[:SHOWN]}"
    values = [
        graph.folded.get(node.name, graph.constants.get(node.name)) for graph, node in zip(graphs, (one, other), strict=True)
    ]
    if not _equal(*values) and one.name not in graphs[0].buffers:
        return f"another constant {one.name!r}", f"its own ({_shape(values[1])})"
    return None


def _target(node: fx.Node, graph: Graph) -> str:
    if node.op == "placeholder":
        return graph.names.get(node.name, node.name)
    return str(node.target)


def _arguments(node: fx.Node, order: dict[fx.Node, int]) -> list[Any]:
    """Arguments with the numbers of nodes in their place."""
    plain = fx.node.map_arg((node.args, node.kwargs), lambda each: ("node", order[each]))
    return [*plain[0], *sorted(plain[1].items())]


def _equal(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.shape == other.shape and one.dtype == other.dtype and torch.equal(one, other)


def _shape(value: Tensor | None) -> str:
    return "no value" if value is None else f"shape {tuple(value.shape)}"
