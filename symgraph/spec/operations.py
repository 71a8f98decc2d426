"""What one does with a spec: bring a checkpoint to normal form, draw a group element, list the orbit directions."""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Collection, Sequence

import torch

from symgraph.algebra import lie, sampling
from symgraph.algebra.action import act
from symgraph.algebra.words import Word
from symgraph.errors import CheckpointError, SpecError
from symgraph.spec import model, shifts
from symgraph.spec.model import Absorption, Space, SymmetrySpec, Target
from symgraph.spec.stages import Stage
from symgraph.spec.state import State, fetch, held, names, owners
from symgraph.spec.transform import Transform, words_of

CHUNK = 256  # orbit directions that are differentiated at once


def sample(spec: SymmetrySpec, seed: int = 0, scale: float = 1.0, only: Collection[str] | None = None) -> Transform:
    """A random element of the whole group, or of the spaces and shifts named in ``only``; the rest is the identity.

    Every space and shift has its own random stream: a part of the transform does not depend on what else is drawn.
    ``scale`` bounds logarithms of scales and singular values, and is the standard deviation of shifts.
    """
    known = {space.name for space in spec.spaces} | {shift.name for shift in spec.shifts}
    chosen = known if only is None else set(only)
    if unknown := sorted(chosen - known):
        raise SpecError(f"the spec has no space or shift {unknown[0]!r} to sample")
    spaces = spec.space_map
    elements = {
        name: sampling.sample(space, spaces, _stream(seed, name), scale)
        for name, space in spaces.items()
        if name in chosen and moves(space)
    }
    values = tuple(
        (shift.name, _spread(shift, scale) * torch.randn(shift.shape, generator=_stream(seed, shift.name), dtype=torch.float64))
        for shift in spec.shifts
        if shift.name in chosen
    )
    return Transform(spec, (Stage(elements, values),))


def _spread(shift: model.Shift, scale: float) -> float:
    """Standard deviation of a random value; a projective one stays clear of the vectors that sum to minus one."""
    return scale / (2 * math.prod(shift.shape)) if shift.projective else scale


def moves(space: Space) -> bool:
    """Whether the group of the space has an element besides the identity."""
    return space.group.is_matrix or space.group.permutes or bool(space.scales)


def dimension_of(space: Space, spec: SymmetrySpec) -> int:
    """Dimension of the continuous group of a space, counted for every index of the spaces that it depends on."""
    return lie.dimension(space, spec.space_map)


def canonicalize(spec: SymmetrySpec, state: State) -> dict[str, torch.Tensor]:
    """The normal form that the groups are stated for: every absorbed gain is one, its targets have taken it over.

    A new state dict with the names and dtypes of ``state``; computed in float64. Raises
    :class:`~symgraph.errors.CheckpointError` for missing tensors, wrong shapes, and division by a gain that is zero.
    """
    tensors, owner = held(spec, state), owners(spec)
    neutral: dict[str, torch.Tensor] = {}
    pending: dict[str, list[tuple[Target, torch.Tensor]]] = defaultdict(list)

    def value(tensor: model.Tensor) -> torch.Tensor:
        result = neutral[tensor.name] if tensor.name in neutral else fetch(tensor, state)
        for target, gain in pending[tensor.name]:
            result = _fold(result.double(), target, gain, tensor.name)
        return result

    for absorption in spec.absorptions:
        source = owner[absorption.source]
        current = value(source).double()
        gain = absorption.multiplier * current + absorption.offset
        pending[source.name], neutral[source.name] = [], torch.full_like(current, absorption.neutral)
        for target in absorption.targets:
            pending[owner[target.tensor].name].append((target, gain.reshape(-1)))
    result = dict(state)
    for tensor in tensors:
        if tensor.name in neutral or tensor.name in pending:
            moved = value(tensor).to(fetch(tensor, state).dtype)
            result.update(dict.fromkeys(names(tensor, state), moved))
    return result


def tangents(spec: SymmetrySpec, canon: State, order: Sequence[str] | None = None) -> torch.Tensor:
    """Orbit directions at the canonical weights ``canon``: float64 [n_params, columns].

    Columns: a basis of the Lie algebra of every space, then every shift (``Shift.dimension`` of them), then every
    entry of every absorbed gain. Rows: the entries of the parameters in ``order`` (default: the spec's), a tied
    parameter under any one of its names. All derivatives are exact.
    """
    owner = owners(spec)
    given = order if order is not None else [one.name for one in spec.tensors if one.kind == "parameter"]
    start, rows = {}, 0
    for name in given:
        start[owner[name].name if name in owner else name] = rows
        rows += owner[name].numel if name in owner else canon[name].numel()
    tensors, spaces = held(spec, canon), spec.space_map
    weights = {tensor.name: fetch(tensor, canon).detach().double() for tensor in tensors}
    carriers = _carriers(tensors)
    parts = [_space_directions(space, spaces, carriers[space.name], weights) for space in spec.spaces]
    parts += [_shift_directions(shift, weights, owner) for shift in spec.shifts]
    parts += [_absorption_directions(one, weights, owner) for one in spec.absorptions]
    result = torch.zeros(rows, sum(count for count, _ in parts), dtype=torch.float64)
    column = 0
    for count, directions in parts:
        for name, values in directions:
            if name in start:
                result[start[name] : start[name] + len(values), column : column + count] += values.to(result)
        column += count
    return result


