"""Signs of a space, decided together with what stands beside them: signs of another space, or a matrix.

Where ``sigma_i tau_j`` stands on a piece, neither space can tell its signs without the other's, and taking turns gets
stuck half way. But the inner products ``C[i, j]`` of the sides, if they are equal up to signs, are ``|C[i, j]| sigma_i
tau_j``: by Perron and Frobenius the signs of the leading singular vectors. What other pieces know decides the common sign.

Beside a matrix Q the correlations are ``C[i] = sigma_i P_i Q`` with positive P_i, so that ``<C[i], C[j]>`` has the sign of
``sigma_i sigma_j``: the leading left singular vector again, of C with its last two axes flattened. Q takes the common sign.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from symgraph.algebra.elements import Element
from symgraph.algebra.sampling import classes, spread
from symgraph.match.assignment import monomial
from symgraph.match.pieces import Occurrence, correlation

if TYPE_CHECKING:
    from symgraph.match.ascent import Ascent

ROUNDS = 30  # of the power iteration
LARGEST = 10**6  # entries of the correlations of a matrix space at every index of another


class Signed(NamedTuple):
    """A sign generator of a space."""

    space: str
    name: str


def couplings(ascent: Ascent) -> dict[tuple[Signed, Signed], list[tuple[Occurrence, Occurrence]]]:
    """Pairs of generators of two spaces, neither dependent on the other, and where both stand with odd weights."""
    standing: dict[int, list[tuple[Signed, Occurrence]]] = defaultdict(list)
    for space, freedom in ascent.freedom.items():
        for one in ascent.pieces.occurrences[space] if freedom.signs else ():
            odd = [name for name, weight in one.factor.weights if weight % 2 and name in freedom.signs]
            standing[one.piece] += [(Signed(space, name), one) for name in odd]
    found: dict[tuple[Signed, Signed], list[tuple[Occurrence, Occurrence]]] = defaultdict(list)
    for members in standing.values():
        for k, (first, one) in enumerate(members):
            for second, other in members[k + 1 :]:
                if first.space != second.space and one.k not in other.outer and other.k not in one.outer:
                    found[first, second].append((one, other))
    return found


def together(
    ascent: Ascent, pair: tuple[Signed, Signed], places: Sequence[tuple[Occurrence, Occurrence]]
) -> dict[str, Element]:
    """The increment that turns the signs of both spaces at once."""
    spaces = [ascent.pieces.spaces[one.space] for one in pair]
    common = [name for name in spaces[0].per if name in spaces[1].per]
    own = [[name for name in space.per if name not in common] for space in spaces]
    sizes = {name: space.size for name, space in ascent.pieces.spaces.items()}
    shapes = [[sizes[name] for name in (*common, *names)] + [classes(space)] for names, space in zip(own, spaces, strict=True)]
    total = sum(_coupling(ascent, one, other, spaces[0].per, spaces[1].per, common) for one, other in places)
    matrix = torch.as_tensor(total).flatten(len(common) + len(own[0]) + 1)  # [*common, *own, classes, the same of the other]
    matrix = matrix.flatten(len(common), len(common) + len(own[0]))
    left = _leading(matrix)
    right = _sign((matrix.mT @ left.unsqueeze(-1)).squeeze(-1))
    known = [
        _known(ascent, one, {place[side].piece for place in places}, (*common, *names)).reshape(vector.shape)
        for side, (one, names, vector) in enumerate(zip(pair, own, (left, right), strict=True))
    ]
    whole = _sign((known[0] * left).sum(-1) + (known[1] * right).sum(-1)).unsqueeze(-1)
    found: dict[str, Element] = {}
    for one, space, names, vector, shape in zip(pair, spaces, own, (left, right), shapes, strict=True):
        signs = (vector * whole).reshape(shape)
        order = [(*common, *names).index(name) for name in space.per]
        signs = spread(signs.permute(*order, len(order)), space, neutral=1.0)
        still = torch.arange(space.size).expand(signs.shape)
        found[space.name] = monomial(space, still, {one.name: signs})
    return found


def beside(ascent: Ascent) -> dict[tuple[Signed, str], list[tuple[Occurrence, Occurrence]]]:
    """Sign generators of small spaces and matrix spaces on one piece, neither dependent on the other, and where."""
    found: dict[tuple[Signed, str], list[tuple[Occurrence, Occurrence]]] = defaultdict(list)
    matrices = [name for name, freedom in ascent.freedom.items() if freedom.matrix]
    at = [(name, one) for name in matrices for one in ascent.pieces.occurrences[name]]
    for space, freedom in ascent.freedom.items():
        for one in ascent.pieces.occurrences[space] if freedom.signs else ():
            odd = [name for name, weight in one.factor.weights if weight % 2 and name in freedom.signs]
            for matrix, other in at if odd else ():
                size = ascent.pieces.spaces[space].size * ascent.pieces.spaces[matrix].size ** 2
                apart = one.k not in other.outer and other.k not in one.outer
                if one.piece == other.piece and apart and not one.outer and not other.outer and size <= LARGEST:
                    for name in odd:
                        found[Signed(space, name), matrix].append((one, other))
    return found


def turned(ascent: Ascent, signed: Signed, places: Sequence[tuple[Occurrence, Occurrence]]) -> dict[str, Element]:
    """The signs that let one matrix serve all indices."""
    space = ascent.pieces.spaces[signed.space]
    total = sum(_beside(ascent, one, other) for one, other in places)
    matrix = _by_class(torch.as_tensor(total), ascent, signed.space, 0)
    signs = spread(_leading(matrix.flatten(1)), space, neutral=1.0)
    return {signed.space: monomial(space, torch.arange(space.size), {signed.name: signs})}


def _beside(ascent: Ascent, one: Occurrence, other: Occurrence) -> Tensor:
    """``C[i, p, q]``: the correlation along the matrix space at every index of the other."""
    return correlation(ascent.a[one.piece], ascent.b[one.piece], replace(other, outer=(one.k,)))


def _coupling(
    ascent: Ascent, one: Occurrence, other: Occurrence, per: Sequence[str], per_other: Sequence[str], common: Sequence[str]
) -> Tensor:
    """``C[*common, *own, i, *own of the other, j]``, summed over classes that share a sign and all other dimensions."""
    at, at_other = dict(zip(per, one.outer, strict=True)), dict(zip(per_other, other.outer, strict=True))
    kept = [at[name] for name in common] + [at[name] for name in per if name not in common] + [one.k]
    kept += [at_other[name] for name in per_other if name not in common] + [other.k]
    product = ascent.a[one.piece] * ascent.b[one.piece]
    rest = [dim for dim in range(product.ndim) if dim not in kept]
    product = product.permute(*kept, *rest).flatten(len(kept)).sum(-1) if rest else product.permute(*kept)
    product = _by_class(product, ascent, other.factor.space, product.ndim - 1)
    return _by_class(product, ascent, one.factor.space, len(per))


def _by_class(x: Tensor, ascent: Ascent, name: str, dim: int) -> Tensor:
    """Summed over the classes of indices that share a sign."""
    partition = ascent.pieces.spaces[name].partition
    if not partition:
        return x
    return torch.stack([x.index_select(dim, torch.tensor(one)).sum(dim) for one in partition], dim)


def _leading(matrix: Tensor) -> Tensor:
    """Signs of the leading left singular vectors of ``matrix[.., n, m]``."""
    column = matrix.square().sum(-2).argmax(-1)[..., None, None].expand(*matrix.shape[:-1], 1)
    x = matrix.gather(-1, column)
    for _ in range(ROUNDS):
        x = matrix @ (matrix.mT @ x)
        x = x / x.norm(dim=-2, keepdim=True).clamp_min(torch.finfo(x.dtype).tiny)
    return _sign(x.squeeze(-1))


def _known(ascent: Ascent, one: Signed, besides: set[int], order: Sequence[str]) -> Tensor:
    """What other pieces know of a generator's signs, by class: ``[*order, classes]``."""
    space = ascent.pieces.spaces[one.space]
    sizes = [ascent.pieces.spaces[name].size for name in order]
    total = torch.zeros(*sizes, classes(space), dtype=torch.float64)
    for place in ascent.pieces.occurrences[one.space]:
        if place.piece in besides or not dict(place.factor.weights).get(one.name, 0) % 2:
            continue
        at = dict(zip(space.per, place.outer, strict=True))
        product = ascent.a[place.piece] * ascent.b[place.piece]
        kept = [*(at[name] for name in order), place.k]
        rest = [dim for dim in range(product.ndim) if dim not in kept]
        product = product.permute(*kept, *rest)
        total += _by_class(product.flatten(len(kept)).sum(-1) if rest else product, ascent, one.space, len(order))
    return total


def _sign(x: Tensor) -> Tensor:
    return torch.where(x < 0, -1.0, 1.0).to(x.dtype)
