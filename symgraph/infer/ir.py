"""The engine's own graph: operators between typed values, with what is constant already evaluated.

It is built once from a traced graph. Assertions are gone, operators with several results have several values, splits are
slices, composites (:mod:`symgraph.rules.composites`) are written out. Later passes rewrite it in place; the traced graph,
on which claims are verified, is never touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from symgraph.frontend.graph import Graph, Origin


@dataclass(eq=False)
class Value:
    """A tensor of the graph. ``tensor`` names the parameter or buffer it is; ``constant`` holds it where it is known.

    ``opaque`` marks a constant whose entries are not at hand: nothing may move along it. ``data`` marks what is read from
    the model's inputs, also where the example's values make it a constant.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    tensor: str = ""
    buffer: bool = False
    constant: Tensor | None = None
    opaque: bool = False
    producer: Op | None = None
    varying: frozenset[int] | None = None
    data: bool = False
    digest: str | None = None

    def __repr__(self) -> str:
        kind = "constant" if self.known else self.tensor or (self.producer.node if self.producer else "input")
        return f"{kind}{list(self.shape)}"

    @property
    def is_float(self) -> bool:
        """Whether it holds real or complex numbers."""
        return self.dtype.is_floating_point or self.dtype.is_complex

    @property
    def known(self) -> bool:
        """Whether it depends on neither parameters nor float inputs."""
        return self.opaque or self.constant is not None


@dataclass(eq=False)
class Op:
    """One operator call: arguments with values in the place of tensors."""

    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: list[Value]
    origin: Origin
    node: str
    data: Any = None

    @property
    def operands(self) -> list[Value]:
        """Values among the arguments, in order."""
        return list(values_in((self.args, self.kwargs)))

    def replace(self, old: Value, new: Value) -> None:
        """Read ``new`` wherever the call reads ``old``."""
        swap: Callable[[Value], Value] = lambda value: new if value is old else value  # noqa: E731
        self.args, self.kwargs = map_values(self.args, swap), map_values(self.kwargs, swap)


def values_in(argument: Any) -> Iterator[Value]:
    """Every value in lists, tuples and dicts, in order."""
    if isinstance(argument, Value):
        yield argument
    elif isinstance(argument, tuple | list | dict):
        for item in argument.values() if isinstance(argument, dict) else argument:
            yield from values_in(item)


def map_values(argument: Any, function: Callable[[Value], Any]) -> Any:
    """The argument with every value in it replaced; lists, tuples and dicts are descended into."""
    if isinstance(argument, Value):
        return function(argument)
    if isinstance(argument, tuple | list):
        return type(argument)(map_values(item, function) for item in argument)
    if isinstance(argument, dict):
        return {key: map_values(item, function) for key, item in argument.items()}
    return argument


@dataclass(eq=False)
class Program:
    """Operators in order of execution; ``inputs`` are float inputs, ``tensors`` parameters and buffers by state name."""

    ops: list[Op] = field(default_factory=list)
    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    tensors: dict[str, Value] = field(default_factory=dict)

    def users(self) -> dict[Value, list[Op]]:
        """Operators that read each value, in order."""
        found: dict[Value, list[Op]] = {}
        for op in self.ops:
            for value in dict.fromkeys(op.operands):
                found.setdefault(value, []).append(op)
        return found

    def prune(self) -> None:
        """Drop operators that no output depends on."""
        alive = set(map(id, self.outputs))
        kept: list[Op] = []
        for op in reversed(self.ops):
            if any(id(value) in alive for value in op.results):
                kept.append(op)
                alive.update(id(value) for value in op.operands)
        self.ops = kept[::-1]

    def substitute(self, replaced: dict[Value, Value]) -> None:
        """Read other values in the place of some, everywhere."""
        if not replaced:
            return

        def final(value: Value) -> Value:
            while value in replaced:
                value = replaced[value]
            return value

        for op in self.ops:
            op.args, op.kwargs = map_values(op.args, final), map_values(op.kwargs, final)
        self.outputs = [final(value) for value in self.outputs]


