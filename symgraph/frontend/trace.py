"""From a module and one example call to a :class:`Graph`, by ``torch.export``."""

from __future__ import annotations

import hashlib
import io
import json
import logging
import operator
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree

from symgraph.errors import TraceError
from symgraph.frontend.fold import fold
from symgraph.frontend.graph import Graph
from symgraph.frontend.meta import as_fake, untied
from symgraph.frontend.outputs import choose, is_continuous, keep_only, returned_nodes
from symgraph.frontend.simplify import simplify

STATE_KINDS = {InputKind.PARAMETER: "parameters", InputKind.BUFFER: "buffers"}

# Entries of a configuration that say who wrote it, not what the model is.
NO_SETTING = frozenset({"transformers_version", "_name_or_path"})

# Operators that may write to running statistics though their schemas do not say so.
WRITERS = frozenset({torch.ops.aten.batch_norm.default, torch.ops.aten.instance_norm.default})

# Relative error that an exact graph stays below when run in the dtype of the module.
TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-4}
LOW_PRECISION_TOLERANCE = 5e-2


def trace(
    module: nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    outputs: Sequence[str] | None = None,
) -> Graph:
    """The functional graph of ATen operators that ``module(*args, **kwargs)`` runs, checked against the module.

    The module is traced in eval mode, without gradients and without caches, and left as it was. It may stand on the
    meta device (the example need not): then nothing is allocated, and nothing can be checked. A module whose graph
    differs from it, or that cannot be exported, is tried once more with plainly written attention where it offers that.

    ``outputs`` names the entries of the result that count as outputs; by default :mod:`symgraph.frontend.outputs`
    chooses.
    """
    args, kwargs, identity = tuple(args), dict(kwargs or {}), _identity(module)
    with torch.no_grad(), _prepared(module):
        try:
            graph = _trace_once(module, args, kwargs, outputs)
        except TraceError:
            if not _has_other_attention(module):
                raise
            with _eager_attention(module):
                graph = _trace_once(module, args, kwargs, outputs)
    graph.identity = identity
    return graph


def _trace_once(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], outputs: Sequence[str] | None
) -> Graph:
    program = _export(module, args, kwargs)
    graph = _graph(module, program, args, kwargs)
    returned = returned_nodes(program)
    graph.output_nodes = list(returned)
    simplify(graph)
    if graph.state is not None:
        _check(graph, module, args, kwargs)
    graph.output_nodes = choose(returned, outputs)
    graph.dropped_outputs = tuple(".".join(path) for node, path in returned.items() if node not in graph.output_nodes)
    keep_only(graph.module, graph.output_nodes)
    fold(graph)
    return graph


