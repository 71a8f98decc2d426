"""A spec for people: the table of its spaces, and the story of one of them.

Rows and lines that repeat over layers are written once, with a range: ``layers.{0..31}.qk``.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from math import prod

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from symgraph.algebra import lie
from symgraph.algebra.elements import depth
from symgraph.algebra.groups import Group
from symgraph.algebra.words import parse
from symgraph.errors import SpecError
from symgraph.spec.folding import Json, fold
from symgraph.spec.model import Space, SymmetrySpec

LINES = 12  # longest list of tensors or operators in a story

_SCALES = {"positive": "R+", "real": "R*", "sign": "{±1}"}
_INDEX = re.compile(r"\{\{|\}\}|\{\}|\{(\d*)([a-z])([+-]\d+)?\}")  # as :mod:`symgraph.spec.folding` writes them


def spaces_table(spec: SymmetrySpec) -> Table:
    """One row for every space, or for every run of layers: name, group, size, per, dimension, number of tensors."""
    table = Table(title=spec.identity.model or None, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for heading, style in (("space", "bold"), ("group", "cyan"), ("per", "")):
        table.add_column(heading, style=style, overflow="fold")
    for heading in ("size", "dim", "tensors"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row, count in folded(_rows(spec)):
        each = f"{count} x " if count > 1 else ""
        dimension = f"{each}{row['dimension']:,}" if row["dimension"] else "0"
        texts = (escape(row[key]) for key in ("name", "group", "per"))
        table.add_row(*texts, str(row["size"]), dimension, f"{each}{row['tensors']}")
    table.caption = ", ".join(_summary(spec))
    table.caption_justify = "left"
    return table


def group_text(space: Space, spaces: Mapping[str, Space]) -> str:
    """The group in mathematical form: ``O(4096)``, ``GL(4)^2 wr S_2``, ``S_6, scale R*``.

    ``G^k wr S_k`` has an element of G for each of the k indices of an outer space that permutes.
    """
    text = _GROUPS.get(space.group, _permutations)(space)
    copies = prod(spaces[name].size for name in space.per)
    if copies > 1:
        text = f"({text})^{copies}" if " " in text else f"{text}^{copies}"
    for outer in sorted(space.per, key=lambda name: -depth(name, spaces)):
        text += f" wr S_{spaces[outer].size}" if spaces[outer].group.permutes and spaces[outer].size > 1 else ""
    return text


def explain_text(spec: SymmetrySpec, space_name: str) -> str:
    """Why a space has this group and no larger one, and what carries it; SpecError for an unknown name."""
    return "\n".join(_story(_find(spec, space_name), spec))


def folded(items: Iterable[dict[str, Json]]) -> Iterator[tuple[dict[str, Json], int]]:
    """Items that differ by integers in their strings, once: with ranges for the integers, and how many there are."""
    yield from _with_ranges(fold(list(items)), {})


def _with_ranges(items: list[Json], ranges: dict[str, tuple[int, int]]) -> Iterator[tuple[dict[str, Json], int]]:
    for item in items:
        header = next(iter(item))
        if header.startswith("for "):
            letter, start, stop = re.findall(r"for (\w) in (\d+)\.\.(\d+)", header)[0]
            yield from _with_ranges(item[header], {**ranges, letter: (int(start), int(stop))})
        else:
            row = {key: _ranged(value, ranges) if isinstance(value, str) else value for key, value in item.items()}
            yield row, prod(stop - start + 1 for start, stop in ranges.values())


def _ranged(text: str, ranges: dict[str, tuple[int, int]]) -> str:
    """``{2i+1}`` as the range of its values."""

    def written(match: re.Match[str]) -> str:
        if match[2] is None:
            return match.group()[:1] if len(set(match.group())) == 1 else ""
        factor, offset = int(match[1] or 1), int(match[3] or 0)
        start, stop = (factor * end + offset for end in ranges[match[2]])
        return f"{{{start}..{stop}}}" if factor == 1 else f"{{{start}..{stop} by {factor}}}"

    return _INDEX.sub(written, text)


def _rows(spec: SymmetrySpec) -> Iterator[dict[str, Json]]:
    spaces = spec.space_map
    carriers = Counter(
        name for tensor in spec.tensors for name in {factor.space for word in tensor.words for factor in word.factors()}
    )
    for space in spec.spaces:
        yield {
            "name": space.name,
            "group": group_text(space, spaces),
            "per": ", ".join(_relative(outer, space.name) for outer in space.per),
            "size": space.size,
            "dimension": lie.dimension(space, spaces),
            "tensors": carriers[space.name],
        }


def _relative(outer: str, name: str) -> str:
    """The name of an outer space without the path that it shares with ``name``."""
    shared = 0
    for a, b in zip(outer.split(".")[:-1], name.split("."), strict=False):
        if a != b:
            break
        shared += len(a) + 1
    return outer[shared:]


def _summary(spec: SymmetrySpec) -> Iterator[str]:
    counts = ((len(spec.absorptions), "absorption"), (len(spec.shifts), "shift"), (len(spec.pins), "pin"))
    yield f"dimension {spec.dimension.total:,}"
    yield from (f"{count} {what}{'s' if count > 1 else ''}" for count, what in counts if count)


def _power(text: str, count: int) -> str:
    return f"{text}^{count}" if count > 1 else text


def _commutant(space: Space) -> str:
    """``GL(1, C)^4 x GL(2, R)``: blocks of one kind together."""
    kinds = Counter((block.field == "complex", len(block.coordinates)) for block in space.blocks)
    orthogonal = space.group.is_orthogonal
    texts = {
        kind: (f"U({kind[1]})" if kind[0] else f"O({kind[1]})")
        if orthogonal
        else f"GL({kind[1]}, {'C' if kind[0] else 'R'})"
        for kind in kinds
    }
    return " x ".join(_power(texts[kind], count) for kind, count in kinds.items()) or "1"


def _permutations(space: Space) -> str:
    base = f"S_{space.size}" if space.group.permutes and space.size > 1 else ""
    values = len(space.partition) or space.size
    own = "" if base or values == 1 else f"^{values}"
    return ", ".join([base] * bool(base) + [f"{one.name} {_SCALES[one.kind]}{own}" for one in space.scales]) or "1"


_GROUPS = {
    Group.GENERAL_LINEAR: lambda space: f"GL({space.size})",
    Group.ORTHOGONAL: lambda space: f"O({space.size})",
    Group.ORTHOGONAL_FIXING_ONES: lambda space: f"O({space.size - 1}) fixing 1",
    Group.COMMUTANT: _commutant,
    Group.ORTHOGONAL_COMMUTANT: _commutant,
}  # all others are permutations with scales


def _find(spec: SymmetrySpec, name: str) -> Space:
    names = [space.name for space in spec.spaces]
    if name in names:
        return spec.space(name)
    close = get_close_matches(name, names, n=3, cutoff=0.5) or [one for one in names if name in one][:3] or names[:3]
    raise SpecError(f"the spec has no space {name!r}: did you mean {' or '.join(map(repr, close))}?" if close else
                    f"the spec has no space {name!r}, and no other")  # fmt: skip


def _story(space: Space, spec: SymmetrySpec) -> Iterator[str]:
    spaces = spec.space_map
    group, dimension = group_text(space, spaces), lie.dimension(space, spaces)
    role = f" ({space.role})" if space.role not in ("", space.name.split(".")[-1]) else ""
    yield f"{space.name}{role}: {group}, size {space.size}, {dimension:,} continuous dimensions"
    if space.per:
        yield f"It is another element for every index of {', '.join(space.per)}."
    inner = [one.name for one in spec.spaces if space.name in one.per]
    if inner:
        yield f"Its index decides about {_shortened(inner)}: permutations and scales are the most that it can have."
    yield from _reasons(space)
    absorbed = _absorbed(space, spec)
    if absorbed:
        yield "It holds after these gains are absorbed:"
        yield from _listed(absorbed)
    yield "Carried by:"
    yield from _listed(_carriers(space, spec))


def _reasons(space: Space) -> Iterator[str]:
    """The operators that use a structure of the space, with all modules in which one line does so."""
    if not space.provenance:
        if space.group is Group.GENERAL_LINEAR:
            yield "Only contractions use it, and they forbid nothing: no group is larger."
        return
    yield "No larger group, because of:"
    modules: dict[str, list[str]] = defaultdict(list)
    for fact in space.provenance:
        source = f" at {fact.source}" if fact.source else ""
        reason = f" ({fact.reason})" if fact.reason else ""
        modules[f"{fact.structure}: {fact.operator}{source}{reason}"].append(fact.module)
    for text, where in modules.items():
        names = [row["text"] for row, _ in folded({"text": name} for name in dict.fromkeys(where) if name)]
        yield f"  {text}" + (f", in {_shortened(names)}" if names else "")


def _absorbed(space: Space, spec: SymmetrySpec) -> list[str]:
    tensors = {name: tensor for tensor in spec.tensors for name in (tensor.name, *tensor.aliases)}

    def touches(tensor: str, axis: int) -> bool:
        return any(factor.space == space.name for factor in tensors[tensor].words[axis].factors())

    return [one.source for one in spec.absorptions if any(touches(to.tensor, to.axis) for to in one.targets)]


def _carriers(space: Space, spec: SymmetrySpec) -> list[str]:
    lines = []
    for tensor in spec.tensors:
        if any(factor.space == space.name for word in tensor.words for factor in word.factors()):
            lines.append(f"{tensor.name} [{', '.join(tensor.axes)}]")
        elif tensor.scale and any(factor.space == space.name for factor in parse(tensor.scale).factors()):
            lines.append(f"{tensor.name} as a whole, by {tensor.scale}")
    return lines


def _listed(lines: list[str]) -> Iterator[str]:
    short = [row["text"] for row, _ in folded({"text": line} for line in lines)]
    yield from (f"  {line}" for line in short[:LINES])
    if len(short) > LINES:
        yield f"  and {len(short) - LINES} more"


def _shortened(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
