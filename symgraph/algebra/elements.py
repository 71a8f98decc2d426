"""Elements of the groups, and the group laws.

A space of size n that depends on the spaces ``per = (p1, .., pk)`` has one element for every multi-index I of those
spaces; arrays carry the leading axes [p1, .., pk]. Two kinds cover all groups:

    Matrix     matrix[*per, n, n], acting as  new[I, :] = matrix[I'] @ old[I', :]
    Monomial   permutation[*per, n] and, for every scale generator, log[*per, n] and sign[*per, n], acting as
               new[I, i] = s[I', p[i]] * old[I', p[i]]   with p = permutation[I'], s = prod_a sign_a**w_a exp(w_a log_a)

I' is the index that the outer spaces bring to I (identity unless they permute): a dependent space acts first, at the
old index, and the outer spaces carry the blocks away afterwards. So the group is a wreath product, and with J the old
index, ``B`` the outer map of ``b``:

    (a b)[J]   = a[B^-1 J] b[J]            inverse(b)[K] = b[B K]^-1

An element that is missing from a mapping is the identity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol, TypeAlias

import torch
from torch import Tensor

from symgraph.algebra.groups import Group
from symgraph.errors import SpecError


class ScaleLike(Protocol):
    """A scale generator."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def kind(self) -> str:
        """``positive``, ``real`` or ``sign``."""


class BlockLike(Protocol):
    """An isotypic block of a commutant."""

    @property
    def field(self) -> str:
        """``real`` or ``complex``."""

    @property
    def coordinates(self) -> Sequence[Sequence[int]]:
        """One coordinate (real) or one plane (re, im) for each of the m copies."""


