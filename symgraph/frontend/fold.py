"""Folding: the value of every node that depends on neither parameters nor floating-point inputs.

Masks, rotary tables, position tables and index arithmetic are computed once and kept beside the graph; the graph itself
is not changed. Token ids and other discrete inputs count as known, with the values of the example.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, fx

from symgraph.frontend.execute import evaluate, is_random
from symgraph.frontend.graph import Graph

# A folded value with more elements than this is not kept.
LARGEST_FOLDED = 2**24


def fold(graph: Graph) -> None:
    """Fill ``graph.folded``, ``graph.folded_from`` and ``graph.unfolded``."""
    known: dict[fx.Node, Any] = {}
    sources: dict[fx.Node, frozenset[str]] = {}
    with torch.no_grad():
        for node in graph.nodes:
            if node.op == "placeholder" and (value := _known(graph, node)) is not None:
                known[node] = value
                sources[node] = _moving_buffer(graph, node)
            elif node.op in ("call_function", "get_attr") and not is_random(node):
                _fold_node(graph, node, known, sources)


def _known(graph: Graph, node: fx.Node) -> Tensor | None:
    if node.name in graph.parameters:
        return None
    value = graph.inputs.get(node.name)
    if value is not None:
        return None if value.is_floating_point() or value.is_complex() or value.is_meta else value
    return graph.constants.get(node.name)


def _moving_buffer(graph: Graph, node: fx.Node) -> frozenset[str]:
    if node.name in graph.persistent and graph.constants[node.name].is_floating_point():
        return frozenset({graph.buffers[node.name]})
    return frozenset()


def _fold_node(
    graph: Graph, node: fx.Node, known: dict[fx.Node, Any], sources: dict[fx.Node, frozenset[str]]
) -> None:
    arguments = node.all_input_nodes
    if any(source not in known and source.name not in graph.unfolded for source in arguments):
        return
    if any(source.name in graph.unfolded for source in arguments) or _elements(node.meta.get("val")) > LARGEST_FOLDED:
        graph.unfolded.add(node.name)
        return
    known[node] = evaluate(node, known, {}, graph.module, None)
    sources[node] = frozenset().union(*(sources[source] for source in arguments))
    if isinstance(known[node], Tensor):
        graph.folded[node.name] = known[node]
        if sources[node]:
            graph.folded_from[node.name] = sources[node]


def _elements(value: Any) -> int:
    """Elements of the largest tensor; 0 for one whose size depends on data, which the graph knows at run time only."""
    values: Iterable[Any] = value if isinstance(value, (list, tuple)) else (value,)
    counts = [item.numel() for item in values if isinstance(item, Tensor)]
    return max((count for count in counts if isinstance(count, int)), default=0)
