"""Consistency of a spec: everything that has to hold before an action can be applied.

All problems are collected: the error line tells the first and how many more there are,
``InconsistentSpecError.problems`` holds them all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite, prod

import torch

from symgraph.algebra.action import leaves, outer_positions
from symgraph.algebra.groups import Group
from symgraph.algebra.words import Factor, Word, parse
from symgraph.errors import SpecError
from symgraph.spec.model import Absorption, Shift, Space, SymmetrySpec, Target, Tensor, View
from symgraph.spec.state import owners


class InconsistentSpecError(SpecError):
    """A spec that contradicts itself; ``problems`` lists all contradictions."""

    def __init__(self, problems: Sequence[str]) -> None:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        super().__init__(problems[0] + more)
        self.problems = tuple(problems)


def check(spec: SymmetrySpec) -> None:
    """Raise :class:`InconsistentSpecError` if the spec contradicts itself."""
    problems = list(_problems(spec))
    if problems:
        raise InconsistentSpecError(problems)


def _problems(spec: SymmetrySpec) -> Iterator[str]:
    yield from _repeated("space", [space.name for space in spec.spaces])
    yield from _repeated("tensor", [name for tensor in spec.tensors for name in (tensor.name, *tensor.aliases)])
    yield from _repeated("shift", [shift.name for shift in spec.shifts])
    context = _Context(spec)
    bad_per = [problem for space in spec.spaces for problem in context.dependence(space)]
    yield from bad_per
    for space in spec.spaces:
        yield from (f"space {space.name!r}: {problem}" for problem in _group(space))
    for tensor in spec.tensors:
        yield from (f"tensor {tensor.name!r}: {problem}" for problem in context.tensor(tensor, not bad_per))
    for absorption in spec.absorptions:
        yield from (f"absorption of {absorption.source!r}: {problem}" for problem in context.absorption(absorption))
    for shift in spec.shifts:
        yield from (f"shift {shift.name!r}: {problem}" for problem in context.shift(shift))
    for one in spec.approximate:
        unknown = sorted((one.weights.keys() | one.offsets.keys()) - context.owners.keys())
        yield from (f"approximate {one.name!r}: no tensor {name!r}" for name in unknown)


def _repeated(what: str, names: list[str]) -> Iterator[str]:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            yield f"{what} {name!r} is typed twice"
        seen.add(name)


_KINDS: dict[Group, set[str]] = {
    Group.DIAGONAL: {"positive", "real", "sign"},
    Group.SIGNED_PERMUTATION: {"sign"},
    Group.POSITIVE_MONOMIAL: {"positive"},
    Group.MONOMIAL: {"positive", "real", "sign"},
}  # the scale generators of each group; all others have none


def _group(space: Space) -> Iterator[str]:
    """Whether scales, blocks and partition are those of the group."""
    group, kinds = space.group, {scale.kind for scale in space.scales}
    allowed = _KINDS.get(group, set())
    if kinds - allowed:
        yield f"a {group.value} group has no scale of kind {min(kinds - allowed)!r}"
    if allowed and not kinds:
        yield f"a {group.value} group needs a scale"
    yield from _repeated("scale", [scale.name for scale in space.scales])
    if space.blocks and group not in (Group.COMMUTANT, Group.ORTHOGONAL_COMMUTANT):
        yield f"a {group.value} group has no blocks"
    for block in space.blocks:
        if not block.coordinates or any(len(one) != 1 + (block.field == "complex") for one in block.coordinates):
            yield f"a {block.field} block needs {'pairs (re, im)' if block.field == 'complex' else 'single indices'}"
    yield from _distinct("block coordinates", space, [c for b in space.blocks for one in b.coordinates for c in one])
    if space.partition and group.permutes and sorted(map(len, space.partition)) != [space.size]:
        yield "where indices are permuted, a partition has to be one class of all of them"
    if any(not members for members in space.partition):
        yield "a class of the partition is empty"
    yield from _distinct("classes of the partition", space, [index for members in space.partition for index in members])


def _distinct(what: str, space: Space, indices: list[int]) -> Iterator[str]:
    if len(set(indices)) < len(indices):
        yield f"{what} overlap at {min(index for index in indices if indices.count(index) > 1)}"
    if any(not 0 <= index < space.size for index in indices):
        yield f"{what} leave the range 0..{space.size - 1}"


@dataclass(frozen=True)
class _Context:
    """What the checks of tensors, absorptions and shifts look up."""

    spec: SymmetrySpec

    @cached_property
    def spaces(self) -> dict[str, Space]:
        """Spaces by name."""
        return self.spec.space_map

    @cached_property
    def owners(self) -> dict[str, Tensor]:
        """Tensors by name and alias."""
        return owners(self.spec)

    def dependence(self, space: Space) -> Iterator[str]:
        """``per`` names spaces of coordinates, has no cycles, and is closed: what those depend on is named too."""
        if unknown := [name for name in space.per if name not in self.spaces]:
            yield f"space {space.name!r}: depends on the unknown space {unknown[0]!r}"
            return
        if self._reaches(space.name, space.per):
            yield f"space {space.name!r}: depends on itself"
            return
        yield from _repeated(f"space {space.name!r}: per", list(space.per))
        for outer in (self.spaces[name] for name in space.per):
            if outer.group.is_matrix:
                yield f"space {space.name!r}: depends on {outer.name!r}, whose indices are mixed by a matrix group"
            missing = [name for name in outer.per if name not in space.per]
            if missing and outer.group.permutes:
                yield f"space {space.name!r}: depends on {outer.name!r}, so it has to depend on {missing[0]!r} too"

    def _reaches(self, goal: str, start: Sequence[str]) -> bool:
        todo, seen = list(start), set[str]()
        while todo:
            name = todo.pop()
            if name == goal:
                return True
            if name not in seen and name in self.spaces:
                seen.add(name)
                todo += self.spaces[name].per
        return False

    def tensor(self, tensor: Tensor, dependence: bool) -> Iterator[str]:
        """Words that can be read, over known spaces and generators, of the tensor's sizes, with their outer spaces."""
        if len(tensor.axes) != len(tensor.shape):
            yield f"{len(tensor.axes)} axes are typed, but the shape {list(tensor.shape)} has {len(tensor.shape)}"
            return
        labels = ["scale", *(f"axis {number}" for number in range(len(tensor.axes)))]
        words: list[Word] = []
        for label, text, size in zip(labels, (tensor.scale or "1", *tensor.axes), (1, *tensor.shape), strict=True):
            try:
                word = parse(text)
            except SpecError as error:
                yield f"{label}: {error}"
                return
            problems = list(self._word(word, size))
            yield from (f"{label}: {problem}" for problem in problems)
            words += [] if problems else [word]
        if dependence and len(words) == 1 + len(tensor.shape):
            yield from dict.fromkeys(self._outer(words))

    def _word(self, word: Word, size: int) -> Iterator[str]:
        factors = list(word.factors())
        for factor in factors:
            if factor.space not in self.spaces:
                yield f"unknown space {factor.space!r}"
                return
            known = {scale.name for scale in self.spaces[factor.space].scales}
            for name, _ in factor.weights:
                if name not in known:
                    yield f"space {factor.space!r} has no scale {name!r}"
        found = word.size({factor.space: self.spaces[factor.space].size for factor in factors})
        if found != size:
            yield f"the word '{word}' has {found} indices, but the size is {size}"

    def _outer(self, words: list[Word]) -> Iterator[str]:
        """Every dependent space finds the spaces that it depends on, whichever summands are taken."""
        if not any(self.spaces[factor.space].per for word in words for factor in word.factors()):
            return
        for dims in leaves(words):
            for place, (word, _) in enumerate(dims):
                if isinstance(word, Factor):
                    try:
                        outer_positions(place, dims, self.spaces)
                    except SpecError as error:
                        yield str(error)

    def absorption(self, absorption: Absorption) -> Iterator[str]:
        """Source and targets exist; the tiled gain fits on the target's axis."""
        if absorption.source not in self.owners:
            yield "the source is not a typed tensor"
            return
        numbers = (absorption.multiplier, absorption.offset)
        if not absorption.multiplier or not all(map(isfinite, numbers)):
            yield f"the gain {absorption.multiplier} * source + {absorption.offset} cannot be made one"
        if not absorption.targets:
            yield "there is no target"
        for target in absorption.targets:
            yield from self._target(target, self.owners[absorption.source].numel)

    def _target(self, target: Target, entries: int) -> Iterator[str]:
        if target.tensor not in self.owners:
            yield f"no tensor {target.tensor!r}"
            return
        shape = self.owners[target.tensor].shape
        if not 0 <= target.axis < len(shape):
            yield f"tensor {target.tensor!r} of shape {list(shape)} has no axis {target.axis}"
            return
        stop = target.start + target.outer * entries * target.inner
        if min(target.start, target.outer - 1, target.inner - 1) < 0 or stop > shape[target.axis]:
            yield (
                f"the gain stands on indices {target.start}..{stop - 1} of axis {target.axis} of {target.tensor!r}, "
                f"which has {shape[target.axis]}"
            )

    def shift(self, shift: Shift) -> Iterator[str]:
        """Views fit their tensors, equations fit the views, nothing is both read and changed."""
        if not shift.terms:
            yield "there is no term"
        if not 0 <= shift.dimension <= prod(shift.shape):
            yield f"dimension {shift.dimension} of a value with {prod(shift.shape)} entries"
        views = [view for term in shift.terms for view in (term.target, *term.reads)]
        problems = [problem for view in views for problem in self._view(view)]
        yield from problems
        if problems:
            return
        changed = {self.owners[term.target.tensor].name for term in shift.terms}
        read = {self.owners[view.tensor].name for term in shift.terms for view in term.reads}
        for name in sorted(changed & read) if not shift.projective else ():
            yield f"tensor {name!r} is both read and changed"
        for term in shift.terms:
            operands = [torch.empty(size, device="meta") for size in (shift.shape, *map(_window, term.reads))]
            try:
                found = tuple(torch.einsum(term.equation, *operands).shape)
            except (RuntimeError, ValueError):
                yield f"the equation {term.equation!r} does not fit its operands"
                continue
            goal = _window(term.target)
            if len(found) != len(goal) or any(a not in (1, b) for a, b in zip(found, goal, strict=True)):
                yield f"the equation {term.equation!r} gives {list(found)}, the target is {list(goal)}"

    def _view(self, view: View) -> Iterator[str]:
        if view.tensor not in self.owners:
            yield f"no tensor {view.tensor!r}"
        elif prod(view.shape) != self.owners[view.tensor].numel:
            yield f"tensor {view.tensor!r} cannot be viewed as {list(view.shape)}"
        elif len(view.window) != len(view.shape) or any(
            not 0 <= start <= stop <= size for (start, stop), size in zip(view.window, view.shape, strict=True)
        ):
            yield f"the window {[list(one) for one in view.window]} leaves {list(view.shape)}"


def _window(view: View) -> tuple[int, ...]:
    return tuple(stop - start for start, stop in view.window)
