"""Which of the tensors that a module returns are its function.

A module may return, next to what it computes, states on the way there: an encoder's last state, embeddings, pooled
features. They are no outputs in their own right: holding them fixed would forbid every change of basis of the stream
they show. So where a result has heads (entries named ``...logits...``), the entries that these are computed from, and
those inside nested results, are left out and listed. A result without heads counts whole.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from torch import Tensor, fx
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.utils import _pytree as pytree

from symgraph.errors import TraceError

HEAD = "logits"

Path = tuple[str, ...]


def is_continuous(value: object) -> bool:
    """Whether it is a floating-point or complex tensor."""
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())


def returned_nodes(program: ExportedProgram) -> dict[fx.Node, Path]:
    """Every floating-point (or complex) tensor that the module returns, once, with its first path in the result."""
    output = output_node(program.graph_module)
    users = [node for node, spec in zip(output.args[0], program.graph_signature.output_specs, strict=True)
             if spec.kind == OutputKind.USER_OUTPUT]  # fmt: skip
    found: dict[fx.Node, Path] = {}
    for node, path in zip(users, _paths(program.call_spec.out_spec), strict=True):
        if isinstance(node, fx.Node) and is_continuous(node.meta.get("val")):
            found.setdefault(node, path)
    if not found:
        raise TraceError("the module returns no floating-point tensor")
    return found


def choose(found: dict[fx.Node, Path], wanted: Collection[str] | None) -> list[fx.Node]:
    """The outputs among the returned nodes: the entries that are asked for, or those that are no states on the way."""
    if wanted is not None:
        missing = set(wanted) - {path[0] for path in found.values() if path}
        if missing:
            names = dict.fromkeys(path[0] for path in found.values() if path)
            raise TraceError(f"the module returns no tensor {min(missing)!r}; it returns {', '.join(names)}")
        return [node for node, path in found.items() if path and path[0] in wanted]
    heads = [node for node, path in found.items() if path and HEAD in path[0]]
    if not heads:
        return list(found)
    states = _ancestors(heads)
    return [node for node, path in found.items()
            if node in heads or (len(path) == 1 and node not in states)]  # fmt: skip


def keep_only(module: fx.GraphModule, nodes: Sequence[fx.Node]) -> None:
    """Make these nodes the outputs of the graph, and drop what nothing reads."""
    output_node(module).args = (tuple(nodes),)
    module.graph.eliminate_dead_code()


def output_node(module: fx.GraphModule) -> Any:
    """The one node of kind ``output``."""
    return next(iter(module.graph.find_nodes(op="output")))


def _ancestors(nodes: Sequence[fx.Node]) -> set[fx.Node]:
    """Nodes that the given ones are computed from, themselves excluded unless one is computed from another."""
    seen: set[fx.Node] = set()
    pending = [source for node in nodes for source in node.all_input_nodes]
    while pending:
        node = pending.pop()
        if node not in seen:
            seen.add(node)
            pending.extend(node.all_input_nodes)
    return seen


def _paths(spec: pytree.TreeSpec) -> list[Path]:
    """Paths of the leaves in the order in which a decomposed program returns them.

    Decomposition rebuilds the result and flattens it again; a dataclass whose entries were set late changes its order.
    """
    paths = _spec_paths(spec)
    try:
        order = pytree.tree_leaves(pytree.tree_unflatten(list(range(len(paths))), spec))
    except Exception:
        return paths
    if sorted(map(str, order)) != sorted(map(str, range(len(paths)))):
        return paths
    return [paths[index] for index in order]


def _spec_paths(spec: pytree.TreeSpec, prefix: Path = ()) -> list[Path]:
    if spec.is_leaf():
        return [prefix]
    children = spec.children()
    keys = spec.context
    if not isinstance(keys, list) or len(keys) != len(children):
        keys = range(len(children))
    return [path for key, child in zip(keys, children, strict=True) for path in _spec_paths(child, (*prefix, str(key)))]