def _export(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ExportedProgram:
    with _quiet(), untied(module), as_fake(module, args, kwargs) as (args, kwargs):
        try:
            program = torch.export.export(module, args, kwargs, strict=False)
            _refuse_caches(program.call_spec.out_spec)
            if not _is_functional(program.graph):
                program = program.run_decompositions({})
            return program
        except TraceError:
            raise
        except Exception as error:
            raise TraceError(_export_message(module, error)) from error


def _is_functional(graph: fx.Graph) -> bool:
    """Whether nothing is written in place and every node is an operator: then tracing anew would change no value."""
    if any(node.op in ("get_attr", "call_module") for node in graph.nodes):
        return False
    targets = {node.target for node in graph.nodes if node.op == "call_function"} - {operator.getitem}
    pure = (isinstance(target, torch._ops.OpOverload) and not target._schema.is_mutable for target in targets)
    return all(pure) and not targets & WRITERS


@contextmanager
def _quiet() -> Iterator[None]:
    """Export prints half a graph and logs where it stands when it fails; the error's first line says what matters."""
    level = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


def _export_message(module: nn.Module, error: Exception) -> str:
    text = str(error)
    if "Cache" in text and "pytree" in text:
        return _CACHE_MESSAGE
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    return f"torch.export cannot trace {type(module).__name__}: {type(error).__name__}: {lines[0]}"


_CACHE_MESSAGE = "the module returns a cache object, which is no tensor: call it with use_cache=False"


def _refuse_caches(spec: pytree.TreeSpec) -> None:
    utilities = sys.modules.get("transformers.cache_utils")
    cache = getattr(utilities, "Cache", None)
    pending = [spec]
    while pending:
        tree = pending.pop()
        if cache is not None and isinstance(tree.type, type) and issubclass(tree.type, cache):
            raise TraceError(_CACHE_MESSAGE)
        pending.extend(tree.children())


def _graph(module: nn.Module, program: ExportedProgram, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Graph:
    canonical, aliases = ties(module)
    graph = Graph(
        module=program.graph_module, parameters={}, buffers={}, aliases=aliases, constants={}, inputs={},
        state=_state(module, canonical), output_nodes=[], identity={},
    )  # fmt: skip
    buffers = dict(module.named_buffers(remove_duplicate=False))
    examples = iter(pytree.tree_leaves((args, kwargs)))
    for spec in program.graph_signature.input_specs:
        name = spec.arg.name
        if spec.kind == InputKind.USER_INPUT:
            value = next(examples)
            if isinstance(value, Tensor):
                graph.inputs[name] = value
            else:
                _erase_placeholder(graph.module, name)
        elif spec.kind in STATE_KINDS:
            target = str(spec.target)
            graph.names[name] = target
            getattr(graph, STATE_KINDS[spec.kind])[name] = canonical.get(target, target)
            if spec.persistent:
                graph.persistent.add(name)
            if spec.kind == InputKind.BUFFER and not buffers[target].is_meta:
                graph.constants[name] = buffers[target].detach()
        elif isinstance(constant := program.constants.get(str(spec.target)), Tensor) and not _is_unreal(constant):
            graph.constants[name] = constant.detach()
    return graph


def _is_unreal(value: Tensor) -> bool:
    return value.is_meta or isinstance(value, torch._subclasses.FakeTensor)


def _erase_placeholder(module: fx.GraphModule, name: str) -> None:
    """Export has specialised on the value; nothing reads the placeholder."""
    for node in module.graph.find_nodes(op="placeholder"):
        if node.name == name and not node.users:
            module.graph.erase_node(node)


def ties(module: nn.Module) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    """Canonical name of every parameter and buffer, and the other names of each canonical one.

    The first name in the module's own order is canonical. Two names are tied when they are one object, or the same
    window of one storage.
    """
    first: dict[object, str] = {}
    canonical: dict[str, str] = {}
    aliases: dict[str, tuple[str, ...]] = {}
    for named in (module.named_parameters(remove_duplicate=False), module.named_buffers(remove_duplicate=False)):
        for name, value in named:
            leader = first.setdefault(_storage_key(value), name)
            canonical[name] = leader
            if leader != name:
                aliases[leader] = (*aliases.get(leader, ()), name)
    return canonical, aliases


def _storage_key(value: Tensor) -> object:
    if value.is_meta or value.numel() == 0:
        return id(value)
    return value.data_ptr(), tuple(value.shape), value.stride(), value.dtype


def _state(module: nn.Module, canonical: Mapping[str, str]) -> dict[str, Tensor] | None:
    """Floating-point parameters and buffers by canonical name; None when a parameter has no value."""
    if any(parameter.is_meta for parameter in module.parameters()):
        return None
    named = [*module.named_parameters(), *module.named_buffers()]
    return {name: value.detach() for name, value in named
            if not value.is_meta and is_continuous(value) and canonical[name] == name}  # fmt: skip


def _identity(module: nn.Module) -> dict[str, Any]:
    to_dict = getattr(getattr(module, "config", None), "to_diff_dict", None)
    shapes = [(name, tuple(value.shape)) for name, value in module.named_parameters(remove_duplicate=False)]
    # the settings that differ from the defaults, but for the release that wrote them
    settings = {name: value for name, value in to_dict().items() if name not in NO_SETTING} if callable(to_dict) else None
    text = repr(shapes) if settings is None else json.dumps(settings, sort_keys=True, default=str)
    versions = {"torch": str(torch.__version__)}
    if transformers := sys.modules.get("transformers"):
        versions["transformers"] = str(transformers.__version__)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return {"class": type(module).__qualname__, "config_digest": digest, "versions": versions}


def _check(graph: Graph, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Compare the graph with the module on the example, in the module's own dtypes.

    Outputs are matched by value: the order of entries in a nested result may differ.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        leaves = [leaf for leaf in pytree.tree_leaves(module(*args, **kwargs)) if is_continuous(leaf)]
    for node, actual in zip(graph.output_nodes, graph.run(dtype=None), strict=True):
        error = min((relative_error(actual, leaf) for leaf in leaves), default=float("inf"))
        if not error <= TOLERANCE.get(actual.dtype, LOW_PRECISION_TOLERANCE):
            amount = f"differs by {error:.1e}" if error < float("inf") else "has another shape"
            raise TraceError(f"the exported graph is not the module: its output {node.name!r} {amount}")


def relative_error(actual: Tensor, expected: Tensor) -> float:
    """Largest difference over the largest finite magnitude; infinite where one is finite and the other is not."""
    if actual.shape != expected.shape:
        return float("inf")
    if expected.numel() == 0:
        return 0.0
    finite = expected.isfinite()
    if not torch.equal(finite, actual.isfinite()):
        return float("inf")
    wide = torch.complex128 if expected.is_complex() else torch.float64
    a, b = actual[finite].to(wide), expected[finite].to(wide)
    if not b.numel():
        return 0.0
    scale = float(b.abs().max()) or 1.0
    return float((a - b).abs().max()) / scale


@contextmanager
def _prepared(module: nn.Module) -> Iterator[None]:
    """Eval mode, and caches off in every configuration that the module holds."""
    modes = [(part, part.training) for part in module.modules()]
    configurations = [config for config in _configurations(module) if getattr(config, "use_cache", False)]
    try:
        module.eval()
        for config in configurations:
            config.use_cache = False
        yield
    finally:
        for config in configurations:
            config.use_cache = True
        for part, mode in modes:
            part.training = mode


def _configurations(module: nn.Module) -> list[Any]:
    found = {id(config): config for part in module.modules() if (config := getattr(part, "config", None)) is not None}
    return list(found.values())


def _has_other_attention(module: nn.Module) -> bool:
    current = getattr(getattr(module, "config", None), "_attn_implementation", None)
    return hasattr(module, "set_attn_implementation") and current not in (None, "eager")


@contextmanager
def _eager_attention(module: Any) -> Iterator[None]:
    before = module.config._attn_implementation
    with ExitStack() as stack:
        stack.callback(module.set_attn_implementation, before)
        module.set_attn_implementation("eager")
        yield
