"""Values that are a parameter times a number plus a number: gains kept as their difference from one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from symgraph.infer.ir import Op, Program, Value, map_values

aten = torch.ops.aten
CASTS = {aten._to_copy.default, aten.to.dtype, aten.type_as.default}


def affine(value: Value, tensor: Value) -> tuple[float, float] | None:
    """(multiplier, offset) of a value as a function of a tensor, by evaluating it at three points; None if it is not affine."""
    points = [_evaluate(value, tensor, point) for point in (0.0, 1.0, 2.0)]
    if any(point is None for point in points):
        return None
    zero, one, two = (point for point in points if point is not None)
    offset, multiplier = zero.flatten()[0], (one - zero).flatten()[0]
    uniform = bool((zero == offset).all()) and bool(((one - zero) == multiplier).all())
    if not uniform or not torch.equal(two, one + (one - zero)) or multiplier == 0:
        return None
    return float(multiplier), float(offset)


def offsets(program: Program) -> dict[Value, tuple[float, list[Op]]]:
    """Parameters that are only read as ``p + offset`` (up to a factor), with the operators that add it."""
    users = program.users()
    found: dict[Value, tuple[float, list[Op]]] = {}
    for tensor in program.tensors.values():
        value, chain = tensor, list[Op]()
        while (op := _alone(value, users)) is not None:
            chain.append(op)
            value = op.results[0]
        parts = affine(value, tensor) if chain else None
        if parts is not None and parts[1]:
            found[tensor] = (parts[1] / parts[0], chain)
    return found


def _alone(value: Value, users: dict[Value, list[Op]]) -> Op | None:
    """The one operator that reads a value, if it reads nothing else but numbers and gives one tensor of the same shape."""
    readers = users.get(value, [])
    if len(readers) != 1 or len(readers[0].results) != 1 or readers[0].results[0].shape != value.shape:
        return None
    others = [each for each in readers[0].operands if each is not value]
    return readers[0] if all(each.known and not each.data and not each.opaque for each in others) else None


def _evaluate(value: Value, tensor: Value, point: float) -> torch.Tensor | None:
    if value is tensor:
        return torch.full(value.shape, point, dtype=torch.float64)
    if value.constant is not None:
        return value.constant.double() if value.is_float else value.constant
    producer = value.producer
    if producer is None:
        return None
    if producer.target in CASTS:
        return _evaluate(producer.args[0], tensor, point)
    operands = {each: _evaluate(each, tensor, point) for each in producer.operands}
    if any(each is None for each in operands.values()):
        return None
    read: Callable[[Value], Any] = operands.__getitem__
    return torch.as_tensor(producer.target(*map_values(producer.args, read), **map_values(producer.kwargs, read)))
