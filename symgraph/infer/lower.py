"""From a solution to the spec: names, words, scales, absorptions, provenance, dimension."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import symgraph
from symgraph.algebra.groups import Group
from symgraph.algebra.words import Factor, Product, Word
from symgraph.frontend.graph import Graph
from symgraph.infer.absorb import Absorbed
from symgraph.infer.equations import Block, Slot
from symgraph.infer.generators import Generator, approximate, select
from symgraph.infer.interpret import Record, Typing, Unruled
from symgraph.infer.ir import Program
from symgraph.infer.naming import names, unique, unit_path
from symgraph.infer.shifts import find_shifts
from symgraph.infer.solve import Leaf, Solution, TensorLayout
from symgraph.infer.spaces import IndexSpace
from symgraph.infer.writing import Lowering, Writer, moves
from symgraph.spec import model
from symgraph.spec.operations import dimension_of

Occurrence = tuple[int, ...]
FACTS_PER_STRUCTURE = 2
"""How many operators the spec names for each structure of a space."""


def lower(
    graph: Graph, program: Program, typing: Typing, solution: Solution, absorbed: list[Absorbed], untie: bool
) -> model.SymmetrySpec:
    """The spec of a solved program."""
    state = Lowering(solution, names(program, typing, solution))
    state.outer = {outer for leaf in solution.leaves.values() for outer in leaf.per}
    generators = select(solution)
    _consistent_variance(solution)
    for generator in generators:
        _place(generator, state)
    spaces = [_space(leaf, state) for leaf in solution.leaves.values() if moves(leaf, state)]
    spaces += state.units
    tensors = tuple(_tensor(tensor, state, graph, untie) for tensor in solution.tensors)
    if state.unit_factors:
        raise AssertionError(f"scales without a place: {sorted(state.unit_factors)}")
    spec = model.SymmetrySpec(
        identity=_identity(graph, untie),
        spaces=tuple(spaces),
        tensors=tensors,
        absorptions=tuple(_absorption(each, program) for each in absorbed),
        shifts=tuple(find_shifts(program, typing, solution)),
        pins=tuple(_pin(each) for each in typing.unruled),
        approximate=tuple(_approximate(solution, generators)),
        dimension=model.Dimension(by_space={}, by_kind={}, total=0),
    )
    return spec.model_copy(update={"dimension": dimension(spec)})


def dimension(spec: model.SymmetrySpec) -> model.Dimension:
    """Independent continuous directions by space, by kind and in total."""
    by_space = {space.name: count for space in spec.spaces if (count := dimension_of(space, spec))}
    kinds: dict[str, int] = {}
    for space in spec.spaces:
        if space.name in by_space:
            kind = space.group.value if space.group.is_matrix else "scale"
            kinds[kind] = kinds.get(kind, 0) + by_space[space.name]
    shapes = {tensor.name: tensor.numel for tensor in spec.tensors}
    folded = sum(shapes[each.source] for each in spec.absorptions)
    shifted = sum(each.dimension for each in spec.shifts)
    kinds |= {kind: count for kind, count in (("absorption", folded), ("shift", shifted)) if count}
    return model.Dimension(by_space=by_space, by_kind=dict(sorted(kinds.items())), total=sum(kinds.values()))


# --- generators -------------------------------------------------------------------------------------------------------


def _place(generator: Generator, state: Lowering) -> None:
    """Write a generator on the factors of its leaf, or on a space of size one where the summands differ."""
    leaf = generator.leaf
    if leaf is not None:
        weights = _by_occurrence(generator, state.solution)
        if weights is not None:
            existing = state.scales.setdefault(leaf, [])
            name = _scale_name(generator, existing)
            existing.append(model.Scale(name=name, kind=_kind(generator)))
            for slot, weight in generator.weights.items():
                state.weights.setdefault(slot, []).append((name, weight))
            return
    _unit(generator, state)


def _kind(generator: Generator) -> Literal["positive", "real", "sign"]:
    return "sign" if generator.kind == "sign" else "real" if generator.kind == "real" else "positive"


def _scale_name(generator: Generator, existing: list[model.Scale]) -> str:
    base = "sign" if generator.kind == "sign" else "scale"
    taken = {scale.name for scale in existing}
    return unique(base, taken)


def _occurrences(space: IndexSpace, solution: Solution, path: Occurrence = ()) -> list[list[Occurrence]]:
    """Paths of the factors of every branch, in the order of the branches."""
    root = space.root()
    if not root.kind or solution.layout.of(root) == [(root,)]:
        moves = any(not leaf.anchored for leaf in solution.layout.of(root)[0])
        return [[path] if moves else []]
    parts = [_occurrences(part, solution, (*path, index)) for index, part in enumerate(root.parts)]
    if root.kind == "sum":
        return [branch for part in parts for branch in part]
    found: list[list[Occurrence]] = [[]]
    for part in parts:
        found = [prefix + branch for prefix in found for branch in part]
    return found


def _by_occurrence(generator: Generator, solution: Solution) -> bool | None:
    """Whether every factor of the leaf has one weight, whatever the summand it is read in; None if not."""
    for tensor in solution.carriers.get(generator.leaf, []) if generator.leaf is not None else []:
        seen: dict[tuple[int, Occurrence], int] = {}
        paths = [None if space is None else _occurrences(space, solution) for space in tensor.axes]
        for block, entries in tensor.blocks.items():
            for slot, leaf in entries:
                if leaf is not generator.leaf:
                    continue
                axis, position = slot[2], slot[3]
                along = paths[axis]
                assert along is not None
                key = (axis, along[block[axis]][position])
                if seen.setdefault(key, generator.weights.get(slot, 0)) != generator.weights.get(slot, 0):
                    return None
    return True


def _consistent_variance(solution: Solution) -> None:
    """A matrix acts on a factor in one way; where summands ask for both, only orthogonal matrices do."""
    for leaf in solution.leaves.values():
        if leaf.variance:
            probe = Generator(leaf.space, "real", leaf.variance, frozenset())
            if _by_occurrence(probe, solution) is None:
                leaf.variance = {}
                general = leaf.group is Group.GENERAL_LINEAR
                leaf.group = Group.ORTHOGONAL if general else Group.ORTHOGONAL_COMMUTANT


def _unit(generator: Generator, state: Lowering) -> None:
    """A space of size one, for every index of the domain, with one factor on every summand it scales."""
    placed: list[tuple[TensorLayout, dict[Block, int]]] = []
    touched = dict.fromkeys(slot[0] for slot in generator.weights)
    for tensor in (state.solution.by_value[value] for value in touched):
        weights = {block: sum(generator.weights.get(slot, 0) for slot in _block_slots(tensor, block))
                   for block in tensor.blocks}  # fmt: skip
        if any(weights.values()):
            if _additive(weights) is None or any(_tangled(space, state.solution) for space in tensor.axes):
                return
            placed.append((tensor, weights))
    if not placed:
        return
    path = unit_path([tensor.name for tensor, _ in placed])
    leaf_name = state.names[generator.leaf][1] if generator.leaf is not None else ""
    base = "_".join(part for part in (leaf_name, "sign" if generator.kind == "sign" else "scale") if part)
    taken = {name for name, _ in state.names.values()} | {space.name for space in state.units}
    name = unique(f"{path}.{base}" if path else base, taken)
    per = tuple(sorted(state.names[leaf][0] for leaf in generator.domain))
    state.outer |= generator.domain
    scale = model.Scale(name="sign" if generator.kind == "sign" else "scale", kind=_kind(generator))
    state.units.append(model.Space(name=name, size=1, group=Group.DIAGONAL, per=per, scales=(scale,), role="scale"))
    for tensor, weights in placed:
        constant, parts = _additive(weights) or (0, {})
        if constant:
            state.whole.setdefault(tensor.name, []).append((name, scale.name, constant))
        for (axis, branch), weight in parts.items():
            if weight:
                state.unit_factors.setdefault((tensor.name, axis, branch), []).append((name, scale.name, weight))


def _block_slots(tensor: TensorLayout, block: Block) -> Iterable[Slot]:
    yield tensor.whole(block)
    for slot, _ in tensor.blocks[block]:
        yield slot


def _tangled(space: IndexSpace | None, solution: Solution) -> bool:
    """Whether two factors of a product are direct sums: then no factor belongs to one summand alone."""
    if space is None or not space.root().kind:
        return False
    root = space.root()
    counts = [len(solution.layout.of(part)) for part in root.parts]
    several = root.kind == "product" and sum(count > 1 for count in counts) > 1
    return several or any(_tangled(part, solution) for part in root.parts)


def _additive(weights: dict[Block, int]) -> tuple[int, dict[tuple[int, int], int]] | None:
    """Weights of blocks as a constant plus a part for every summand of every axis; None where they are not."""
    origin = next(iter(weights))
    parts: dict[tuple[int, int], int] = {}
    for block, weight in weights.items():
        different = [axis for axis in range(len(block)) if block[axis] != origin[axis]]
        if len(different) == 1:
            parts[different[0], block[different[0]]] = weight - weights[origin]
    for block, weight in weights.items():
        total = weights[origin] + sum(parts.get((axis, branch), 0) for axis, branch in enumerate(block))
        if total != weight:
            return None
    constant = weights[origin]
    summed = [axis for axis in range(len(origin)) if len({block[axis] for block in weights}) > 1]
    if constant and summed:  # written on the summands themselves: easier to read than a factor on all and its inverse
        axis = summed[0]
        for branch in {block[axis] for block in weights}:
            parts[axis, branch] = parts.get((axis, branch), 0) + constant
        constant = 0
    return constant, parts


# --- words ------------------------------------------------------------------------------------------------------------


def _group(leaf: Leaf, scales: list[model.Scale]) -> Group:
    """The name of the group, given the scales that were kept."""
    if leaf.group.is_matrix:
        return leaf.group
    kinds = {scale.kind for scale in scales}
    if not leaf.group.permutes:
        return Group.DIAGONAL if scales else Group.TRIVIAL
    if "real" in kinds or {"positive", "sign"} <= kinds:
        return Group.MONOMIAL
    if "positive" in kinds:
        return Group.POSITIVE_MONOMIAL
    return Group.SIGNED_PERMUTATION if kinds else Group.PERMUTATION


def _space(leaf: Leaf, state: Lowering) -> model.Space:
    name, role = state.names[leaf.space]
    scales = state.scales.get(leaf.space, [])
    group = _group(leaf, scales)
    return model.Space(
        name=name,
        size=leaf.space.size,
        group=group,
        per=tuple(sorted(state.names[other][0] for other in leaf.per if other in state.names)),
        scales=tuple(scales),
        blocks=tuple(_block_of(each) for each in leaf.blocks),
        partition=leaf.partition if scales else (),
        role=role,
        provenance=tuple(_facts(leaf.records)),
    )


def _block_of(block: tuple[str, tuple[tuple[int, ...], ...]]) -> model.Block:
    kind: Literal["real", "complex"] = "complex" if block[0] == "complex" else "real"
    return model.Block(field=kind, coordinates=block[1])


def _facts(records: list[Record]) -> Iterable[model.Fact]:
    seen: dict[str, set[str]] = {}
    for record in records:
        found = seen.setdefault(record.structure.value, set())
        if record.origin.source in found or len(found) >= FACTS_PER_STRUCTURE:
            continue
        found.add(record.origin.source)
        yield model.Fact(
            structure=record.structure.value, operator=record.origin.operator, source=record.origin.source,
            module=record.origin.module, reason=record.reason,
        )  # fmt: skip


def _tensor(tensor: TensorLayout, state: Lowering, graph: Graph, untie: bool) -> model.Tensor:
    axes = []
    for axis, (space, size) in enumerate(zip(tensor.axes, tensor.value.shape, strict=True)):
        axes.append(str(_axis(tensor, axis, space, state)) if space is not None else str(size))
    factors = [Factor(name, False, ((scale, weight),)) for name, scale, weight in state.whole.get(tensor.name, [])]
    return model.Tensor(
        name=tensor.name,
        shape=tensor.value.shape,
        axes=tuple(axes),
        scale=str(Product(tuple(factors))) if factors else "",
        kind="buffer" if tensor.value.buffer else "parameter",
        aliases=() if untie else graph.aliases.get(tensor.name, ()),
    )


def _axis(tensor: TensorLayout, axis: int, space: IndexSpace, state: Lowering) -> Word:
    base: dict[int, Slot] = {}
    for block in tensor.blocks:
        base.setdefault(block[axis], (id(tensor.value), block, axis, 0))
    writer = Writer(tensor, axis, base, state)
    return writer.word(space, 0, {})


# --- the rest ---------------------------------------------------------------------------------------------------------


def _identity(graph: Graph, untie: bool) -> model.Identity:
    identity = graph.identity
    versions = {"symgraph": symgraph.__version__, **{key: str(value) for key, value in identity["versions"].items()}}
    return model.Identity(
        model=str(identity["class"]), config_digest=str(identity["config_digest"]), untied=untie, versions=versions
    )


def _absorption(each: Absorbed, program: Program) -> model.Absorption:
    targets = tuple(
        model.Target(
            tensor=fold.tensor, axis=fold.place.axis, power=1 if fold.power > 0 else -1, outer=fold.place.outer,
            inner=fold.place.inner,
        )
        for fold in each.folds
    )  # fmt: skip
    fact = model.Fact(structure="gain", operator=each.origin.operator, source=each.origin.source, module=each.origin.module)
    return model.Absorption(
        source=each.source, direction="readers" if each.direction == "readers" else "writers",
        multiplier=each.multiplier, offset=each.offset, targets=targets, provenance=(fact,),
    )  # fmt: skip


def _pin(each: Unruled) -> model.Pin:
    origin = each.op.origin
    return model.Pin(node=each.op.node, operator=origin.operator, reason=each.reason, source=origin.source,
                     module=origin.module)  # fmt: skip


def _approximate(solution: Solution, generators: list[Generator]) -> Iterable[model.Approximate]:
    by_value = {id(tensor.value): tensor.name for tensor in solution.tensors}
    for number, row in enumerate(approximate(solution, generators)):
        found = {slot[0]: int(weight) for slot, weight in row.items() if slot[1] == (0,) * len(slot[1])}
        weights = {name: found[value] for value, name in by_value.items() if value in found}
        shifted = {name: solution.offsets[name] for name in weights if name in solution.offsets}
        yield model.Approximate(name=f"scale_{number}", condition="eps -> s^2 eps", weights=weights, offsets=shifted)