Directions = tuple[int, list[tuple[str, torch.Tensor]]]  # number of columns; per tensor [numel, columns], to be summed


Carriers = list[tuple[str, tuple[Word, ...]]]  # the tensors that a space stands on, with their words


def _carriers(tensors: list[model.Tensor]) -> dict[str, Carriers]:
    found: dict[str, Carriers] = defaultdict(list)
    for tensor in tensors:
        words = words_of(tensor)
        for name in {factor.space for word in words for factor in word.factors()}:
            found[name].append((tensor.name, words))
    return found


def _space_directions(space: Space, spaces: dict[str, Space], carriers: Carriers, weights: State) -> Directions:
    """Derivative of the action along every coordinate of the Lie algebra, at the identity."""
    count = lie.dimension(space, spaces)
    if not count:
        return 0, []

    def moved(coordinates: torch.Tensor) -> tuple[torch.Tensor, ...]:
        element = {space.name: lie.first_order(space, spaces, coordinates)}
        return tuple(act(weights[name][None], words, element, spaces).reshape(-1) for name, words in carriers)

    def derivative(direction: torch.Tensor) -> tuple[torch.Tensor, ...]:
        result: tuple[torch.Tensor, ...] = torch.func.jvp(moved, (torch.zeros_like(direction),), (direction,))[1]
        return result

    units = torch.eye(count, dtype=torch.float64)
    values = torch.vmap(derivative, chunk_size=CHUNK)(units) if carriers else ()
    return count, [(name, value.mT) for (name, _), value in zip(carriers, values, strict=True)]


def _shift_directions(shift: model.Shift, weights: State, owner: dict[str, model.Tensor]) -> Directions:
    """One direction per entry of the value, or an independent ``shift.dimension`` of them where these are fewer."""
    current = {alias: weights[tensor.name] for alias, tensor in owner.items() if tensor.name in weights}
    found = [(owner[name].name, values) for name, values in shifts.columns(shift, current)]
    count = found[0][1].shape[1]
    if shift.dimension >= count:
        return count, found
    total: dict[str, torch.Tensor] = {}
    for name, values in found:
        total[name] = total[name] + values if name in total else values
    stacked = torch.cat(list(total.values()))
    keep = torch.linalg.svd(stacked, full_matrices=False).Vh[: shift.dimension].mT
    return shift.dimension, [(name, values @ keep) for name, values in total.items()]


def _absorption_directions(absorption: Absorption, weights: State, owner: dict[str, model.Tensor]) -> Directions:
    """Entry i of the gain grows by epsilon and the targets shrink along their axis: d target = -power * slice i."""
    source = weights[owner[absorption.source].name]
    count = source.numel()
    found = [(owner[absorption.source].name, torch.eye(count, dtype=torch.float64) / absorption.multiplier)]
    for target in absorption.targets:
        value = weights[owner[target.tensor].name]
        entries = torch.arange(target.start, target.start + target.outer * count * target.inner)
        gains = torch.arange(count).repeat(target.outer).repeat_interleave(target.inner)
        flat = torch.arange(value.numel()).reshape(value.shape).movedim(target.axis, 0)[entries].reshape(len(gains), -1)
        direction = torch.zeros(value.numel(), count, dtype=torch.float64)
        direction[flat, gains[:, None]] = -target.power * value.reshape(-1)[flat]
        found.append((owner[target.tensor].name, direction))
    return count, found


def _fold(value: torch.Tensor, target: Target, gain: torch.Tensor, name: str) -> torch.Tensor:
    """``value`` times ``gain ** power`` along the target's axis; 0 / 0 is 0."""
    tiled = gain.to(value.device).repeat(target.outer).repeat_interleave(target.inner)
    factor = torch.ones(value.shape[target.axis], dtype=torch.float64, device=value.device)
    factor[target.start : target.start + len(tiled)] = tiled
    shape = [1] * value.ndim
    shape[target.axis] = -1
    if target.power == 1:
        return value * factor.reshape(shape)
    zero = factor == 0
    bad = (zero.reshape(shape) & (value != 0)).nonzero()
    if len(bad):
        index = tuple(int(one) for one in bad[0])
        raise CheckpointError(f"tensor {name!r} at {list(index)} would be divided by a gain that is zero")
    return value / torch.where(zero, 1.0, factor).reshape(shape)


def _stream(seed: int, name: str) -> torch.Generator:
    """A generator of its own for every name, the same in every process."""
    number = hashlib.sha256(f"{seed}:{name}".encode()).digest()[:7]
    return torch.Generator().manual_seed(int.from_bytes(number, "big"))
