"""Execution of a traced graph in one floating-point dtype.

A model in float32 that computes its softmax in float32 under bfloat16 carries casts; run in float64 they would throw
away what a check of exactness looks at. So every floating-point dtype that stands in the arguments of an operator is
replaced by the dtype of the run, and what an operator makes from its default dtype is made in that one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx

from symgraph.errors import TraceError

if TYPE_CHECKING:
    from symgraph.frontend.graph import Graph

aten = torch.ops.aten

# Which operators read the bits of a tensor, so that their dtype is no cast.
BIT_CASTS = frozenset({aten.view.dtype})

# Operators whose result is whatever the memory held: zeros, so that two runs agree.
UNINITIALISED = frozenset({
    "aten.empty.memory_format", "aten.empty_like.default", "aten.empty_strided.default",
    "aten.new_empty.default", "aten.new_empty_strided.default", "aten.empty_permuted.default",
})  # fmt: skip

# Operators with an epsilon in their schema, under the names that the schemas use.
EPSILON_ARGUMENTS = frozenset({"eps", "epsilon"})

# Under a root, `x + eps` is the epsilon of a norm that was written out.
ROOTS = frozenset({aten.rsqrt.default, aten.sqrt.default})
ADDITIONS = frozenset({aten.add.Tensor, aten.add.Scalar})
LARGEST_EPSILON = 1e-2


def complex_of(dtype: torch.dtype) -> torch.dtype:
    """The complex dtype whose parts are of the given floating-point dtype (at least float32)."""
    return torch.complex128 if dtype == torch.float64 else torch.complex64


def lift(value: Any, dtype: torch.dtype) -> Any:
    """A floating-point tensor or dtype in ``dtype``; anything else unchanged."""
    if isinstance(value, torch.dtype):
        return dtype if value.is_floating_point else complex_of(dtype) if value.is_complex else value
    if isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex()):
        return value.to(lift(value.dtype, dtype))
    if isinstance(value, (list, tuple)):
        return type(value)(lift(item, dtype) for item in value)
    return value


def execute(
    graph: Graph, values: Mapping[str, Tensor], dtype: torch.dtype | None, epsilons: float | None,
    sizes: dict[str, Any] | None = None, watch: Callable[[str, Any], None] | None = None,
) -> list[Any]:  # fmt: skip
    """Values of ``graph.output_nodes`` from those of all placeholders.

    ``sizes`` takes every node's shapes and numbers; ``watch(name, value)`` is told the value of every node.
    """
    environment: dict[fx.Node, Any] = {}
    wanted = set(graph.output_nodes)
    remaining = Counter(source for node in graph.nodes for source in node.all_input_nodes)
    with _default_dtype(dtype), _seeded(graph.module):
        for node in graph.nodes:
            if node.op == "output":
                break
            environment[node] = evaluate(node, environment, values, graph.module, dtype, epsilons)
            if sizes is not None:
                sizes[node.name] = shape_of(environment[node])
            if watch is not None:
                watch(node.name, environment[node])
            for source in node.all_input_nodes:
                remaining[source] -= 1
                if not remaining[source] and source not in wanted:
                    del environment[source]
    return [environment[node] for node in graph.output_nodes]


def shape_of(value: Any) -> Any:
    """Shapes in the place of tensors; numbers are themselves."""
    if isinstance(value, Tensor):
        return tuple(value.shape)
    if isinstance(value, list | tuple):
        return [shape_of(item) for item in value]
    return value


def evaluate(
    node: fx.Node,
    environment: Mapping[fx.Node, Any],
    values: Mapping[str, Tensor],
    module: fx.GraphModule,
    dtype: torch.dtype | None,
    epsilons: float | None = None,
) -> Any:
    """The value of one node from the values of its arguments."""
    if node.op == "placeholder":
        return lift(values[node.name], dtype) if dtype else values[node.name]
    if node.op == "get_attr":
        return _attribute(module, str(node.target))
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda source: environment[source])
    if epsilons is not None:
        args, kwargs = with_epsilon(node, args, kwargs, epsilons)
    target: Callable[..., Any] = node.target  # type: ignore[assignment]
    if str(target) in UNINITIALISED:
        args, kwargs = _lifted(args, kwargs, dtype) if dtype else (args, kwargs)
        return target(*args, **kwargs).zero_()
    target = RESHAPES.get(str(target), target)
    if dtype is None:
        return target(*args, **kwargs)
    if target not in BIT_CASTS:
        args, kwargs = _lifted(args, kwargs, dtype)
    return lift(REPLACEMENTS.get(str(target), target)(*args, **kwargs), dtype)


def grouped_mm(x: Tensor, w: Tensor, ends: Tensor, *rest: Any, bias: Tensor | None = None, **options: Any) -> Tensor:
    """``x[s, k], w[e, k, n], ends[e] -> y[s, n]``: rows ``ends[e-1] .. ends[e]`` of x times ``w[e]``, the rest zero.

    The kernels of this operator take no float64 and have no forward-mode derivative; this has both.
    """
    if bias is not None or x.dim() != 2 or w.dim() != 3:
        raise TraceError("a grouped product with a bias, or of ranks other than 2 and 3, runs in its own dtype only")
    if not torch._C._functorch.is_functorch_wrapped_tensor(ends):
        bounds = [0, *ends.tolist()]
        parts = [x[start:end] @ w[index] for index, (start, end) in enumerate(pairwise(bounds))]
        return torch.cat([*parts, x.new_zeros(x.shape[0] - bounds[-1], w.shape[2])])
    # under a transform the bounds are no numbers: every product is taken, and masked
    rows = torch.arange(x.shape[0], device=x.device)
    after = rows[:, None] < ends
    before = torch.cat((torch.zeros_like(after[:, :1]), after[:, :-1]), 1)
    mine = (after & ~before).to(x.dtype)
    return sum((mine[:, index, None] * (x @ w[index]) for index in range(w.shape[0])), x.new_zeros(()))


def batch_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, var: Tensor, momentum: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Inference with stored statistics [c], differentiable with respect to them too, which the kernel is not."""
    shape = [1, -1] + [1] * (x.dim() - 2)
    result = (x - mean.reshape(shape)) * torch.rsqrt(var + eps).reshape(shape)
    result = result if weight is None else result * weight.reshape(shape)
    result = result if bias is None else result + bias.reshape(shape)
    return result, x.new_empty(0), x.new_empty(0)


