"""Values that a single parameter gives: gains kept as their difference from one, roots of variances."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from symgraph.infer.ir import Op, Program, Value, map_values

aten = torch.ops.aten
CASTS = {aten._to_copy.default, aten.to.dtype, aten.type_as.default}
SHAPES = {aten.view.default, aten.reshape.default, aten._unsafe_view.default, aten.unsqueeze.default, aten.alias.default}
POWERS = {aten.rsqrt.default: -0.5, aten.sqrt.default: 0.5, aten.reciprocal.default: -1.0}


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


def derived(value: Value) -> tuple[Value, float, float] | None:
    """(tensor, power, offset) of a value that is ``(tensor + offset) ** power`` of a tensor with one axis, if it is."""
    power, offset = 1.0, 0.0
    while not value.tensor:
        op = value.producer
        if op is None or sum(size != 1 for size in value.shape) > 1:
            return None
        step = _step(op)
        if step is None or (offset and step[0] != 1.0):
            return None
        power, offset = power * step[0], offset + step[1]
        value = op.args[0]
    return (value, power, offset) if len(value.shape) == 1 else None


def _step(op: Op) -> tuple[float, float] | None:
    """(power, number added) of an operator on one tensor, as far as it is one or the other."""
    if op.target in CASTS | SHAPES:
        return 1.0, 0.0
    if op.target in POWERS:
        return POWERS[op.target], 0.0
    number = op.args[1] if len(op.args) == 2 and not op.kwargs else None
    if isinstance(number, Value) and number.constant is not None and not number.data and number.constant.numel() == 1:
        number = number.constant.item()
    if not isinstance(number, int | float):
        return None
    if op.target is aten.pow.Tensor_Scalar:
        return float(number), 0.0
    return (1.0, float(number)) if op.target in (aten.add.Tensor, aten.add.Scalar) else None


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
