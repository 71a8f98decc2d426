"""Integers that are computed from activations: which expert a token goes to, and in which order.

An integer tensor can *point* into a space: ``topk`` along the experts returns their indices. When the experts are permuted
the integers are relabelled; what reads with them still finds the same expert, so the space keeps its permutations. Tokens
that are sorted by expert stand on an axis whose order follows the experts (``implies``): a permutation of the experts
moves them, and they find back by the inverse of the sort. Nothing of this shows in a parameter, as long as every operator
on that axis treats its entries alike.

    scores[n, e] -> values[n, k], i[n, k]            i points to e
    i[n] -> i'[s], order[s]                          s follows e; order points to n
    x[n, d], order[s] -> y[s, d]                     read by pointer
    y[s, d], w[e, d, f], ends -> z[s, f]             a product with the weight of every entry's expert
    z[s, f], back[n] -> u[n, f]                      back points to s
"""

from __future__ import annotations

from dataclasses import replace

import torch

from symgraph.rules.examples import example
from symgraph.rules.indexing import known, read, written
from symgraph.rules.law import (
    CONSTANT,
    GENERIC,
    POSITIVELY_HOMOGENEOUS,
    Law,
    Pattern,
    Structure,
    Term,
    Use,
    pin,
    term,
)  # fmt: skip
from symgraph.rules.registry import Call, Operand, lettered, rule

CARRYING = frozenset({
    "view", "reshape", "_unsafe_view", "flatten", "unflatten", "permute", "transpose", "t", "expand", "unsqueeze",
    "squeeze", "slice", "clone", "contiguous", "alias", "detach", "_to_copy", "to", "lift_fresh_copy", "repeat",
})  # fmt: skip
"""Operators that rearrange or copy integers without changing what they mean."""


def carries(name: str) -> bool:
    """Whether an operator (``aten.view.default``) leaves the meaning of integers alone."""
    return name.split(".")[1] in CARRYING if name.count(".") >= 2 else False


def _coordinates(letter: str, reason: str) -> Use:
    return Use(letter, Structure.COORDINATES, reason)


def _blank(call: Call, patterns: dict[int, Pattern]) -> tuple[Pattern | None, ...]:
    return tuple(patterns.get(operand.index) for operand in call.operands)


@rule("aten.topk", examples=lambda draw: [example(draw(3, 7), 3), example(draw(7, 3), 1, 0), example(draw(3, 5, 7), 5, -1)])
def topk(call: Call) -> Law:
    """``x[n, e] -> values[n, k], i[n, k]``: the largest, positively homogeneous, and where they stand."""
    operand: Operand = call.args[0]
    axis = call.get(2, "dim", -1) % operand.rank
    pattern = lettered(operand.shape)
    size = (call.shapes[0] or ())[axis]
    result = tuple(((() if size == 1 else "k") if index == axis else letter) for index, letter in enumerate(pattern))
    letter = pattern[axis]
    uses = (_coordinates(letter, "the largest along the axis"),) if isinstance(letter, str) else ()
    kept = pin("k", "rank among the largest") if size > 1 else ()
    points = (None, ("index", letter) if isinstance(letter, str) else None)
    return Law((pattern,), (result, result), (Term(((0, POSITIVELY_HOMOGENEOUS),)),), (*uses, *kept), points=points)


@rule("aten.argmax", "aten.argmin", examples=lambda draw: [example(draw(3, 7), 1), example(draw(3, 7), -1, True)])
def argmax(call: Call) -> Law | None:
    """``x[n, e] -> i[n]``: where the largest stands."""
    operand: Operand = call.args[0]
    dim = call.get(1, "dim")
    if dim is None:
        return None
    axis, keep = dim % operand.rank, call.get(2, "keepdim", False)
    pattern = lettered(operand.shape)
    letter = pattern[axis]
    if not isinstance(letter, str):
        return None
    result = tuple(() if index == axis else each for index, each in enumerate(pattern) if keep or index != axis)
    return Law((pattern,), (result,), (Term(((0, GENERIC),)),), points=(("index", letter),))


