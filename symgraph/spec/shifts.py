"""Translations: ``target window += coefficient * einsum(equation, value, *read windows)``.

The contraction is broadcast to the target's window: with a value of shape [n, 1], ``ij->ij`` adds the same to every
column. A shift never changes what it reads, so subtracting the same amounts undoes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

import torch
from torch import Tensor

from symgraph.spec.model import Shift, ShiftTerm, View


def undone(shift: Shift, value: Tensor) -> Tensor:
    """The value that undoes a shift."""
    return -value / (1 + value.sum()) if shift.projective else -value


def amounts(
    shift: Shift, value: Tensor, current: Mapping[str, Tensor], linear: bool = False
) -> Iterator[tuple[str, Tensor]]:
    """What to add to each target, ``(name, amount in the target's shape)``, for a ``value`` [*shift.shape].

    ``linear`` gives the first order in the value, which is all of it unless the shift is projective.

    ``current`` holds the tensors by every name; it is read anew for every term.
    """
    for term in shift.terms:
        target = current[term.target.tensor]
        amount = value / (1 + value.sum()) if term.divided and not linear else value
        window = _contract(term, amount, current).to(device=target.device, dtype=target.dtype)
        window = window.expand([stop - start for start, stop in term.target.window])
        yield term.target.tensor, embed(term.target, window).reshape(target.shape)


def window_of(view: View, tensor: Tensor) -> Tensor:
    """The window of ``tensor`` that the view shows, as it is read."""
    window = tensor.reshape(view.shape)[tuple(slice(start, stop) for start, stop in view.window)]
    return window if (view.power, view.offset) == (1.0, 0.0) else (window + view.offset) ** view.power


def embed(view: View, window: Tensor) -> Tensor:
    """The tensor [*view.shape] that is ``window`` inside of the view and zero outside."""
    padding = [
        amount
        for size, (start, stop) in zip(reversed(view.shape), reversed(view.window), strict=True)
        for amount in (start, size - stop)
    ]
    return torch.nn.functional.pad(window, padding) if any(padding) else window


def columns(shift: Shift, current: Mapping[str, Tensor]) -> list[tuple[str, Tensor]]:
    """For every term the target's name and the amounts for every unit value, [numel, value entries]."""
    example = current[shift.terms[0].target.tensor]
    units = torch.eye(prod(shift.shape), dtype=torch.float64, device=example.device).reshape(-1, *shift.shape)
    found = []
    for term in shift.terms:
        only = shift.model_copy(update={"terms": (term,)})
        values = torch.vmap(lambda unit, one=only: next(amounts(one, unit, current, linear=True))[1])(units)
        found.append((term.target.tensor, values.reshape(len(units), -1).mT))
    return found


def _contract(term: ShiftTerm, value: Tensor, current: Mapping[str, Tensor]) -> Tensor:
    reads = [window_of(view, current[view.tensor]) for view in term.reads]
    dtype = torch.promote_types(value.dtype, torch.float32)
    for one in reads:
        dtype = torch.promote_types(dtype, one.dtype)
    device = reads[0].device if reads else value.device
    operands = [value.to(device=device, dtype=dtype), *(one.to(dtype) for one in reads)]
    result: Tensor = torch.einsum(term.equation, *operands) * term.coefficient
    return result
