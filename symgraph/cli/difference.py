"""What changed between two specs, in words. Lines that repeat over layers are said once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from symgraph.spec.model import Absorption, Shift, Space, SymmetrySpec, Tensor
from symgraph.spec.render import folded, group_text


def differences(a: SymmetrySpec, b: SymmetrySpec) -> list[str]:
    """One line for every change from a to b; none where the symmetries are the same. Versions do not count."""
    lines = [*_identity(a, b), *_spaces(a, b), *_tensors(a, b), *_absorptions(a, b), *_shifts(a, b), *_pins(a, b)]
    approximate = ({one.name: one for one in spec.approximate} for spec in (a, b))
    lines += (f"approximate symmetry {name} {text}" for name, text in _gone_and_new(*approximate))
    rows = folded({"text": line} for line in lines)
    short = [row["text"] + (f" ({count} times)" if count > 1 else "") for row, count in rows]
    if a.dimension.total != b.dimension.total:
        short.append(f"dimension: {a.dimension.total:,} -> {b.dimension.total:,}")
    return short


def _identity(a: SymmetrySpec, b: SymmetrySpec) -> Iterator[str]:
    if a.identity.model != b.identity.model:
        yield f"model: {a.identity.model} -> {b.identity.model}"
    if a.identity.untied != b.identity.untied:
        yield f"tied parameters: {_ties(a)} -> {_ties(b)}"


def _ties(spec: SymmetrySpec) -> str:
    return "apart" if spec.identity.untied else "together"


def _spaces(a: SymmetrySpec, b: SymmetrySpec) -> Iterator[str]:
    before, after = a.space_map, b.space_map
    for name, text in _gone_and_new(before, after):
        spec = a if name in before else b
        yield f"space {name} {text}: {group_text(spec.space(name), spec.space_map)}"
    for name in before:
        if name in after and before[name] != after[name]:
            yield from _space(before[name], after[name], a, b)


def _space(one: Space, other: Space, a: SymmetrySpec, b: SymmetrySpec) -> Iterator[str]:
    name = one.name
    if one.size != other.size:
        yield f"space {name}: size {one.size} -> {other.size}"
    group = (group_text(one, a.space_map), group_text(other, b.space_map))
    if group[0] != group[1]:
        yield f"space {name}: {group[0]} -> {group[1]}"
    elif _structure(one) != _structure(other):
        yield f"space {name}: {group[0]} acts on other coordinates"
    if one.per != other.per:
        yield f"space {name}: depends on {_listed(one.per)} -> {_listed(other.per)}"
    facts = [f"{fact.structure} by {fact.operator}" for fact in one.provenance]
    others = [f"{fact.structure} by {fact.operator}" for fact in other.provenance]
    yield from (f"space {name}: no longer uses {text}" for text in dict.fromkeys(facts) if text not in others)
    yield from (f"space {name}: now uses {text}" for text in dict.fromkeys(others) if text not in facts)


def _structure(space: Space) -> Any:
    return space.group, space.scales, space.blocks, space.partition


def _tensors(a: SymmetrySpec, b: SymmetrySpec) -> Iterator[str]:
    before, after = a.tensor_map, b.tensor_map
    for name, text in _gone_and_new(before, after):
        yield f"tensor {name} {text}"
    for name, one in before.items():
        if name in after and one != after[name]:
            yield from _tensor(one, after[name])


def _tensor(one: Tensor, other: Tensor) -> Iterator[str]:
    if one.shape != other.shape:
        yield f"tensor {one.name}: shape {list(one.shape)} -> {list(other.shape)}"
    if (one.axes, one.scale) != (other.axes, other.scale):
        yield f"tensor {one.name}: {_typed(one)} -> {_typed(other)}"
    if one.aliases != other.aliases:
        yield f"tensor {one.name}: shared with {_listed(one.aliases)} -> {_listed(other.aliases)}"


def _typed(tensor: Tensor) -> str:
    return f"[{', '.join(tensor.axes)}]" + (f" scaled by {tensor.scale}" if tensor.scale else "")


def _absorptions(a: SymmetrySpec, b: SymmetrySpec) -> Iterator[str]:
    before, after = ({one.source: one for one in spec.absorptions} for spec in (a, b))
    for name, text in _gone_and_new(before, after):
        yield f"absorption of {name} {text}"
    for name, one in before.items():
        if name in after and _folding(one) != _folding(after[name]):
            yield f"absorption of {name}: into {_folding(one)} -> {_folding(after[name])}"


def _folding(absorption: Absorption) -> str:
    targets = [f"{to.tensor} axis {to.axis}" + (" divided" if to.power == -1 else "") for to in absorption.targets]
    factor, offset = absorption.multiplier, absorption.offset
    gain = "" if (factor, offset) == (1.0, 0.0) else f" as {factor:g} x + {offset:g}"
    return f"{absorption.direction} {', '.join(targets)}{gain}"


def _shifts(a: SymmetrySpec, b: SymmetrySpec) -> Iterator[str]:
    before, after = ({one.name: one for one in spec.shifts} for spec in (a, b))
    for name, text in _gone_and_new(before, after):
        yield f"shift {name} {text}"
    for name, one in before.items():
        if name in after and _moved(one) != _moved(after[name]):
            yield f"shift {name}: {_moved(one)} -> {_moved(after[name])}"


def _moved(shift: Shift) -> str:
    return f"{shift.dimension} dimensions of {', '.join(term.target.tensor for term in shift.terms)}"


def _pins(a: SymmetrySpec, b: SymmetrySpec) -> Iterator[str]:
    before, after = ({pin.node: f"{pin.operator} ({pin.reason})" for pin in spec.pins} for spec in (a, b))
    yield from (f"pin at {name} is gone: {text}" for name, text in before.items() if name not in after)
    yield from (f"pin at {name} is new: {text}" for name, text in after.items() if name not in before)


def _gone_and_new(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield from ((name, "is gone") for name in before if name not in after)
    yield from ((name, "is new") for name in after if name not in before)


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "none"
