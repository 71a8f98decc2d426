"""The parts of a transform, and the two ways in which neighbours become one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from torch import Tensor

from symgraph.algebra import elements as algebra
from symgraph.algebra.elements import Element
from symgraph.spec.model import Space


@dataclass(frozen=True, eq=False)
class Stage:
    """One element per space, then the shifts (name, value) in order. Spaces without an element stay."""

    elements: Mapping[str, Element] = field(default_factory=dict)
    shifts: tuple[tuple[str, Tensor], ...] = ()

    def then(self, later: Stage, spaces: Mapping[str, Space]) -> tuple[Stage, ...]:
        """Both stages as one where that is exact, else as two."""
        if not self.shifts:
            return (Stage(algebra.compose(later.elements, self.elements, spaces), later.shifts),)
        if not later.elements:
            return (Stage(self.elements, self.shifts + later.shifts),)
        return (self, later)


def merge(stages: Iterable[Stage], spaces: Mapping[str, Space]) -> tuple[Stage, ...]:
    """The same sequence in as few stages as are exact."""
    merged: list[Stage] = []
    for stage in stages:
        if merged:
            merged[-1:] = merged[-1].then(stage, spaces)
        elif stage.elements or stage.shifts:
            merged.append(stage)
    return tuple(merged)