@rule("aten.sort.default", "aten.sort.stable", "aten.argsort.default", "aten.argsort.stable", examples=lambda draw: [
    example(draw.integers(3, 7), points={0: "index"}), example(draw.integers(3, 7), stable=True, points={0: "index"}),
])  # fmt: skip
def sort(call: Call) -> Law | None:
    """``i[n] -> i'[s], order[s]`` for pointers on one axis; sorting data is ``x[.., n]`` with n pinned."""
    operand: Operand = call.args[0]
    only_order = "argsort" in str(call.target)
    if operand.points == "index" and operand.rank == 1:
        letters, points = ("s",), (("index", operand.pointed), ("index", "n"))
        implies = (("s", operand.pointed),)
        results = (letters,) if only_order else (letters, letters)
        meanings = points[1:] if only_order else points
        return Law((("n",),), results, (Term(((0, GENERIC),)),), pin("n", "sorted positions"), points=meanings,
                   implies=implies, follows=implies, sizes=(("s", operand.shape[0]),))  # fmt: skip
    return None


@rule("aten.index_put", "aten.index_put_", examples=lambda draw: [
    example(torch.zeros(7, dtype=torch.int64), [draw(7).argsort()], torch.arange(7), points={1: "index"}),
    example(draw(11, 5), [torch.tensor([2, 7, 3])], draw(3, 5)),
    example(draw(3, 5, 7), [draw.mask(3, 5)], draw(7), constants=(1,)),
    example(draw(3, 7, 5), [torch.tensor([0, 2, 1]), torch.tensor([6, 2, 1])], draw(3, 5), True),
])  # fmt: skip
def inverse_order(call: Call) -> Law | None:
    """``order[s], arange[s] -> back[n]``: the inverse of a sort; or a write at known places."""
    target, indices, values = call.args[0], call.args[1], call.args[2]
    if all(each is None or known(each) for each in indices):
        return written(call)
    if len(indices) != 1 or indices[0] is None or indices[0].points != "index" or target.dtype.is_floating_point:
        return None
    numbers, order = values.value, indices[0]
    if numbers is None or order.rank != 1 or numbers.tolist() != list(range(order.shape[0])):
        return None
    patterns: dict[int, Pattern] = {order.index: ("s",), target.index: (order.pointed,)}
    return Law(_blank(call, patterns), ((order.pointed,),), (Term(((order.index, GENERIC),)),), points=(("index", "s"),))


@rule("aten.histc", "aten.bincount", examples=lambda draw: [
    example(draw.integers(5, 11).double(), 5, 0, 4, points={0: "index"}),
    example(draw.integers(5, 11), None, 5, points={0: "index"}), example(draw(11), 5, -2, 2),
])  # fmt: skip
def counts(call: Call) -> Law | None:
    """``i[s] -> c[e]``: how many entries point to every index of e; of other numbers, how many fall in every interval."""
    operand: Operand = call.args[0]
    shape = call.shapes[0] or ()
    if len(shape) != 1 or len(call.operands) > 1:
        return None
    pattern = lettered(operand.shape, "s")
    if operand.points != "index":
        bins = lettered(shape, "e")
        uses = pin("e0", "numbers are counted by intervals") if bins[0] else ()
        return Law((pattern,), (bins,), (Term(((0, GENERIC),)),), uses)
    return Law((pattern,), ((operand.pointed,),), (Term(((0, GENERIC),)),), points=(("counts", operand.pointed),),
               sizes=((operand.pointed, shape[0]),))  # fmt: skip


@rule("aten.cumsum", examples=lambda draw: [example(draw(3, 5, 7), 1), example(draw(3, 5), -1)])
def cumsum(call: Call) -> Law:
    """Counts summed up are the ends of groups; anything else is a fixed operator along the axis."""
    operand: Operand = call.args[0]
    pattern = lettered(operand.shape)
    if operand.points == "counts":
        own: Pattern = (operand.pointed,)
        return Law((own,), (own,), (Term(((0, GENERIC),)),), points=(("ends", operand.pointed),))
    along = pattern[call.args[1] % operand.rank]
    letters = (along,) if isinstance(along, str) else ()
    uses = tuple(use for letter in letters for use in pin(letter, "cumulative sum"))
    return Law((pattern,), (pattern,), (term(0),), uses, mixes=letters)


