"""Learnable elements of a whole spec: latents by space, and the elements that they stand for.

A latent is keyed ``space``, then ``block/part`` for matrices (a block is a set of isotypic blocks of one size, or the
whole matrix) and the generator's name for scales. All latents at their start give the identity.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from symgraph.algebra.elements import Element, Matrix, Monomial, lead
from symgraph.algebra.groups import Group
from symgraph.algebra.sampling import classes, householder_to_ones, spread
from symgraph.match.blocks import Blocks, alike, scatter
from symgraph.match.parametrizations import Latents, Parametrization, named
from symgraph.match.selection import Freedom, kind
from symgraph.spec.model import Space

DEFAULT = {"orthogonal": "cayley", "general_linear": "polar", "commutant": "polar"}


@dataclass(frozen=True)
class Chart:
    """The coordinates of one space: which part of its group moves, and through which parametrization."""

    space: Space
    freedom: Freedom
    shape: tuple[int, ...]
    name: str

    def zero(self, dtype: torch.dtype, device: torch.device) -> Latents:
        """The latents of the identity."""
        if not self.space.group.is_matrix:
            shape = (*self.shape, classes(self.space))
            return {name: torch.zeros(shape, dtype=dtype, device=device) for name in self.freedom.logs}
        found: Latents = {}
        for key, (over_complex, size, part) in self._parts.items():
            for one, value in part.zero((*self.shape, *size), over_complex, dtype).items():
                found[f"{key}/{one}"] = value.to(device)
        return found

    def learned(self, key: str) -> bool:
        """Whether the latent is learned."""
        if not self.space.group.is_matrix:
            return True
        block, _, one = key.partition("/")
        return one not in self._parts[block][2].fixed

    def element(self, latents: Mapping[str, Tensor]) -> Element:
        """The element that the latents stand for, differentiable in them."""
        if not self.space.group.is_matrix:
            return self._monomial(latents)
        values = {
            key: part.forward({one.partition("/")[2]: value for one, value in latents.items() if one.startswith(f"{key}/")})
            for key, (_, _, part) in self._parts.items()
        }
        return Matrix(self._matrix(values), orthogonal=self.orthogonal)

    @property
    def orthogonal(self) -> bool:
        """Whether elements are orthogonal."""
        return self.space.group.is_orthogonal or self.name == "cayley"

    def _matrix(self, values: Mapping[str, Tensor]) -> Tensor:
        n = self.space.size
        if self.space.group is Group.ORTHOGONAL_FIXING_ONES:
            some = values["0"]
            frame = householder_to_ones(n).to(some)
            inner = torch.nn.functional.pad(some, (1, 0, 1, 0))
            corner = torch.zeros(n, n).to(some)
            corner[0, 0] = 1.0
            return frame @ (inner + corner) @ frame
        if not self.space.blocks:
            return values["0"]
        some = values["0"].real
        result = torch.eye(n, dtype=some.dtype, device=some.device).expand(*self.shape, n, n).clone()
        for key, (_, places) in zip(values, alike(self.space), strict=True):
            scatter(result, Blocks(places, values[key]), values[key])
        return result

    def _monomial(self, latents: Mapping[str, Tensor]) -> Monomial:
        some = next(iter(latents.values()))
        ones = torch.ones((*self.shape, self.space.size), dtype=some.dtype, device=some.device)
        still = torch.arange(self.space.size, device=some.device).expand(ones.shape)
        logs = {name: spread(latents[name], self.space) for name in self.freedom.logs}
        names = [scale.name for scale in self.space.scales]
        return Monomial(still, {name: logs.get(name, torch.zeros_like(ones)) for name in names}, dict.fromkeys(names, ones))

    @cached_property
    def _parts(self) -> dict[str, tuple[bool, tuple[int, ...], Parametrization]]:
        """For every set of blocks: whether it is complex, its shape [.., m, m] after ``per``, its parametrization."""
        n, orthogonal = self.space.size, self.space.group.is_orthogonal
        if self.space.blocks:
            return {
                str(number): (field == "complex", (len(places), m, m), named(self.name, orthogonal, m))
                for number, (field, places) in enumerate(alike(self.space))
                for m in [places.shape[1]]
            }
        size = n - 1 if self.space.group is Group.ORTHOGONAL_FIXING_ONES else n
        return {"0": (False, (size, size), named(self.name, orthogonal, size))}


def charts(
    spaces: Mapping[str, Space], freedom: Mapping[str, Freedom], names: Mapping[str, str] | None = None
) -> dict[str, Chart]:
    """The charts of all spaces with a continuous freedom. ``names`` gives parametrizations by kind of group."""
    chosen = {**DEFAULT, **(names or {})}
    found = {}
    for name, one in freedom.items():
        space = spaces[name]
        continuous = (one.matrix and not _discrete(space)) or bool(one.logs)
        if continuous:
            found[name] = Chart(space, one, lead(space, spaces), chosen.get(kind(space), "exp"))
    return found


def _discrete(space: Space) -> bool:
    """Orthogonal matrices on one index, or two that fix the ones, have no continuous part."""
    if space.group is Group.ORTHOGONAL_FIXING_ONES:
        return space.size < 3
    return space.group is Group.ORTHOGONAL and space.size < 2