def build(graph: Graph, untie: bool = False) -> Program:
    """The program of a traced graph; with ``untie`` every name of a shared tensor is a tensor of its own."""
    program = Program()
    values: dict[str, Any] = {}
    sizes = graph.sizes() if graph.symbolic else {}
    for node in graph.nodes:
        if node.op == "placeholder":
            values[node.name] = _placeholder(graph, node, program, untie)
        elif node.op == "call_function":
            values[node.name] = _call(graph, node, program, values, sizes)
            _mark_data(node, values)
    program.outputs = [values[node.name] for node in graph.output_nodes]
    return program


def _placeholder(graph: Graph, node: torch.fx.Node, program: Program, untie: bool) -> Value | None:
    meta = node.meta.get("val")
    if not isinstance(meta, Tensor):
        return None
    shape, dtype, name = tuple(meta.shape), meta.dtype, node.name
    learned = name in graph.parameters or (name in graph.buffers and name in graph.persistent and dtype.is_floating_point)
    if learned:
        canonical = graph.parameters.get(name) or graph.buffers[name]
        state = graph.names.get(name, canonical) if untie else canonical
        if state not in program.tensors:
            program.tensors[state] = Value(shape, dtype, tensor=state, buffer=name not in graph.parameters)
        return program.tensors[state]
    constant = graph.constants.get(name, None if dtype.is_floating_point else graph.inputs.get(name))
    value = Value(shape, dtype, constant=constant, opaque=constant is None and name not in graph.inputs)
    value.data = name in graph.inputs
    if constant is None and name in graph.inputs:
        program.inputs.append(value)
    return value


def _mark_data(node: torch.fx.Node, values: dict[str, Any]) -> None:
    """What is computed from the inputs is data."""
    if any(value.data for each in node.all_input_nodes for value in values_in(values.get(each.name))):
        for value in values_in(values[node.name]):
            value.data = True


def _resized(meta: Any, known: Any) -> Any:
    """Tensors that hold nothing, of the sizes that were seen when the graph ran."""
    if isinstance(meta, Tensor):
        return torch.empty(known, dtype=meta.dtype, device="meta")
    if isinstance(meta, list | tuple):
        return [_resized(each, size) for each, size in zip(meta, known, strict=True)]
    return known


def _call(graph: Graph, node: torch.fx.Node, program: Program, values: dict[str, Any], sizes: dict[str, Any]) -> Any:
    arguments = torch.fx.node.map_arg(node.args, lambda each: values[each.name])
    if node.target.__class__.__name__ == "builtin_function_or_method" and len(arguments) == 2:
        container, index = arguments[0], int(arguments[1])  # type: ignore[arg-type]
        if isinstance(container, list | tuple):
            return container[index]
    meta = _resized(node.meta.get("val"), sizes[node.name]) if node.name in sizes else node.meta.get("val")
    known = graph.folded.get(node.name)
    if known is not None and not graph.folded_from.get(node.name):
        return Value(tuple(known.shape), known.dtype, constant=known)
    if isinstance(meta, Tensor) and node.name in graph.unfolded:
        return Value(tuple(meta.shape), meta.dtype, opaque=True)
    if not isinstance(meta, Tensor | list | tuple):
        return meta
    kwargs = torch.fx.node.map_arg(dict(node.kwargs), lambda each: values[each.name])
    op = make_op(node.target, tuple(arguments), dict(kwargs), meta, graph.origin(node), node.name)
    program.ops.append(op)
    return op.results[0] if isinstance(meta, Tensor) else op.results


def make_op(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], meta: Any, origin: Origin, node: str) -> Op:
    """An operator with fresh results of the shapes and dtypes in ``meta`` (a tensor, or several)."""
    metas = [meta] if isinstance(meta, Tensor) else list(meta)
    results = [Value(tuple(each.shape), each.dtype) if isinstance(each, Tensor) else Value((), torch.float32)
               for each in metas]  # fmt: skip
    op = Op(target, args, kwargs, results, origin, node)
    for value in results:
        value.producer = op
    return op


def activations(op: Op) -> Iterator[Value]:
    """Operands that are not constants."""
    return (value for value in op.operands if not value.known)