@rule("transformers.grouped_mm_fallback.default", "aten._grouped_mm", examples=lambda draw: [
    example(draw(11, 5), draw(3, 5, 7), torch.tensor([2, 7, 11], dtype=torch.int32)),
    example(draw(11, 5), draw(3, 5, 7), torch.tensor([2, 7, 11], dtype=torch.int32), points={2: "ends"}),
])  # fmt: skip
def grouped_product(call: Call) -> Law:
    """``x[s, d], w[e, d, f], ends[e] -> y[s, f]``: every row with the matrix of its group."""
    x, weight, ends = call.args[:3]
    size = weight.shape[0]
    follows = ends.points == "ends"
    group = () if size == 1 else ends.pointed if follows else "e"
    patterns: dict[int, Pattern] = {
        x.index: lettered_as(("s", "d"), x.shape), weight.index: (group, *lettered_as(("d", "f"), weight.shape[1:])),
        ends.index: (group,),
    }  # fmt: skip
    uses: tuple[Use, ...] = ()
    if isinstance(group, str):
        uses = (_coordinates(group, "the group of an entry"),) if follows else pin(group, "groups in a fixed order")
    if x.shape[0] > 1:
        uses = (*uses, _coordinates("s", "rows stay in their group"))
    result = lettered_as(("s", "f"), call.shapes[0] or ())
    return Law(_blank(call, patterns), (result,), (term(x.index, weight.index),), uses)


def lettered_as(letters: tuple[str, ...], shape: tuple[int, ...]) -> Pattern:
    """The letters, without those of axes of size one."""
    return tuple(() if size == 1 else letter for letter, size in zip(letters, shape, strict=True))


def by_pointer(call: Call, source: Operand, axis: int, index: Operand) -> Law:
    """``x[a, e, b], i[s..] -> y[a, s.., b]``: reading with integers that depend on activations.

    Integers that point into the axis let it keep its permutations; of others the axis uses every index.
    """
    pattern = list(lettered(source.shape))
    letter = index.pointed if index.points == "index" else "v"
    uses: tuple[Use, ...] = ()
    if source.shape[axis] > 1:
        pattern[axis] = letter
        follows = index.points == "index"
        uses = (_coordinates(letter, "read by index"),) if follows else pin(letter, "read by index")
    positions = lettered(index.shape, "i")
    uses += tuple(_coordinates(each, "read by index") for each in positions if isinstance(each, str))
    result = (*pattern[:axis], *positions, *pattern[axis + 1 :])
    patterns: dict[int, Pattern] = {source.index: tuple(pattern), index.index: positions}
    read_along = source.shape[axis] > 1
    implies = tuple((each, letter) for each in positions if isinstance(each, str) and len(positions) == 1) if read_along else ()
    sizes = ((letter, source.shape[axis]),)
    return Law(_blank(call, patterns), (result,), (term(source.index),), uses, sizes=sizes, implies=implies)


@rule("aten.embedding", examples=lambda draw: [
    example(draw(11, 5), draw.integers(11, 3, 7)), example(draw(11, 5), draw.integers(11, 3), 0, constants=(1,)),
    example(draw(11, 5), draw.integers(11, 3, 7), points={1: "index"}),
])  # fmt: skip
def embedding(call: Call) -> Law:
    """``w[v, d], i[..] -> y[.., d]``."""
    weight, index_ = call.args[0], call.args[1]
    return read(call, weight, {0}, 0, index_.rank) if known(index_) else by_pointer(call, weight, 0, index_)


@rule("aten.index.Tensor", examples=lambda draw: [
    example(draw(3, 5, 7), [None, draw.integers(5, 11)]), example(draw(3, 5, 7), [draw.integers(3, 2), draw.integers(5, 2)]),
    example(draw(3, 5, 7), [None, draw.integers(5, 11)], points={1: "index"}),
    example(draw(3, 5, 7), [draw.mask(3, 5)], constants=(1,)),
])  # fmt: skip
def index(call: Call) -> Law | None:
    """``x[a, v, b]`` at integer tensors on some axes; they are broadcast together."""
    source, indices = call.args[0], call.args[1]
    axes = [axis for axis, each in enumerate(indices) if each is not None]
    used = [indices[axis] for axis in axes]
    if any(each.dtype.is_floating_point for each in used):
        return None
    if any(each.dtype == torch.bool for each in used):
        return _masked(call, source, axes[0], used[0]) if len(used) == 1 else None
    if len(used) == 1 and not known(used[0]):
        return by_pointer(call, source, axes[0], used[0])
    if any(not known(each) for each in used) or axes != list(range(axes[0], axes[0] + len(axes))):
        return None
    return read(call, source, set(axes), axes[0], max(each.rank for each in used))


