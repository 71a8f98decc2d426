"""Example calls: what every rule is registered with, and what the tests of its law run.

A builder draws the calls from a generator: ``lambda draw: [example(draw(3, 5), draw(7, 5))]``. Sizes are pairwise different
primes, at least three where something may move; numbers have mixed signs unless the operator is defined on others only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Example:
    """The arguments of one call. Integers are constants, as where a graph has been folded, unless ``points`` names them.

    ``points`` gives integer tensors that were computed from activations their meaning (:class:`~.registry.Operand`), by
    their position among the tensors; ``constants`` are positions of tensors of real numbers that are constants.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    points: dict[int, str] = field(default_factory=dict)
    constants: frozenset[int] = frozenset()


def example(*args: Any, points: dict[int, str] | None = None, constants: tuple[int, ...] = (), **kwargs: Any) -> Example:
    """An example call with the operator's own arguments."""
    return Example(args, kwargs, points or {}, frozenset(constants))


@dataclass(frozen=True, eq=False)
class Draw:
    """Random tensors, all from one generator."""

    generator: torch.Generator

    def __call__(self, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
        """Normal numbers of both signs."""
        return torch.randn(shape, generator=self.generator, dtype=dtype)

    def positive(self, *shape: int) -> Tensor:
        """Numbers between 0.5 and 2."""
        return 0.5 + 1.5 * torch.rand(shape, generator=self.generator, dtype=torch.float64)

    def small(self, *shape: int) -> Tensor:
        """Numbers of both signs, below one half in magnitude."""
        return torch.rand(shape, generator=self.generator, dtype=torch.float64) - 0.5

    def integers(self, high: int, *shape: int) -> Tensor:
        """Integers from 0 to ``high - 1``."""
        return torch.randint(high, shape, generator=self.generator)

    def mask(self, *shape: int) -> Tensor:
        """Truth values of both kinds."""
        chosen = torch.rand(shape, generator=self.generator) < 0.5
        chosen.view(-1)[0], chosen.view(-1)[-1] = True, False
        return chosen


Examples = Callable[[Draw], list[Example]]
