"""The line between two ends that move: ``(1 - x) gA A + x gB B`` as a differentiable function of latents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from symgraph.algebra.action import act
from symgraph.algebra.elements import Elements
from symgraph.match.charts import Chart
from symgraph.match.functional import on_module
from symgraph.match.merge import interpolate
from symgraph.match.parametrizations import Latents
from symgraph.spec.model import SymmetrySpec
from symgraph.spec.state import State, owners
from symgraph.spec.transform import words_of

Point = dict[str, Latents]  # latents by space


class Line:
    """Two ends on the module's device and in its dtype; tied tensors are moved once."""

    def __init__(self, spec: SymmetrySpec, a: State, b: State, module: nn.Module, charts: Mapping[str, Chart]) -> None:
        self.charts, self.spaces = charts, spec.space_map
        self.ends = (on_module(a, module), on_module(b, module))
        owner = owners(spec)
        self.names: dict[str, list[str]] = {}  # of every moving tensor, by its first
        self.words = {}
        for name in self.ends[0]:
            if name not in owner:
                continue
            words = words_of(owner[name])
            if {factor.space for word in words for factor in word.factors()} & charts.keys():
                first = next(one for one in (owner[name].name, *owner[name].aliases) if one in self.ends[0])
                self.names.setdefault(first, []).append(name)
                self.words[first] = words
        still = [name for name in self.ends[0] if not any(name in tied for tied in self.names.values())]
        self.still = tuple({name: end[name] for name in still} for end in self.ends)

    @property
    def device(self) -> torch.device:
        """Where the ends are."""
        return next(iter(self.ends[0].values())).device

    def start(self, dtype: torch.dtype) -> Point:
        """Latents of the identity."""
        return {name: chart.zero(dtype, self.device) for name, chart in self.charts.items()}

    def elements(self, point: Point) -> Elements:
        """The elements at a point."""
        return {name: chart.element(point[name]) for name, chart in self.charts.items()}

    def moving(self, points: Sequence[Point | None], x: float) -> dict[str, Tensor]:
        """The tensors that move, at ``x`` of the line; an end without a point stays."""
        elements = [None if point is None else self.elements(point) for point in points]
        result = {}
        for name, words in self.words.items():
            ends = []
            for end, moved in zip(self.ends, elements, strict=True):
                value = end[name]
                ends.append(value if moved is None else act(value[None], words, moved, self.spaces)[0])
            result[name] = torch.lerp(ends[0], ends[1].to(ends[0].dtype), x)
        return result

    def state(self, moving: Mapping[str, Tensor], x: float) -> dict[str, Tensor]:
        """The whole state dict around the tensors that move."""
        result = interpolate(self.still[0], self.still[1], x)
        for first, value in moving.items():
            result.update(dict.fromkeys(self.names[first], value))
        return result
