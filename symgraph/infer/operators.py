"""Regions of the program that are one fixed linear operator along one axis of one tensor.

A rotary embedding is written in many ways (half-split, interleaved, partial, complex); all of them are a region of linear
operators with constant coefficients that starts at one tensor and ends at one tensor. Such a region is replaced by one
operator with its matrices, which are read off by running the region on a basis.
"""

from __future__ import annotations

import hashlib
import heapq
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from symgraph.infer.ir import Op, Program, Value, activations, map_values
from symgraph.infer.normalize import emit
from symgraph.rules.fixed import fixed_operator

aten = torch.ops.aten

_JOINS = {aten.add.Tensor, aten.sub.Tensor}
_SCALINGS = {aten.mul.Tensor, aten.div.Tensor, aten.mul.Scalar, aten.div.Scalar, aten.neg.default}
_REARRANGING = {
    aten.slice.Tensor, aten.cat.default, aten.view.default, aten.reshape.default, aten._unsafe_view.default,
    aten.permute.default, aten.transpose.int, aten.unsqueeze.default, aten.squeeze.dim, aten.clone.default,
    aten.alias.default, aten.contiguous.default, aten._to_copy.default, aten.to.dtype, aten.flip.default,
    aten.flatten.using_ints, aten.view_as_complex.default, aten.view_as_real.default, aten.type_as.default,
    aten.unflatten.int, aten.roll.default, aten.squeeze.dims, aten._conj.default,
}  # fmt: skip
_CASTS = {aten._to_copy.default, aten.to.dtype, aten.type_as.default}
LARGEST = 1024
"""Axes longer than this are not probed for operators."""
PROBED = 2**27
"""Most entries that reading off the matrices of one region may compute."""
_STILL = WeakIdKeyDictionary()


def fixed_operators(program: Program) -> None:
    """Replace regions, outermost first."""
    order = {id(op): index for index, op in enumerate(program.ops)}
    users = program.users()
    consumed: set[int] = set()
    memo: dict[Any, Any] = {}
    replacement: dict[int, Op] = {}
    for op in reversed(program.ops):
        if id(op) in consumed or not _may_end(op):
            continue
        found = _region(op, order, users)
        if found is None:
            continue
        source, region = found
        key = _signature(source, region)
        if key not in memo:
            memo[key] = _matrices(source, region)
        if memo[key] is not None:
            last = region[-1]
            new = emit(fixed_operator, (source, *memo[key]), last.results[0].shape, op)
            new.results[0], last.results = last.results[0], []
            new.results[0].producer = new
            replacement[id(last)] = new
            consumed.update(map(id, region))
    program.ops = [replacement.get(id(op), op) for op in program.ops]
    program.prune()


def _linear(op: Op) -> bool:
    """Whether the operator is linear in its activations with constant coefficients."""
    if not op.results or len(op.results) != 1:
        return False
    if op.target in _REARRANGING:
        return all(value.is_float for value in op.operands)
    count = len(list(activations(op)))
    if op.target in _SCALINGS:
        return count == 1 and not (op.target is aten.div.Tensor and isinstance(op.args[1], Value) and not op.args[1].known)
    if op.target in _JOINS:
        return count == 2 and all(isinstance(argument, Value) for argument in op.args[:2])
    return False


def _may_end(op: Op) -> bool:
    """Where recombination can end: a sum of two activations, a concatenation, or leaving the complex numbers."""
    return op.target in (*_JOINS, aten.cat.default, aten.view_as_real.default) and _linear(op)


def _region(end: Op, order: dict[int, int], users: dict[Value, list[Op]]) -> tuple[Value, list[Op]] | None:
    """The tensor that dominates the end through linear operators, and the operators between, in order."""
    region: dict[int, Op] = {}
    frontier: dict[int, Value] = {}
    heap: list[int] = []

    def reach(value: Value) -> None:
        if id(value) not in frontier:
            frontier[id(value)] = value
            heapq.heappush(heap, -order[id(value.producer)] if value.producer else 1)

    def expand(op: Op) -> None:
        region[id(op)] = op
        for value in activations(op):
            reach(value)

    expand(end)
    while True:
        if len(frontier) == 1 and _worthwhile(region):
            source = next(iter(frontier.values()))
            return _widened(source, sorted(region.values(), key=lambda op: order[id(op)]), users)
        latest = max(frontier.values(), key=lambda value: order.get(id(value.producer), -1))
        producer = latest.producer
        if producer is None or id(producer) not in order or not _linear(producer) or latest.tensor:
            return None
        del frontier[id(latest)]
        expand(producer)


def _worthwhile(region: dict[int, Op]) -> bool:
    """Pure rearrangement is left to the rules of views and sums; a region has to compute something."""
    targets = [op.target for op in region.values()]
    inside = any(target in _JOINS or target is aten.view_as_real.default for target in targets)
    scales = any(op.target in _SCALINGS and op.target is not aten.neg.default for op in region.values())
    done = aten.view_as_real.default not in targets or aten.view_as_complex.default in targets
    return inside and scales and done