def _masked(call: Call, source: Operand, first: int, mask: Operand) -> Law:
    """``x[a.., b], m[a..] -> y[n, b]``: the entries where the mask is true, in their order."""
    axes = range(first, first + mask.rank)
    law = read(call, source, set(axes), first, 1)
    if known(mask):
        return law
    where = tuple((law.operands[source.index] or ())[axis] for axis in axes)
    return replace(law, operands=tuple(where if operand is mask else pattern
                                       for operand, pattern in zip(call.operands, law.operands, strict=True)))  # fmt: skip


@rule("aten.gather", examples=lambda draw: [
    example(draw(3, 5), 1, draw.integers(5, 3, 7)), example(draw(3, 5), 1, draw.integers(5, 3, 7), points={1: "index"}),
    example(draw(5, 3), 0, draw.integers(5, 7, 2)),
])  # fmt: skip
def gather(call: Call) -> Law:
    """``x[n, e], i[n, k] -> y[n, k]`` along one axis; the other axes keep their index."""
    source, index_ = call.args[0], call.args[2]
    axis = call.args[1] % max(1, source.rank)
    pattern, result = list(lettered(source.shape)), list(lettered(call.shapes[0] or ()))
    letter = index_.pointed if index_.points == "index" else "v"
    uses: list[Use] = []
    if source.shape[axis] > 1:
        pattern[axis] = letter
        follows = index_.points == "index"
        uses += [_coordinates(letter, "read by index")] if follows else pin(letter, "read by index")
    if result[axis]:
        result[axis] = "k"
        uses += pin("k", "read by index")
    for position, (size, other) in enumerate(zip(source.shape, index_.shape, strict=True)):
        if position != axis and size != other:
            pattern[position] = f"u{position}" if size > 1 else ()
            for name in {each for each in (pattern[position], result[position]) if isinstance(each, str)}:
                uses += pin(name, "read in part")
        elif position != axis and isinstance(pattern[position], str):
            uses.append(_coordinates(str(pattern[position]), "read by index"))
    indices = tuple(() if size == 1 else each for each, size in zip(result, index_.shape, strict=True))
    patterns: dict[int, Pattern] = {source.index: tuple(pattern), index_.index: indices}
    return Law(_blank(call, patterns), (tuple(result),), (term(source.index),), tuple(uses),
               sizes=((letter, source.shape[axis]),))  # fmt: skip


@rule("aten.scatter.value", "aten.scatter.src", examples=lambda draw: [
    example(draw(3, 7), 1, draw.integers(7, 3, 2), 0), example(draw(3, 7), 1, draw.integers(7, 3, 2), 0.7),
    example(draw(3, 7), 1, draw(3, 7).argsort(1)[:, :5], draw(3, 5)),
    example(draw(3, 7), 1, draw.integers(7, 3, 2), 0.7, points={1: "index"}),
])  # fmt: skip
def scatter(call: Call) -> Law | None:
    """``x[n, e], i[n, k], value -> y[n, e]``: entries at pointers are replaced."""
    target, index_, source = call.args[0], call.args[2], call.args[3]
    axis = call.args[1] % max(1, target.rank)
    others = [size for position, size in enumerate(target.shape) if position != axis]
    if [size for position, size in enumerate(index_.shape) if position != axis] != others:
        return None
    pattern = list(lettered(target.shape))
    letter = index_.pointed if index_.points == "index" else "v"
    uses: list[Use] = []
    if pattern[axis]:
        pattern[axis] = letter
        follows = index_.points == "index" and not known(index_)
        uses += [_coordinates(letter, "written by index")] if follows else pin(letter, "written by index")
    uses += [_coordinates(each, "written by index") for position, each in enumerate(pattern)
             if position != axis and isinstance(each, str)]  # fmt: skip
    entries = list(pattern)
    entries[axis] = "k" if index_.shape[axis] > 1 else ()
    if index_.shape[axis] > 1:
        uses += pin("k", "written by index")
    patterns: dict[int, Pattern] = {target.index: tuple(pattern), index_.index: tuple(entries)}
    terms = [] if target.value is not None and not target.value.any() else [term(target.index)]
    if isinstance(source, Operand):
        patterns[source.index] = tuple(entries)
        if tuple(source.shape) != tuple(index_.shape):
            return None
        terms.append(term(source.index))
    elif source != 0:
        terms.append(CONSTANT)
    return Law(_blank(call, patterns), (tuple(pattern),), tuple(terms), tuple(uses), sizes=((letter, target.shape[axis]),))
