"""Index spaces and their unification.

A space is a union-find node of a size. It is unstructured, or bound to the product or the direct sum of other spaces;
binding refines, it is never undone. Everything that an operator ties together is unified; facts (what structure an operator
uses) are learned of a node and reach its leaves when the spaces are read off, so that the result does not depend on the
order of the operators.

    unify(N, product(H, D))     N is split, from now on and everywhere
    unify(product(H, M), product(H', a, b))    H and H' are one, M is a b
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod


class ConflictError(Exception):
    """Two axes that cannot be the same: they have no common refinement."""


@dataclass(eq=False)
class IndexSpace:
    """A node; ``form`` is empty, or ("product" or "sum", parts)."""

    size: int
    parent: IndexSpace | None = None
    kind: str = ""
    parts: tuple[IndexSpace, ...] = ()
    anchored: bool = False

    def root(self) -> IndexSpace:
        """The representative, with path halving."""
        node = self
        while node.parent is not None:
            if node.parent.parent is not None:
                node.parent = node.parent.parent
            node = node.parent
        return node

    @property
    def inert(self) -> bool:
        """Whether nothing may move or scale it and it has no parts: then its structure is of no interest."""
        return self.anchored and not self.kind


def fresh(size: int, anchored: bool = False) -> IndexSpace:
    """A new space without structure."""
    return IndexSpace(size, anchored=anchored)


def product(parts: Sequence[IndexSpace]) -> IndexSpace:
    """The row-major product; a single part is itself."""
    flat = [part.root() for part in parts if part.size != 1]
    if not flat:
        return parts[0].root() if len(parts) == 1 else fresh(1)
    if len(flat) == 1:
        return flat[0]
    if all(part.inert for part in flat):
        return fresh(prod(part.size for part in flat), anchored=True)
    return IndexSpace(prod(part.size for part in flat), kind="product", parts=tuple(flat))


def direct_sum(parts: Sequence[IndexSpace]) -> IndexSpace:
    """The direct sum; a single part is itself."""
    flat = [part.root() for part in parts]
    if len(flat) == 1:
        return flat[0]
    if all(part.inert for part in flat):
        return fresh(sum(part.size for part in flat), anchored=True)
    return IndexSpace(sum(part.size for part in flat), kind="sum", parts=tuple(flat))


def flatten(space: IndexSpace, kind: str) -> list[IndexSpace]:
    """The parts of nested products (or sums), each a root that is not of that kind."""
    root = space.root()
    if root.kind != kind:
        return [root]
    return [leaf for part in root.parts for leaf in flatten(part, kind)]


def anchor(space: IndexSpace) -> None:
    """Nothing may move or scale the space or any part of it."""
    root = space.root()
    if root.anchored:
        return
    root.anchored = True
    for part in root.parts:
        anchor(part)


def _merge(first: IndexSpace, second: IndexSpace) -> None:
    """Make an unstructured root point to another root."""
    first.parent = second
    if first.anchored:
        anchor(second)


def unify(first: IndexSpace, second: IndexSpace) -> None:
    """Make two spaces one. Raises :class:`ConflictError` where they have no common refinement."""
    a, b = first.root(), second.root()
    if a is b:
        return
    if a.size != b.size:
        raise ConflictError(f"sizes {a.size} and {b.size}")
    if not a.kind:
        _merge(a, b)
    elif not b.kind:
        _merge(b, a)
    elif a.kind == b.kind == "product":
        _align_products(a, b)
        _merge_structured(a, b)
    elif a.kind == b.kind == "sum":
        _align_sums(a, b)
        _merge_structured(a, b)
    else:
        whole, parts = (a, flatten(b, "product")) if a.kind == "sum" else (b, flatten(a, "product"))
        for part, factor_ in zip(parts, factor(whole, [part.size for part in parts]), strict=True):
            unify(part, factor_)
        _merge_structured(a, b)


def _merge_structured(a: IndexSpace, b: IndexSpace) -> None:
    """Two bound roots whose parts are unified already become one node."""
    if a is b:
        return
    a.parent = b
    if a.anchored != b.anchored:
        b.anchored = False
        anchor(b)


def _align_products(a: IndexSpace, b: IndexSpace) -> None:
    left, right = flatten(a, "product")[::-1], flatten(b, "product")[::-1]
    while left and right:
        x, y = left.pop().root(), right.pop().root()
        if x.kind == "product":
            left += flatten(x, "product")[::-1]
            right.append(y)
        elif y.kind == "product":
            right += flatten(y, "product")[::-1]
            left.append(x)
        elif x.size == y.size:
            unify(x, y)
        else:
            big, small, rest = (x, y, left) if x.size > y.size else (y, x, right)
            if big.size % small.size:
                raise ConflictError(f"axes of {x.size} and {y.size} share no factors")
            head, tail = factor(big, [small.size, big.size // small.size])
            unify(head, small)
            rest.append(tail)


def _align_sums(a: IndexSpace, b: IndexSpace) -> None:
    left, right = flatten(a, "sum")[::-1], flatten(b, "sum")[::-1]
    while left and right:
        x, y = left.pop().root(), right.pop().root()
        if x.kind == "sum":
            left += flatten(x, "sum")[::-1]
            right.append(y)
        elif y.kind == "sum":
            right += flatten(y, "sum")[::-1]
            left.append(x)
        elif x.size == y.size:
            unify(x, y)
        else:
            big, small, rest = (x, y, left) if x.size > y.size else (y, x, right)
            head, tail = split(big, [small.size, big.size - small.size])
            unify(head, small)
            rest.append(tail)


def split(space: IndexSpace, sizes: Sequence[int]) -> list[IndexSpace]:
    """Spaces of the given sizes whose direct sum is ``space``, which is refined where it has to be."""
    root = space.root()
    if len(sizes) == 1:
        return [root]
    if root.inert:
        return [fresh(size, anchored=True) for size in sizes]
    if not root.kind:
        root.kind, root.parts = "sum", tuple(fresh(size, root.anchored) for size in sizes)
        return list(root.parts)
    if root.kind == "sum":
        return _regroup_sum(flatten(root, "sum"), sizes)
    outer, *rest = flatten(root, "product")
    inner = prod(part.size for part in rest)
    if any(size % inner for size in sizes):
        raise ConflictError(f"a cut at {sizes[0]} goes through a product")
    return [product([part, *rest]) for part in split(outer, [size // inner for size in sizes])]


def _regroup_sum(parts: list[IndexSpace], sizes: Sequence[int]) -> list[IndexSpace]:
    pending = parts[::-1]
    found = []
    for size in sizes:
        group: list[IndexSpace] = []
        missing = size
        while missing:
            part = pending.pop()
            if part.size > missing:
                head, tail = split(part, [missing, part.size - missing])
                pending.append(tail)
                part = head
            group.append(part)
            missing -= part.size
        found.append(direct_sum(group))
    return found


def factor(space: IndexSpace, sizes: Sequence[int]) -> list[IndexSpace]:
    """Spaces of the given sizes (none is 1) whose product is ``space``, which is refined where it has to be."""
    root = space.root()
    if len(sizes) == 1:
        return [root]
    if root.inert:
        return [fresh(size, anchored=True) for size in sizes]
    if not root.kind:
        root.kind, root.parts = "product", tuple(fresh(size, root.anchored) for size in sizes)
        return list(root.parts)
    if root.kind == "product":
        return _regroup_product(flatten(root, "product"), sizes)
    outer, inner = sizes[0], prod(sizes[1:])
    heads, tails = [], []
    for part in flatten(root, "sum"):
        if part.size % inner:
            raise ConflictError(f"a part of {part.size} is no multiple of {inner}")
        head, tail = factor(part, [part.size // inner, inner]) if part.size > inner else (fresh(1), part)
        heads.append(head)
        tails.append(tail)
    for tail in tails[1:]:
        unify(tails[0], tail)
    rest = factor(tails[0], sizes[1:]) if len(sizes) > 2 else [tails[0].root()]
    whole = direct_sum(heads)
    if whole.size != outer:
        raise ConflictError(f"parts of {whole.size} are not {outer}")
    return [whole, *rest]


def _regroup_product(parts: list[IndexSpace], sizes: Sequence[int]) -> list[IndexSpace]:
    pending = parts[::-1]
    found = []
    for size in sizes:
        group: list[IndexSpace] = []
        missing = size
        while missing > 1:
            part = pending.pop().root()
            if part.size > missing:
                if part.size % missing:
                    raise ConflictError(f"axes of {part.size} and {missing} share no factors")
                part, tail = factor(part, [missing, part.size // missing])
                pending.append(tail)
            elif missing % part.size:
                raise ConflictError(f"axes of {part.size} and {missing} share no factors")
            group.append(part)
            missing //= part.size
        found.append(product(group))
    return found


Branch = tuple[IndexSpace, ...]


def branches(space: IndexSpace) -> list[Branch]:
    """The space as a sum of products of leaves, outer sums first. A part that is anchored throughout is one leaf.

    A space of size one has no leaf: what scales it scales the whole block.
    """
    root = space.root()
    if not root.kind or _all_anchored(root):
        root.anchored = root.anchored or bool(root.kind)
        return [()] if root.size == 1 and not root.anchored else [(root,)]
    if root.kind == "sum":
        return [branch for part in root.parts for branch in branches(part)]
    found: list[Branch] = [()]
    for part in root.parts:
        found = [prefix + branch for prefix in found for branch in branches(part)]
    return found


def _all_anchored(root: IndexSpace) -> bool:
    return all(_all_anchored(part.root()) for part in root.parts) if root.kind else root.anchored
