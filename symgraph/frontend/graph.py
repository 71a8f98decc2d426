"""The traced graph: what every later stage knows about a module.

``Graph.module`` is a functional ``torch.fx.GraphModule`` of ATen operators in which parameters, buffers, lifted
constants and inputs are all placeholders. For ``nn.Linear(3, 2)`` called on ``x[4, 3]``:

    p_weight, p_bias, input            placeholders; ``parameters`` maps p_weight -> "weight", p_bias -> "bias"
    linear = aten.linear.default(input, p_weight, p_bias)
    output (linear,)                   ``output_nodes`` is [linear]

``Graph.run`` executes it with every floating-point tensor, and every cast, lifted to one dtype.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from symgraph.errors import CheckpointError, TraceError
from symgraph.frontend.execute import execute

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
_TORCH = os.path.dirname(torch.__file__) + os.sep


@dataclass(frozen=True)
class Origin:
    """Where a node comes from: the operator, the user's source line, the path of the module it ran in."""

    operator: str
    source: str = ""
    module: str = ""

    def __str__(self) -> str:
        place = f" at {self.source}" if self.source else ""
        return f"{self.operator}{place}" + (f" in {self.module}" if self.module else "")


@dataclass
class Graph:
    """A decomposed graph with the names, ties, values and example of its module.

    ``parameters`` and ``buffers`` map a placeholder's name to the *canonical* state name, the first of those that share
    one storage; ``names`` maps it to its own; ``persistent`` has the
    placeholders of buffers that a state dict holds. ``state`` refers to the module's tensors, it does not copy them.
    ``folded`` holds the value of every node that depends on neither parameters nor floating-point inputs;
    ``folded_from`` names, for those where there are any, the persistent floating-point buffers that the value reads;
    ``unfolded`` the nodes that are constant too, but too large to hold. ``dropped_outputs`` are paths of tensors that
    the module returns and that are states on the way to ``output_nodes``.
    """

    module: fx.GraphModule
    parameters: dict[str, str]
    buffers: dict[str, str]
    aliases: dict[str, tuple[str, ...]]
    constants: dict[str, Tensor]
    inputs: dict[str, Tensor]
    state: dict[str, Tensor] | None
    output_nodes: list[fx.Node]
    identity: dict[str, Any]
    folded: dict[str, Tensor] = field(default_factory=dict)
    folded_from: dict[str, frozenset[str]] = field(default_factory=dict)
    unfolded: set[str] = field(default_factory=set)
    names: dict[str, str] = field(default_factory=dict)
    persistent: set[str] = field(default_factory=set)
    dropped_outputs: tuple[str, ...] = ()

    @property
    def nodes(self) -> Iterator[fx.Node]:
        """All nodes in order of execution."""
        return iter(self.module.graph.nodes)

    def origin(self, node: fx.Node) -> Origin:
        """Operator, innermost source line in the package of its module, and module path of a node."""
        modules = list((node.meta.get("nn_module_stack") or {}).values())
        path = modules[-1][0] if modules else ""
        homes = (_home(str(kind).partition(".")[0]) for _, kind in reversed(modules))
        home = next((home for home in homes if home and home != _TORCH), None)
        return Origin(str(node.target), _source(node.meta.get("stack_trace") or "", home), path)

    def run(
        self,
        state_dict: Mapping[str, Tensor] | None = None,
        inputs: Mapping[str, Tensor] | None = None,
        dtype: torch.dtype | None = torch.float64,
        *,
        epsilons: float | None = None,
        untie: bool = False,
        watch: Callable[[str, Any], None] | None = None,
    ) -> list[Tensor]:
        """The tensors of ``output_nodes``, with all floating-point values and casts in ``dtype`` (None: as traced).

        ``state_dict`` uses canonical names or aliases; with ``untie`` an alias that it holds is a tensor of its own.
        ``inputs`` replaces example inputs by placeholder name, in the shapes of the example. ``epsilons`` replaces the
        epsilon of every norm. ``watch(name, value)`` is told the value of every node on the way. Differentiable in the
        state and the inputs.
        """
        return execute(self, self._bindings(state_dict, inputs, untie), dtype, epsilons, watch=watch)

    @property
    def symbolic(self) -> bool:
        """Whether sizes of some tensors are known only when the graph runs."""
        found = (leaf for node in self.nodes for leaf in pytree.tree_leaves(node.meta.get("val")))
        return any(_is_symbolic(leaf) for leaf in found)

    def sizes(self) -> dict[str, Any]:
        """Shapes (of several results: a list) and numbers of every node on the example; TraceError without weights."""
        if self.state is None:
            raise TraceError("sizes in this model depend on its activations: they are known with weights only")
        found: dict[str, Any] = {}
        execute(self, self._bindings(None, None, False), None, None, found)
        return found

    def _bindings(
        self, state_dict: Mapping[str, Tensor] | None, inputs: Mapping[str, Tensor] | None, untie: bool
    ) -> dict[str, Tensor]:
        unknown = set(inputs or {}) - set(self.inputs)
        if unknown:
            raise TraceError(f"the graph has no input {min(unknown)!r}; it has {', '.join(self.inputs)}")
        values = {**self.constants, **self.inputs, **(inputs or {})}
        given = self.state if state_dict is None else state_dict
        if given is None:
            raise CheckpointError("the module was traced without weights: pass a state_dict")
        for node in self.module.graph.find_nodes(op="placeholder"):
            if node.name in self.parameters or node.name in self.buffers:
                values[node.name] = self._state_value(node, given, values.get(node.name), untie)
            elif node.name not in values:
                raise TraceError(f"the value of {node.name!r} is not known: it stood on the meta device when traced")
        return values

    def _state_value(self, node: fx.Node, given: Mapping[str, Tensor], default: Tensor | None, untie: bool) -> Tensor:
        canonical = self.parameters.get(node.name) or self.buffers[node.name]
        own = (self.names.get(node.name, canonical),) if untie else ()
        candidates = (*own, canonical, *self.aliases.get(canonical, ()))
        value = next((given[name] for name in candidates if name in given), default)
        if value is None:
            raise CheckpointError(f"tensor {canonical!r} is missing; the model needs {len(self.parameters)} parameters")
        expected = node.meta["val"].shape
        if value.shape != expected:
            raise CheckpointError(f"tensor {canonical!r} has shape {tuple(value.shape)}, not {tuple(expected)}")
        return value


def _is_symbolic(value: Any) -> bool:
    if isinstance(value, Tensor):
        return any(not isinstance(size, int) for size in value.shape)
    return isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool)


@cache
def _home(package: str) -> str | None:
    """The directory of an imported package, or the file of a module that stands alone."""
    file = getattr(sys.modules.get(package), "__file__", None)
    if file is None:
        return None
    return os.path.dirname(file) + os.sep if os.path.basename(file) == "__init__.py" else str(file)


def _source(stack: str, home: str | None) -> str:
    """``file.py:31`` of the innermost frame at home; else outside of torch; else of the innermost one.

    The innermost frame outside of torch may be that of a library that wraps the functions of another.
    """
    frames = [(match["file"], match["line"]) for match in _FRAME.finditer(stack)]
    own = [frame for frame in frames if home and frame[0].startswith(home)]
    users = own or [frame for frame in frames if not frame[0].startswith(_TORCH)] or frames
    return f"{os.path.basename(users[-1][0])}:{users[-1][1]}" if users else ""
