"""Rewrites of the program, each of which leaves its function as it is.

They bring programs that say the same in different ways to the form in which the rules see the law: a split is slices, a
norm is its definition, a sum of squares is a contraction of a tensor with itself, a slice is taken before the view that
hides it, and a broadcast is left to the operator that broadcasts anyway.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from symgraph.infer.ir import Op, Program, Value, make_op, map_values
from symgraph.rules import COMPOSITES

aten = torch.ops.aten
Inlined = Callable[[Any, tuple[Any, ...], dict[str, Any]], torch.fx.GraphModule]


def normalize(program: Program) -> None:
    """All rewrites, in order; what nothing reads any more is dropped."""
    for rewrite in (inline_composites, split_to_slices, slices_before_views, squares, broadcasts):
        rewrite(program)
        program.prune()


def emit(target: Any, args: tuple[Any, ...], shape: tuple[int, ...], like: Op, dtype: torch.dtype | None = None) -> Op:
    """A new operator of one result that stands where ``like`` stood."""
    op = Op(target, args, {}, [Value(shape, dtype or like.results[0].dtype)], like.origin, like.node)
    op.results[0].producer = op
    return op


# --- composites -------------------------------------------------------------------------------------------------------


def _signature(argument: Any) -> Any:
    if isinstance(argument, Value):
        return ("tensor", argument.shape, argument.dtype)
    if isinstance(argument, tuple | list):
        return tuple(_signature(item) for item in argument)
    return repr(argument)


def _write_out(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.fx.GraphModule:
    """The definition as a graph of simpler operators, traced with tensors of the same shapes that hold nothing."""
    tensors: list[Value] = []
    map_values((args, kwargs), tensors.append)

    def on_tensors(*given: Tensor) -> Any:
        rest = iter(given)
        return function(*map_values(args, lambda _: next(rest)), **map_values(kwargs, lambda _: next(rest)))

    fakes = [torch.empty(value.shape, dtype=value.dtype, device="meta") for value in tensors]
    with torch.no_grad():
        return make_fx(on_tensors, tracing_mode="fake", pre_dispatch=True)(*fakes)


def inline_composites(program: Program) -> None:
    """Replace operators that are defined by simpler ones; calls of the same shapes are traced once."""
    traced: dict[Any, torch.fx.GraphModule] = {}
    replaced: dict[Value, Value] = {}
    pending, done = list(reversed(program.ops)), []
    while pending:
        op = pending.pop()
        function = COMPOSITES.get(op.target)
        if function is None:
            done.append(op)
            continue
        key = (op.target, _signature(op.args), _signature(tuple(sorted(op.kwargs.items()))))
        if key not in traced:
            traced[key] = _write_out(function, op.args, op.kwargs)
        pending.extend(reversed(_inline(traced[key], op, replaced)))
    program.ops = done
    program.substitute(replaced)


def _inline(definition: torch.fx.GraphModule, op: Op, replaced: dict[Value, Value]) -> list[Op]:
    values: dict[str, Any] = {}
    arguments = iter(op.operands)
    ops: list[Op] = []
    for node in definition.graph.nodes:
        if node.op == "placeholder":
            values[node.name] = next(arguments)
        elif node.op == "output":
            results = node.args[0] if isinstance(node.args[0], tuple | list) else [node.args[0]]
            replaced.update({old: values[new.name] for old, new in zip(op.results, results, strict=False)})
        elif node.target is operator.getitem:
            values[node.name] = values[node.args[0].name][node.args[1]]
        else:
            values[node.name] = _inlined_call(node, op, values, ops)
    return ops


def _inlined_call(node: torch.fx.Node, op: Op, values: dict[str, Any], ops: list[Op]) -> Any:
    args = torch.fx.node.map_arg(node.args, lambda each: values[each.name])
    kwargs = torch.fx.node.map_arg(dict(node.kwargs), lambda each: values[each.name])
    new = make_op(node.target, tuple(args), dict(kwargs), node.meta["val"], op.origin, op.node)
    if (new.operands and all(value.constant is not None for value in new.operands)) or not new.operands:
        return _evaluated(new)
    ops.append(new)
    return new.results[0] if isinstance(node.meta["val"], Tensor) else new.results


def _evaluated(op: Op) -> Value:
    kwargs = {key: torch.device("cpu") if key == "device" else item for key, item in op.kwargs.items()}
    read = lambda value: value.constant  # noqa: E731
    result = op.target(*map_values(op.args, read), **map_values(kwargs, read))
    return Value(tuple(result.shape), result.dtype, constant=result)


# --- splits and slices ------------------------------------------------------------------------------------------------

_SPLITS = {
    aten.split.Tensor, aten.split_with_sizes.default, aten.chunk.default, aten.unbind.int, aten.tensor_split.indices,
    aten.tensor_split.sections, aten.split.sizes, aten.unsafe_split.Tensor, aten.unsafe_chunk.default,
}  # fmt: skip


def split_to_slices(program: Program) -> None:
    """``split``, ``chunk``, ``unbind``, ``select`` and ``narrow`` become slices, with a view where an axis goes."""
    done: list[Op] = []
    replaced: dict[Value, Value] = {}
    for op in program.ops:
        if op.target in _SPLITS:
            _slice_all(op, done, replaced)
        elif op.target in (aten.select.int, aten.narrow.default):
            _slice_one(op, done, replaced)
        else:
            done.append(op)
    program.ops = done
    program.substitute(replaced)


def _cut(source: Value, axis: int, start: int, stop: int, result: Value, op: Op, done: list[Op]) -> Value:
    shape = (*source.shape[:axis], stop - start, *source.shape[axis + 1 :])
    cut = emit(aten.slice.Tensor, (source, axis, start, stop), shape, op, source.dtype)
    done.append(cut)
    if shape == result.shape:
        return cut.results[0]
    view = emit(aten.view.default, (cut.results[0], list(result.shape)), result.shape, op, source.dtype)
    done.append(view)
    return view.results[0]


def _slice_all(op: Op, done: list[Op], replaced: dict[Value, Value]) -> None:
    source: Value = op.args[0]
    unbind = op.target is aten.unbind.int
    position = 1 if unbind else 2
    dim = op.args[position] if len(op.args) > position else op.kwargs.get("dim", 0)
    axis, start = dim % len(source.shape), 0
    for result in op.results:
        stop = start + (1 if unbind else result.shape[axis])
        replaced[result] = _cut(source, axis, start, stop, result, op, done)
        start = stop


def _slice_one(op: Op, done: list[Op], replaced: dict[Value, Value]) -> None:
    source: Value = op.args[0]
    axis = op.args[1] % len(source.shape)
    length = op.args[3] if op.target is aten.narrow.default else 1
    start = op.args[2] % source.shape[axis] if op.args[2] < 0 else op.args[2]
    replaced[op.results[0]] = _cut(source, axis, start, start + length, op.results[0], op, done)


_VIEWS = {
    aten.view.default, aten.reshape.default, aten._unsafe_view.default, aten.unflatten.int, aten.unsqueeze.default,
    aten.squeeze.dim, aten.squeeze.dims, aten.squeeze.default, aten.flatten.using_ints,
}  # fmt: skip
_PERMUTATIONS = {aten.permute.default, aten.transpose.int}
_COPIES = {aten.clone.default, aten.contiguous.default, aten.alias.default, aten._to_copy.default}


def slices_before_views(program: Program) -> None:
    """A slice of a factor is a slice of the product of the factor with all that varies faster.

    ``view(x, [b, 3, h, d])[:, 0]`` is ``view(x[:, :h*d], [b, 1, h, d])``: packed projections become direct sums, each part
    with index spaces of its own.
    """
    done: list[Op] = []
    replaced: dict[Value, Value] = {}
    for op in program.ops:
        moved = _before(op, done) if op.target is aten.slice.Tensor else None
        if moved is None:
            done.append(op)
        else:
            replaced[op.results[0]] = moved
    program.ops = done
    program.substitute(replaced)


def _bounds(op: Op) -> tuple[Value, int, int, int] | None:
    """Source, axis, start and stop of a slice with step one."""
    source: Value = op.args[0]
    axis = (op.args[1] if len(op.args) > 1 else 0) % len(source.shape)
    given = [op.args[index] if len(op.args) > index else None for index in (2, 3)]
    start, stop, _ = slice(*given).indices(source.shape[axis])
    return None if len(op.args) > 4 and op.args[4] != 1 else (source, axis, start, stop)


def _before(op: Op, done: list[Op]) -> Value | None:
    bounds = _bounds(op)
    if bounds is None or bounds[2:] == (0, bounds[0].shape[bounds[1]]):
        return bounds and bounds[0]
    created: list[Op] = []
    moved = _pull(*bounds, op, created)
    if moved is not None:
        done.extend(created)
    return moved


def _pull(source: Value, axis: int, start: int, stop: int, op: Op, created: list[Op]) -> Value | None:
    """The slice taken above the view it was taken of; None where there is no such view."""
    producer = source.producer
    if producer is None or producer.results[0] is not source:
        return None
    if producer.target in _PERMUTATIONS:
        return _pull_permutation(source, axis, start, stop, op, created)
    if producer.target in _COPIES:
        return _pull(producer.args[0], axis, start, stop, op, created)
    if producer.target in _VIEWS:
        return _pull_view(source, axis, start, stop, op, created)
    return None


def _pull_permutation(source: Value, axis: int, start: int, stop: int, op: Op, created: list[Op]) -> Value | None:
    producer = source.producer
    assert producer is not None
    rank = len(source.shape)
    order = list(range(rank))
    if producer.target is aten.permute.default:
        order = [each % rank for each in producer.args[1]]
    else:
        first, second = producer.args[1] % rank, producer.args[2] % rank
        order[first], order[second] = second, first
    inner = _pull(producer.args[0], order[axis], start, stop, op, created)
    if inner is None:
        return None
    created.append(emit(aten.permute.default, (inner, order), tuple(inner.shape[each] for each in order), op))
    return created[-1].results[0]


def _faster(before: tuple[int, ...], after: tuple[int, ...], axis: int) -> int:
    """How many indices vary faster than ``axis`` of ``after`` within the axis of ``before`` that it was split from."""
    total = 1
    for size in after[axis + 1 :]:
        total *= size
    inner = 1
    for size in reversed(before):
        if inner * size > total:
            break
        inner *= size
    return total // inner if total % inner == 0 else 1


def _pull_view(source: Value, axis: int, start: int, stop: int, op: Op, created: list[Op]) -> Value | None:
    producer = source.producer
    assert producer is not None
    base: Value = producer.args[0]
    faster = _faster(base.shape, source.shape, axis)
    if faster == 1:
        return _pull_further(base, source, axis, start, stop, op, created)
    end, product = axis + 1, 1
    while product < faster and end < len(source.shape):
        product *= source.shape[end]
        end += 1
    if product != faster:
        return None
    merged = (*source.shape[:axis], source.shape[axis] * faster, *source.shape[end:])
    view = emit(aten.view.default, (base, list(merged)), merged, op, source.dtype)
    cut_shape = (*merged[:axis], (stop - start) * faster, *merged[axis + 1 :])
    cut = emit(aten.slice.Tensor, (view.results[0], axis, start * faster, stop * faster), cut_shape, op, source.dtype)
    final = (*source.shape[:axis], stop - start, *source.shape[axis + 1 :])
    back = emit(aten.view.default, (cut.results[0], list(final)), final, op, source.dtype)
    created += [view, cut, back]
    return back.results[0]


def _pull_further(
    base: Value, source: Value, axis: int, start: int, stop: int, op: Op, created: list[Op]
) -> Value | None:
    """Past a view that keeps the axis whole, if there is one further up that hides it."""
    suffix = prod(source.shape[axis + 1 :])
    same = [index for index, size in enumerate(base.shape)
            if size == source.shape[axis] and prod(base.shape[index + 1 :]) == suffix]  # fmt: skip
    moved = _pull(base, same[0], start, stop, op, created) if same else None
    if moved is None:
        return None
    shape = (*source.shape[:axis], stop - start, *source.shape[axis + 1 :])
    created.append(emit(aten.view.default, (moved, list(shape)), shape, op, source.dtype))
    return created[-1].results[0]


# --- idioms -----------------------------------------------------------------------------------------------------------

_SUMS = {aten.mean.dim, aten.sum.dim_IntList}
_CASTS = {aten._to_copy.default, aten.to.dtype, aten.clone.default, aten.alias.default}


def _squared(value: Value) -> Value | None:
    """x, where the value is x squared."""
    producer = value.producer
    while producer is not None and producer.target in _CASTS:
        value = producer.args[0]
        producer = value.producer
    if producer is None:
        return None
    if (producer.target is aten.pow.Tensor_Scalar and producer.args[1] == 2) or producer.target is aten.square.default:
        return _same(producer.args[0])
    if producer.target is aten.mul.Tensor and producer.args[0] is producer.args[1]:
        return _same(producer.args[0])
    return None


def _same(value: Any) -> Value | None:
    return value if isinstance(value, Value) and value.is_float else None


def squares(program: Program) -> None:
    """``mean(x ** 2)`` and ``sum(x * x)`` are contractions of x with itself: they use its inner product only."""
    done: list[Op] = []
    replaced: dict[Value, Value] = {}
    for op in program.ops:
        base = _squared(op.args[0]) if op.target in _SUMS and isinstance(op.args[0], Value) else None
        if base is None or len(op.args) < 2 or not op.args[1]:
            done.append(op)
            continue
        replaced[op.results[0]] = _contraction(op, base, done)
    program.ops = done
    program.substitute(replaced)


def _contraction(op: Op, base: Value, done: list[Op]) -> Value:
    rank = len(base.shape)
    reduced = {axis % rank for axis in op.args[1]}
    letters = "".join(chr(97 + axis) for axis in range(rank))
    kept = "".join(letter for axis, letter in enumerate(letters) if axis not in reduced)
    shape = tuple(size for axis, size in enumerate(base.shape) if axis not in reduced)
    dot = emit(aten.einsum.default, (f"{letters},{letters}->{kept}", [base, base]), shape, op)
    done.append(dot)
    if op.target is aten.mean.dim:
        count = 1
        for axis in reduced:
            count *= base.shape[axis]
        done.append(emit(aten.div.Scalar, (done[-1].results[0], count), shape, op))
    if op.results[0].shape != shape:
        target = op.results[0].shape
        done.append(emit(aten.view.default, (done[-1].results[0], list(target)), target, op))
    return done[-1].results[0]


_BROADCASTING = {
    aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor, aten.maximum.default, aten.minimum.default,
}  # fmt: skip


def broadcasts(program: Program) -> None:
    """``x / r.expand_as(x)`` is ``x / r``: the operator broadcasts by itself."""
    for op in program.ops:
        if op.target not in _BROADCASTING:
            continue
        for value in list(op.operands):
            source = _expanded(value)
            others = [other.shape for other in op.operands if other is not value]
            if source is not None and others and _broadcast(source.shape, *others) == op.results[0].shape:
                op.replace(value, source)


def _broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return tuple(torch.broadcast_shapes(*shapes))  # type: ignore[no-untyped-call]
    except RuntimeError:
        return ()


def _expanded(value: Value) -> Value | None:
    producer = value.producer
    if producer is None or producer.target not in (aten.expand.default, aten.expand_as.default):
        return None
    source = producer.args[0]
    return source if isinstance(source, Value) else None
