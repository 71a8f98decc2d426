"""A group element of a whole spec, and how it moves a checkpoint.

A :class:`Transform` is a sequence of stages, applied in order; a stage is one element per space (the linear part),
then translations one after the other. Keeping the sequence makes products and inverses exact:

    (A, no shifts) then (B, S)  =  (B A, S)
    inverse of (L, S)           =  (S undone in reverse order), then L^-1

>>> t = sample(spec, seed=0)                                        # doctest: +SKIP
>>> moved = t.apply(canonicalize(spec, model.state_dict()))         # doctest: +SKIP
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch

from symgraph.algebra import elements as algebra
from symgraph.algebra.action import act
from symgraph.algebra.elements import Element
from symgraph.algebra.words import Word, parse
from symgraph.errors import SpecError
from symgraph.spec import codec, model, storage
from symgraph.spec.model import Space, SymmetrySpec
from symgraph.spec.shifts import amounts, undone
from symgraph.spec.stages import Stage, merge
from symgraph.spec.state import State, fetch, held, names, owners, working_dtype


@dataclass(frozen=True, eq=False)
class Transform:
    """An element of the symmetry group of ``spec``: acts on canonical state dicts."""

    spec: SymmetrySpec
    stages: tuple[Stage, ...] = ()

    @cached_property
    def digest(self) -> str:
        """Identity of the spec that this is a transform of."""
        return codec.digest(self.spec)

    @property
    def elements(self) -> Mapping[str, Element]:
        """Elements by space; SpecError if shifts stand between linear maps."""
        return self._only.elements

    @property
    def shifts(self) -> Mapping[str, torch.Tensor]:
        """Values by shift; SpecError if shifts stand between linear maps."""
        return dict(self._only.shifts)

    @property
    def _only(self) -> Stage:
        if len(self.stages) > 1:
            raise SpecError("this transform has shifts between its linear maps: use its stages, not its elements")
        return self.stages[0] if self.stages else Stage()

    def apply(self, state: State) -> dict[str, torch.Tensor]:
        """The moved state dict, in the dtypes of the old one; nothing of ``state`` is changed.

        Tensors that the spec does not know pass through. Raises :class:`~symgraph.errors.CheckpointError` for missing
        tensors and wrong shapes.
        """
        tensors, result = held(self.spec, state), dict(state)
        translated = self._translate(state)
        for tensor in tensors:
            value = fetch(tensor, state)
            moved = translated[tensor.name] if tensor.name in translated else self._move(tensor, value)
            if moved is not value:
                moved = moved.to(value.dtype).contiguous()
                result.update(dict.fromkeys(names(tensor, state), moved))
        return result

    def inverse(self) -> Transform:
        """The transform that undoes this one."""
        shifts = {shift.name: shift for shift in self.spec.shifts}
        back: list[Stage] = []
        for stage in reversed(self.stages):
            back.append(Stage({}, tuple((name, undone(shifts[name], value)) for name, value in reversed(stage.shifts))))
            back.append(Stage(algebra.inverse(stage.elements, self._spaces)))
        return Transform(self.spec, merge(back, self._spaces))

    def compose(self, other: Transform) -> Transform:
        """``t.compose(o).apply(x) == t.apply(o.apply(x))``."""
        if other.spec is not self.spec and other.digest != self.digest:
            raise SpecError("transforms of two different specs cannot be composed")
        return Transform(self.spec, merge((*other.stages, *self.stages), self._spaces))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a safetensors file that holds the elements, the shifts and the spec."""
        storage.write(path, self.spec, self.stages)

    @classmethod
    def load(cls, path: str | os.PathLike[str], spec: SymmetrySpec | None = None) -> Transform:
        """Read what :meth:`save` wrote; SpecError if it is malformed or belongs to another spec than ``spec``."""
        return cls(*storage.read(path, spec))

    @cached_property
    def _spaces(self) -> dict[str, Space]:
        return self.spec.space_map

    def _move(self, tensor: model.Tensor, value: torch.Tensor) -> torch.Tensor:
        """The linear parts of all stages on one tensor, in the working dtype; ``value`` itself if nothing moves it."""
        words = words_of(tensor)
        spaces = {factor.space for word in words for factor in word.factors()}
        for stage in self.stages:
            if spaces & stage.elements.keys():
                value = self._linear(words, stage, value)
        return value

    def _linear(self, words: tuple[Word, ...], stage: Stage, value: torch.Tensor) -> torch.Tensor:
        value = value.to(working_dtype(value.dtype))
        return act(value[None], words, stage.elements, self._spaces)[0]

    def _translate(self, state: State) -> dict[str, torch.Tensor]:
        """All stages on the tensors that shifts change or read; these keep the working dtype between stages."""
        used = {name for stage in self.stages for name, _ in stage.shifts}
        shifts = {shift.name: shift for shift in self.spec.shifts if shift.name in used}
        owner = owners(self.spec) if used else {}
        views = [view for shift in shifts.values() for term in shift.terms for view in (term.target, *term.reads)]
        tensors = {owner[view.tensor].name: owner[view.tensor] for view in views}
        work = {name: fetch(tensor, state) for name, tensor in tensors.items()}
        for stage in self.stages if work else ():
            work = {name: self._linear(words_of(tensors[name]), stage, value) for name, value in work.items()}
            current = {alias: work[tensor.name] for alias, tensor in owner.items() if tensor.name in work}
            for name, value in stage.shifts:
                for target, amount in amounts(shifts[name], value, current):
                    moved = current[target] + amount
                    current.update(dict.fromkeys((owner[target].name, *owner[target].aliases), moved))
            work = {name: current[name] for name in work}
        return work


def identity_transform(spec: SymmetrySpec) -> Transform:
    """The transform that moves nothing."""
    return Transform(spec)


def words_of(tensor: model.Tensor) -> tuple[Word, ...]:
    """The words of ``tensor[None]``: the whole-tensor scale, then the axes."""
    return (parse(tensor.scale or "1"), *tensor.words)
