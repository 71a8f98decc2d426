"""Points between two state dicts."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from symgraph.errors import CheckpointError


def interpolate(a: Mapping[str, Tensor], b: Mapping[str, Tensor], alpha: float) -> dict[str, Tensor]:
    """``(1 - alpha) a + alpha b`` for every float tensor; integers are taken from ``a``. Ties stay ties.

    Raises CheckpointError where a tensor is missing from ``b`` or has another shape.
    """
    result: dict[str, Tensor] = {}
    seen: dict[tuple[int, int], Tensor] = {}
    for name, first in a.items():
        if name not in b:
            raise CheckpointError(f"tensor {name!r} is missing from the second checkpoint")
        second = b[name]
        if first.shape != second.shape:
            raise CheckpointError(
                f"tensor {name!r} has shape {tuple(first.shape)} in one and {tuple(second.shape)} in the other"
            )
        key = (id(first), id(second))
        if key not in seen:
            floating = first.is_floating_point() or first.is_complex()
            seen[key] = first.lerp(second.to(first), alpha) if floating else first
        result[name] = seen[key]
    return result