def _widened(source: Value, region: list[Op], users: dict[Value, list[Op]]) -> tuple[Value, list[Op]] | None:
    """The region with the views around it that split and merge the axis, if they match."""
    ahead, forward = region[-1].results[0], list[Op]()
    for _ in range(4):
        behind, backward = source, list[Op]()
        for _ in range(4):
            if behind.shape == ahead.shape and (forward or backward or len(behind.shape) <= 4):
                return behind, backward[::-1] + region + forward
            producer = behind.producer
            if producer is None or not _linear(producer) or len(list(activations(producer))) != 1 or (len(users[behind]) > 1 and _outside(users[behind], region + backward)):  # noqa: E501
                break
            backward.append(producer)
            behind = producer.args[0]
        following = users.get(ahead, [])
        if len(following) != 1 or not _linear(following[0]) or following[0].target in (*_JOINS, aten.cat.default):
            break
        forward.append(following[0])
        ahead = following[0].results[0]
    return (source, region) if source.shape == region[-1].results[0].shape else None


def _outside(ops: list[Op], region: list[Op]) -> bool:
    inside = set(map(id, region))
    return any(id(op) not in inside for op in ops)


def _signature(source: Value, region: list[Op]) -> Any:
    """Regions with the same signature compute the same matrices."""
    names: dict[int, int] = {id(source): 0}
    parts = []
    for op in region:
        arguments = map_values(op.args, lambda value: names.get(id(value), _digest(value)))
        parts.append((op.target, repr(arguments), repr(sorted(op.kwargs.items(), key=str))))
        names[id(op.results[0])] = len(names)
    return source.shape, tuple(parts)


def _digest(value: Value) -> str:
    """A constant by its content: layers that repeat have tables of their own with the same entries."""
    if value.digest is None:
        content = b"" if value.constant is None else value.constant.contiguous().flatten().view(torch.uint8).numpy().tobytes()
        value.digest = hashlib.sha256(content).hexdigest() + f"{value.shape} {value.dtype}"
    return value.digest


def _run(source: Value, region: list[Op], x: Tensor) -> Tensor:
    values: dict[int, Tensor] = {id(source): x}

    def read(value: Value) -> Tensor:
        if id(value) in values:
            return values[id(value)]
        assert value.constant is not None
        return value.constant.double() if value.constant.is_floating_point() else value.constant

    for op in region:
        if op.target in _CASTS:
            values[id(op.results[0])] = read(op.args[0])
            continue
        result = op.target(*map_values(op.args, read), **map_values(op.kwargs, read))
        values[id(op.results[0])] = result
    return values[id(region[-1].results[0])]


def _matrices(source: Value, region: list[Op]) -> tuple[int, Tensor, tuple[int, ...]] | None:
    """(axis, matrices [k, n, n], axes along which they differ); None where the region is no such operator."""
    if any(value.opaque for op in region for value in op.operands):
        return None
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(source.shape, generator=generator, dtype=torch.float64)
    expected = _run(source, region, x)
    if expected.shape != x.shape or expected.is_complex():
        return None
    for axis in reversed(range(x.dim())):
        size = x.shape[axis]
        if 1 < size <= LARGEST and size * x.numel() <= PROBED:
            matrices = _probe(source, region, axis)
            predicted = torch.einsum("...ij,...j->...i", matrices, x.movedim(axis, -1)).movedim(-1, axis)
            if torch.allclose(predicted, expected, rtol=1e-9, atol=1e-9):
                return (axis, *_distinct(matrices, axis))
    return None


def still(matrices: Tensor) -> Tensor:
    """[n], which coordinates the operators [k, n, n] leave alone and keep apart; found once for what many layers share."""
    if matrices not in _STILL:
        same = (matrices == torch.eye(matrices.shape[-1], dtype=matrices.dtype)).all(0)
        _STILL[matrices] = same.all(0) & same.all(1)
    found: Tensor = _STILL[matrices]
    return found


def _probe(source: Value, region: list[Op], axis: int) -> Tensor:
    """``R[.., i, j]``: what the unit vector j along the axis becomes, at every position of the other axes."""
    size = source.shape[axis]
    shape = [1] * len(source.shape)
    shape[axis] = size
    columns = []
    for row in torch.eye(size, dtype=torch.float64):
        result = _run(source, region, row.reshape(shape).expand(source.shape)).movedim(axis, -1)
        columns.append(_compact(result, result.dim() - 1))
    common = torch.broadcast_shapes(*(column.shape for column in columns))  # type: ignore[no-untyped-call]
    return torch.stack([column.expand(common) for column in columns], -1)


def _compact(values: Tensor, axes: int) -> Tensor:
    """Size one along those of the first axes along which the entries repeat."""
    for position in range(axes):
        first = values.narrow(position, 0, 1)
        if torch.equal(values, first.expand_as(values)):
            values = first
    return values


def _distinct(matrices: Tensor, axis: int) -> tuple[Tensor, tuple[int, ...]]:
    """The matrices without the axes along which they repeat, and the axes of x along which they differ."""
    matrices = _compact(matrices, matrices.dim() - 2)
    varying = [position if position < axis else position + 1 for position, size in enumerate(matrices.shape[:-2]) if size > 1]
    return matrices.reshape(-1, *matrices.shape[-2:]).clone(), tuple(varying)