class SpaceLike(Protocol):
    """What the algebra has to know of an index space; a spec's ``Space`` is one."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def size(self) -> int:
        """Number of indices."""

    @property
    def group(self) -> Group:
        """Its group."""

    @property
    def per(self) -> Sequence[str]:
        """Names of the spaces whose index it depends on."""

    @property
    def scales(self) -> Sequence[ScaleLike]:
        """Scale generators."""

    @property
    def blocks(self) -> Sequence[BlockLike]:
        """Blocks of a commutant."""

    @property
    def partition(self) -> Sequence[Sequence[int]]:
        """Classes of indices that share one scale value; indices in no class of a non-empty partition have none."""


Spaces: TypeAlias = Mapping[str, SpaceLike]


@dataclass(frozen=True, eq=False)
class Matrix:
    """``matrix[*per, n, n]``; ``orthogonal`` promises that it is its own inverse transpose."""

    matrix: Tensor
    orthogonal: bool = False
    _cast: dict[tuple[bool, torch.dtype, torch.device], Tensor] = field(default_factory=dict, repr=False)

    @cached_property
    def contragredient(self) -> Tensor:
        """The inverse transpose, by which contravariant occurrences transform."""
        return self.matrix if self.orthogonal else torch.linalg.inv(self.matrix).mT

    def operator(self, contravariant: bool, like: Tensor) -> Tensor:
        """The matrix of an occurrence, in the dtype and on the device of ``like``; computed once."""
        key = (contravariant and not self.orthogonal, like.dtype, like.device)
        if key not in self._cast:
            source = self.contragredient if contravariant else self.matrix
            self._cast[key] = source.to(device=like.device, dtype=like.dtype)
        return self._cast[key]


@dataclass(frozen=True, eq=False)
class Monomial:
    """``permutation[*per, n]`` (new[i] = old[permutation[i]]), ``log`` and ``sign`` [*per, n] per scale generator."""

    permutation: Tensor
    log: Mapping[str, Tensor] = field(default_factory=dict)
    sign: Mapping[str, Tensor] = field(default_factory=dict)

    @cached_property
    def moves(self) -> bool:
        """Whether the permutation is not the identity."""
        return not torch.equal(self.permutation, _arange_like(self.permutation))

    def scale(self, weights: Sequence[tuple[str, int]]) -> Tensor | None:
        """prod_a sign_a**w_a * exp(w_a * log_a), [*per, n]; None without weights."""
        exponents = [weight * self.log[name] for name, weight in weights if name in self.log]
        if not exponents:
            return None
        factor = torch.stack(exponents).sum(0).exp()
        for name, weight in weights:
            if weight % 2:
                factor = factor * self.sign[name]
        return factor


Element: TypeAlias = Matrix | Monomial
Elements: TypeAlias = Mapping[str, Element]


def lead(space: SpaceLike, spaces: Spaces) -> tuple[int, ...]:
    """Sizes of the spaces that ``space`` depends on: the leading axes of its arrays."""
    return tuple(spaces[name].size for name in space.per)


def identity(space: SpaceLike, spaces: Spaces) -> Element:
    """The identity element."""
    shape = (*lead(space, spaces), space.size)
    if space.group.is_matrix:
        eye = torch.eye(space.size, dtype=torch.float64)
        return Matrix(eye.expand(*shape, space.size).clone(), space.group.is_orthogonal)
    return Monomial(
        torch.arange(space.size).expand(shape).clone(),
        {scale.name: torch.zeros(shape, dtype=torch.float64) for scale in space.scales},
        {scale.name: torch.ones(shape, dtype=torch.float64) for scale in space.scales},
    )


def compose(after: Elements, before: Elements, spaces: Spaces) -> dict[str, Element]:
    """The product that applies ``before`` first."""
    result: dict[str, Element] = {}
    for name in dict.fromkeys((*before, *after)):
        left, right = after.get(name), before.get(name)
        if left is not None:
            source = outer_source(spaces[name], before, spaces)
            left = left if source is None else _take(left, torch.argsort(source), len(spaces[name].per))
        if left is None or right is None:
            result[name] = left if left is not None else before[name]
        else:
            result[name] = _multiply(left, right)
    return result


def inverse(elements: Elements, spaces: Spaces) -> dict[str, Element]:
    """The inverse of every element, as one group element of the whole product."""
    result: dict[str, Element] = {}
    for name, element in elements.items():
        source = outer_source(spaces[name], elements, spaces)
        moved = element if source is None else _take(element, source, len(spaces[name].per))
        result[name] = _invert(moved)
    return result


def outer_source(space: SpaceLike, elements: Elements, spaces: Spaces) -> Tensor | None:
    """Flat old multi-index for every flat new multi-index of ``space.per``; None if the outer spaces do not move.

    An outer space may itself depend on spaces further out, and is permuted at their old index.
    """
    moving = {name for name in space.per if _moves(elements.get(name))}
    if not moving:
        return None
    sizes = lead(space, spaces)
    new = dict(zip(space.per, torch.meshgrid(*map(torch.arange, sizes), indexing="ij"), strict=True))
    old: dict[str, Tensor] = {}
    for name in sorted(space.per, key=lambda outer: depth(outer, spaces)):
        element = elements.get(name)
        if name in moving and isinstance(element, Monomial):
            if any(outer not in old for outer in spaces[name].per):
                raise SpecError(
                    f"space {space.name!r} depends on {name!r} but not on all of what that depends on: "
                    f"add {', '.join(outer for outer in spaces[name].per if outer not in old)} to its per"
                )
            permutation = element.permutation.cpu()
            old[name] = permutation[(*(old[outer] for outer in spaces[name].per), new[name])]
        else:
            old[name] = new[name]
    flat = torch.zeros(sizes, dtype=torch.int64)
    for name, size in zip(space.per, sizes, strict=True):
        flat = flat * size + old[name]
    return flat.reshape(-1)


def depth(name: str, spaces: Spaces) -> int:
    """Length of the longest chain of spaces that ``name`` depends on."""
    return 1 + max((depth(outer, spaces) for outer in spaces[name].per), default=-1)


def _moves(element: Element | None) -> bool:
    return isinstance(element, Monomial) and element.moves


def _take(element: Element, source: Tensor, axes: int) -> Element:
    """``result[I] = element[source[I]]`` on the ``axes`` leading axes."""

    def take(array: Tensor) -> Tensor:
        flat = array.reshape(-1, *array.shape[axes:])
        return flat.index_select(0, source.to(array.device)).reshape(array.shape)

    if isinstance(element, Matrix):
        return Matrix(take(element.matrix), element.orthogonal)
    return Monomial(
        take(element.permutation),
        {name: take(value) for name, value in element.log.items()},
        {name: take(value) for name, value in element.sign.items()},
    )


def _multiply(left: Element, right: Element) -> Element:
    """``left`` after ``right``, index by index."""
    if isinstance(left, Matrix) and isinstance(right, Matrix):
        return Matrix(left.matrix @ right.matrix, left.orthogonal and right.orthogonal)
    if not (isinstance(left, Monomial) and isinstance(right, Monomial)):
        raise SpecError("a matrix cannot be composed with a permutation")
    back = torch.argsort(right.permutation, dim=-1)
    return Monomial(
        torch.gather(right.permutation, -1, left.permutation),
        {name: value.gather(-1, back) + right.log[name] for name, value in left.log.items()},
        {name: value.gather(-1, back) * right.sign[name] for name, value in left.sign.items()},
    )


def _invert(element: Element) -> Element:
    if isinstance(element, Matrix):
        return Matrix(element.matrix.mT if element.orthogonal else torch.linalg.inv(element.matrix), element.orthogonal)
    return Monomial(
        torch.argsort(element.permutation, dim=-1),
        {name: -value.gather(-1, element.permutation) for name, value in element.log.items()},
        {name: value.gather(-1, element.permutation) for name, value in element.sign.items()},
    )


def _arange_like(permutation: Tensor) -> Tensor:
    return torch.arange(permutation.shape[-1], device=permutation.device).expand(permutation.shape)
