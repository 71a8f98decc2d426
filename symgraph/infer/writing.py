"""Words of axes: the structure of a space, with names, variance and weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from symgraph.algebra.words import Factor, Pinned, Product, Sum, Word
from symgraph.infer.equations import Slot
from symgraph.infer.solve import Leaf, Solution, TensorLayout
from symgraph.infer.spaces import IndexSpace
from symgraph.spec import model


@dataclass
class Lowering:
    """Everything that words are written from."""

    solution: Solution
    names: dict[IndexSpace, tuple[str, str]]
    scales: dict[IndexSpace, list[model.Scale]] = field(default_factory=dict)
    weights: dict[Slot, list[tuple[str, int]]] = field(default_factory=dict)
    units: list[model.Space] = field(default_factory=list)
    unit_factors: dict[tuple[str, int, int], list[tuple[str, str, int]]] = field(default_factory=dict)
    whole: dict[str, list[tuple[str, str, int]]] = field(default_factory=dict)
    outer: set[IndexSpace] = field(default_factory=set)


def moves(leaf: Leaf, state: Lowering) -> bool:
    """Whether anything acts on the leaf, or depends on its index."""
    if leaf.group.is_matrix or leaf.group.permutes or state.scales.get(leaf.space):
        return True
    return leaf.space in state.outer


@dataclass
class Writer:
    """Writes one axis; ``base`` has one slot of every branch, from which the others of the branch follow."""

    tensor: TensorLayout
    axis: int
    base: dict[int, Slot]
    state: Lowering

    def word(self, space: IndexSpace, first: int, before: dict[int, int], own: bool = True) -> Word:
        """The word of a space whose branches start at ``first``; ``before`` counts leaves in front, by branch.

        ``own`` says that no other branch shares the factors, so that a scale of the branch alone may stand among them.
        """
        root = space.root()
        layout = self.state.solution.layout
        if not root.kind or layout.of(root) in ([(root,)], [()]):
            leaf = self._leaf(root, first, before.get(first, 0))
            return self._with_units(leaf, first) if own else leaf
        if root.kind == "sum":
            return self._sum(root, first, before)
        return self._product(root, first, before, own)

    def _sum(self, root: IndexSpace, first: int, before: dict[int, int]) -> Word:
        words: list[Word] = []
        for part in root.parts:
            words.append(self.word(part, first, before))
            first += len(self.state.solution.layout.of(part))
        if all(isinstance(word, Pinned) for word in words):
            return Pinned(root.size)
        return Sum(tuple(words))

    def _product(self, root: IndexSpace, first: int, before: dict[int, int], own: bool) -> Word:
        words: list[Word] = []
        layout = self.state.solution.layout
        counts = [len(layout.of(part)) for part in root.parts]
        total = prod(counts)
        offset = dict(before)
        stride = total
        for part, count in zip(root.parts, counts, strict=True):
            words.append(self.word(part, first, offset, own=count == total > 1))
            stride //= count
            widths = [sum(not leaf.anchored for leaf in branch) for branch in layout.of(part)]
            for index in range(total):
                offset[first + index] = offset.get(first + index, 0) + widths[index // stride % count]
        flat: list[Word] = []
        for word in words:
            flat.extend(word.words if isinstance(word, Product) else [word])
        merged = _merge_pinned(flat)
        whole = merged[0] if len(merged) == 1 else Product(tuple(merged))
        return self._with_units(whole, first) if own and total == 1 else whole

    def _leaf(self, root: IndexSpace, branch: int, position: int) -> Word:
        leaf = self.state.solution.leaves.get(root)
        if root.anchored or leaf is None or not moves(leaf, self.state):
            return Pinned(root.size)
        value, block, axis, _ = self.base[branch]
        slot = (value, block, axis, position)
        contravariant = leaf.variance.get(slot) == -1
        weights = tuple((name, weight) for name, weight in self.state.weights.get(slot, []) if weight)
        return Factor(self.state.names[root][0], contravariant, weights)

    def _with_units(self, word: Word, branch: int) -> Word:
        units = self.state.unit_factors.pop((self.tensor.name, self.axis, branch), [])
        factors: list[Word] = [Factor(name, False, ((scale, weight),)) for name, scale, weight in units]
        words = word.words if isinstance(word, Product) else (word,)
        return Product((*factors, *words)) if factors else word


def _merge_pinned(words: list[Word]) -> list[Word]:
    merged: list[Word] = []
    for word in words:
        if word == Pinned(1):
            continue
        if isinstance(word, Pinned) and merged and isinstance(merged[-1], Pinned):
            merged[-1] = Pinned(merged[-1].length * word.length)
        else:
            merged.append(word)
    return merged or [Pinned(1)]
