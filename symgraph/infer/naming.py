"""Names of spaces, from what their operators do and from the modules their tensors live in.

A role comes from the laws: what is summed in the product of two activations compares them (``qk``), what passes from one of
them is carried (``ov``), an axis they share is a ``head``; a space that two activations are added on is ``residual``. The
path in front is what the names of its tensors have in common.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from symgraph.infer.equations import Layout
from symgraph.infer.interpret import Typing
from symgraph.infer.ir import Program, Value
from symgraph.infer.solve import Leaf, Solution
from symgraph.infer.spaces import IndexSpace
from symgraph.rules.law import Law, Structure, pattern_letters

ORDER = ("residual", "qk", "ov", "head", "hidden")
"""Roles from the strongest evidence to the weakest."""


def parametric_values(program: Program) -> set[int]:
    """Values that depend on no input."""
    found = {id(value) for value in program.tensors.values()}
    for op in program.ops:
        if all(id(value) in found or (value.known and not value.data) for value in op.operands):
            found.update(id(value) for value in op.results)
    return found


def roles(program: Program, typing: Typing, solution: Solution) -> dict[IndexSpace, str]:
    """One role for every leaf."""
    parametric = parametric_values(program)
    votes: dict[IndexSpace, Counter[str]] = {leaf: Counter() for leaf in solution.leaves}
    for applied in typing.applied:
        for letter, role in _votes(applied.law, applied.operands, parametric):
            for branch in solution.layout.of(applied.letters[letter]) if letter in applied.letters else []:
                for leaf in branch:
                    if leaf in votes:
                        votes[leaf][role] += 1
    outer = {space for leaf in solution.leaves.values() for space in leaf.per}
    return {leaf: _role(solution.leaves[leaf], votes[leaf], leaf in outer, outer, solution) for leaf in votes}


def _votes(law: Law, operands: list[Value], parametric: set[int]) -> Iterable[tuple[str, str]]:
    if law.results[0] is None:
        return
    kept = set(pattern_letters(law.results[0]))

    def active(index: int) -> bool:
        value = operands[index]
        return id(value) not in parametric and not value.known

    singles = [monomial.powers[0][0] for monomial in law.terms if len(monomial.powers) == 1]
    if len(singles) == len(law.terms) == 2 and all(active(index) for index in singles):
        both = [set(pattern_letters(law.operands[index] or ())) for index in singles]
        yield from ((letter, "residual") for letter in both[0] & both[1] & kept)
    for monomial in law.terms:
        indices = [index for index, entry in monomial.powers if entry.linear and active(index)]
        if len(indices) == 2 and operands[indices[0]] is not operands[indices[1]]:
            first, second = (set(pattern_letters(law.operands[index] or ())) for index in indices)
            if (first & second) - kept:
                yield from ((letter, "qk") for letter in (first & second) - kept)
                yield from ((letter, "head") for letter in first & second & kept)
                yield from ((letter, "ov") for letter in (first ^ second) & kept)


def _role(leaf: Leaf, votes: Counter[str], is_outer: bool, outer: set[IndexSpace], solution: Solution) -> str:
    structures = {record.structure for record in leaf.records}
    if leaf.space.size == 1:
        return "unit"
    if votes["residual"] >= 2 and not leaf.per:
        return "residual"
    if is_outer:
        return "head" if votes["head"] else "expert"
    if votes["head"]:
        return "query" if leaf.per else "head"
    if votes["qk"]:
        return "qk"
    if votes["ov"]:
        return "ov"
    return "hidden" if Structure.COORDINATES in structures else "inner"


def names(program: Program, typing: Typing, solution: Solution) -> dict[IndexSpace, tuple[str, str]]:
    """(name, role) of every leaf; names are unique."""
    found = roles(program, typing, solution)
    tensors: dict[IndexSpace, list[str]] = {leaf: [] for leaf in found}
    for tensor in solution.tensors:
        for leaf in {leaf for entries in tensor.blocks.values() for _, leaf in entries}:
            tensors[leaf].append(tensor.name)
    grouped = {leaf for leaf in found if found[leaf] == "query" for leaf in solution.leaves[leaf].per}
    result: dict[IndexSpace, tuple[str, str]] = {}
    taken: set[str] = set()
    residuals = sum(role == "residual" for role in found.values())
    for leaf, role in found.items():
        role = "kv_head" if role == "head" and leaf in grouped else role
        path = "" if role == "residual" and residuals == 1 else common_path(tensors[leaf])
        result[leaf] = (unique(f"{path}.{role}" if path else role, taken), role)
    return result


def common_path(names_: list[str]) -> str:
    """The module path that all tensors share, without the name of the tensor itself."""
    split = [name.split(".")[:-1] for name in names_]
    shared: list[str] = []
    for parts in zip(*split, strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return ".".join(part if not part.isdigit() or shared else f"m{part}" for part in shared)


def unit_path(names_: list[str]) -> str:
    """The module path of what stands on some tensors: of the first of two neighbours in a list where it spans both."""
    path = common_path(names_)
    depth = path.count(".") + 1 if path else 0
    first, *others = (name.split(".")[:-1] for name in names_)
    place = next((index for index in range(depth, len(first)) if first[index].isdigit()), None)
    if place is None:
        return path
    own, rest = first[: place + 1], [other for other in others if other[: place + 1] != first[: place + 1]]
    return ".".join(own) if len({tuple(other[: place + 1]) for other in rest}) < 2 else path


def unique(name: str, taken: set[str]) -> str:
    """The name, or the name with the first number that makes it new."""
    name = name if not name[:1].isdigit() else f"m{name}"
    candidate, number = name, 2
    while candidate in taken:
        candidate, number = f"{name}_{number}", number + 1
    taken.add(candidate)
    return candidate


__all__ = ["Layout", "common_path", "names", "parametric_values", "roles", "unique", "unit_path"]
