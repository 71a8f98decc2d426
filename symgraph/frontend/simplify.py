"""Operators that compute nothing leave the graph, and a cast is written in one way."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from symgraph.frontend.graph import Graph

aten = torch.ops.aten

_ASSERTIONS = ("_assert", "sym_constrain", "_functional_assert", "_functional_sym_constrain")

# Operators that return their first argument where shape and dtype stay the same.
_COPIES = {
    aten.alias, aten.clone, aten.contiguous, aten.detach, aten.lift_fresh, aten.lift_fresh_copy, aten.to, aten._to_copy,
    aten.type_as, aten.expand, aten.expand_as, aten.view_as, aten.reshape, aten.reshape_as, aten.flatten, aten.unflatten,
}  # fmt: skip
_VIEW = aten.view.default
_CASTS = {aten.to, aten.type_as}


def simplify(graph: Graph) -> None:
    """Erase operators that only check or copy; what is returned stays a node of its own."""
    nodes = graph.module.graph
    for node in reversed(list(graph.nodes)):
        if node.op == "call_function" and not node.users and _is_assertion(node):
            nodes.erase_node(node)
    for node in list(graph.nodes):
        source = node.args[0] if node.op == "call_function" and node.args else None
        if not isinstance(source, fx.Node) or not isinstance(source.meta.get("val"), Tensor):
            continue
        if _copies(node, source.meta["val"]) and node not in graph.output_nodes:
            node.replace_all_uses_with(source)
            nodes.erase_node(node)
        elif _packet(node) in _CASTS:
            node.target, node.args = aten._to_copy.default, (source,)
            node.kwargs = {"dtype": node.meta["val"].dtype}


def _packet(node: fx.Node) -> Any:
    return getattr(node.target, "overloadpacket", None)


def _copies(node: fx.Node, source: Tensor) -> bool:
    value = node.meta.get("val")
    if not isinstance(value, Tensor) or value.dtype != source.dtype or value.shape != source.shape:
        return False
    if node.target is aten.dropout.default:
        return not node.args[2]
    return node.target is _VIEW or _packet(node) in _COPIES


def _is_assertion(node: fx.Node) -> bool:
    name = getattr(getattr(node.target, "_schema", None), "name", str(node.target))
    return str(name).split("::")[-1].startswith(_ASSERTIONS)