# Tensors may have other strides than the traced ones: transformed ones, and where a copy left the graph.
RESHAPES: dict[str, Callable[..., Any]] = {"aten.view.default": torch.reshape, "aten._unsafe_view.default": torch.reshape}

# Operators that are run as something else when the dtype is not the traced one.
REPLACEMENTS: dict[str, Callable[..., Any]] = {
    "aten._native_batch_norm_legit_no_training.default": batch_norm,
    "aten._grouped_mm.default": grouped_mm,
    "transformers.grouped_mm_fallback.default": grouped_mm,
}


def with_epsilon(node: fx.Node, args: Any, kwargs: Any, epsilon: float) -> tuple[Any, Any]:
    """Arguments in which the epsilon of a norm (by its schema, or added under a root) is the given one; zero stays zero."""
    schema = getattr(node.target, "_schema", None)
    for index, argument in enumerate(schema.arguments if schema is not None and "norm" in schema.name else ()):
        if argument.name in EPSILON_ARGUMENTS:
            if index < len(args):
                return (args if args[index] == 0 else (*args[:index], epsilon, *args[index + 1 :])), kwargs
            return args, {**kwargs, argument.name: epsilon}
    if is_written_out_epsilon(node):
        return (args[0], epsilon, *args[2:]), kwargs
    return args, kwargs


def is_written_out_epsilon(node: fx.Node) -> bool:
    """Whether the node is ``x + eps`` that only roots read."""
    if node.target not in ADDITIONS or len(node.args) < 2 or not isinstance(node.args[1], float):
        return False
    return 0 < node.args[1] <= LARGEST_EPSILON and bool(node.users) and all(_is_root(user) for user in node.users)


def _is_root(node: fx.Node) -> bool:
    if node.target is aten.pow.Tensor_Scalar:
        return node.args[1] in (0.5, -0.5)
    return node.target in ROOTS


def _lifted(args: Any, kwargs: Any, dtype: torch.dtype) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (
        tuple(_lift_argument(value, dtype) for value in args),
        {name: _lift_argument(value, dtype) for name, value in kwargs.items()},
    )


def _lift_argument(value: Any, dtype: torch.dtype) -> Any:
    """Dtypes are lifted; Python floats are kept within the range of a narrow dtype (masks use the least float32)."""
    if isinstance(value, float) and dtype == torch.float16:
        limit = torch.finfo(dtype).max
        return max(-limit, min(limit, value)) if abs(value) != float("inf") else value
    return lift(value, dtype) if isinstance(value, torch.dtype) else value


def _attribute(module: Any, path: str) -> Any:
    for name in path.split("."):
        module = getattr(module, name)
    return module


def is_random(node: fx.Node) -> bool:
    """Whether two calls of the operator differ."""
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


@contextmanager
def _default_dtype(dtype: torch.dtype | None) -> Iterator[None]:
    """Operators that choose a floating-point dtype themselves choose this one."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype or before)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def _seeded(module: fx.GraphModule) -> Iterator[None]:
    """A fixed seed, where the graph draws random numbers at all."""
    if not any(is_random(node) for node in module.graph.nodes):
        yield
        return
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield
