"""The least-norm point of an orbit under the linear groups, where only compact freedom is left.

On the orbit the squared norm is convex along one-parameter groups, so moving one space after the other to its own
optimum ends at the global one (Kempf and Ness). With P the Gram matrix of the covariant and Q that of the contravariant
occurrences of a space,

    general linear   min tr(S P S^T) + tr(S^-T Q S^-1):  S^T S = P^-1 # Q, the geometric mean; after it both sides are equal
    commutant        the same for every block, over the complex numbers where the block is complex
    scales           min sum_t c_t exp(2 w_t x): convex, Newton; one sum with weights +-1 has a closed form

A side that is missing leaves nothing to balance against: then the other one gets the identity as its Gram matrix (a
scale: slices of norm one), which also is a rule that commutes with the group. The same in part, where a space is wider
than what enters it (n coordinates from r < n columns): the readers could shrink on the rest without end. On the image U of
P both sides are balanced; the rest is the complement that Q finds orthogonal to U, with the identity as its Gram matrix.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from symgraph.algebra.elements import Element, Matrix, Monomial, compose, lead
from symgraph.algebra.sampling import spread
from symgraph.match.blocks import gather, scatter
from symgraph.match.pieces import Occurrence, Pieces, correlation, front
from symgraph.match.selection import Selection
from symgraph.spec.model import Space, SymmetrySpec
from symgraph.spec.stages import Stage
from symgraph.spec.state import State
from symgraph.spec.transform import Transform

RANK = 1e-11  # singular values below this, relative to the largest, are zero
RIDGE = 1e-13  # added to Gram matrices, relative to their mean diagonal: directions that no weight uses


def balance(spec: SymmetrySpec, state: State, selection: Selection, sweeps: int = 500, tol: float = 1e-9) -> Transform:
    """The transform that brings a canonical state to the least norm, over the spaces that take part.

    A space is visited again only after one that it shares a piece with has moved by more than ``tol``.
    """
    pieces, values = Pieces.of(spec, state)
    elements: dict[str, Element] = {}
    active = [name for name in selection.spaces if _continuous(spec.space(name), selection) and pieces.occurrences[name]]
    near = {name: {other for k in pieces.touching(name) for other in pieces.shapes[k].spaces} - {name} for name in active}
    due = set(active)
    for _ in range(sweeps):
        for name in [name for name in active if name in due]:
            due.discard(name)
            found = _least_norm(pieces, values, spec.space(name), selection)
            values = pieces.apply({name: found}, values)
            elements = compose({name: found}, elements, pieces.spaces)
            if _size(found) > tol:
                due |= near[name] & set(active)
        if not due:
            break
    return Transform(spec, (Stage(elements),) if elements else ())


def _size(element: Element) -> float:
    """How far the element is from the identity."""
    if isinstance(element, Matrix):
        return float((element.matrix - torch.eye(element.matrix.shape[-1]).to(element.matrix)).abs().max())
    return max((float(log.abs().max()) for log in element.log.values()), default=0.0)


def _continuous(space: Space, selection: Selection) -> bool:
    """Whether the group of the space is not compact, in what takes part."""
    freedom = selection.spaces[space.name]
    return (freedom.matrix and not space.group.is_orthogonal) or bool(freedom.logs)


def _least_norm(pieces: Pieces, values: Sequence[Tensor], space: Space, selection: Selection) -> Element:
    occurrences = pieces.occurrences[space.name]
    if space.group.is_matrix:
        return _matrix(space, occurrences, values, lead(space, pieces.spaces))
    return _scales(space, selection.spaces[space.name].logs, occurrences, values, lead(space, pieces.spaces))


def _matrix(space: Space, occurrences: Sequence[Occurrence], values: Sequence[Tensor], shape: tuple[int, ...]) -> Matrix:
    sides = [torch.zeros(*shape, space.size, space.size, dtype=torch.float64) for _ in range(2)]
    columns = [0, 0]
    for one in occurrences:
        value = values[one.piece]
        sides[one.factor.contravariant] += correlation(value, value, one)
        if bool(value.any()):
            columns[one.factor.contravariant] += front(value, one).flatten(len(one.outer) + 1).shape[-1]
    if not space.blocks:
        return Matrix(balancer(sides[0], sides[1], (columns[0], columns[1])))
    result = torch.eye(space.size, dtype=torch.float64).expand(sides[0].shape).clone()
    for first, second in zip(gather(space, sides[0]), gather(space, sides[1]), strict=True):
        scatter(result, first, balancer(first.values, second.values, (columns[0], columns[1])))
    return Matrix(result)


def balancer(p: Tensor, q: Tensor, ranks: tuple[int, int] | None = None) -> Tensor:
    """The S with ``S P S^H = S^-H Q S^-1`` (both [.., n, n], hermitian); with one side zero, unit Gram matrices.

    ``ranks`` are the largest that P and Q can have; where both are n, S is positive.
    """
    n = p.shape[-1]
    r, s = (n, n) if ranks is None else (min(ranks[0], n), min(ranks[1], n))
    if 0 < r < n:
        return _split(p, q, r, s)
    if 0 < s < n:
        other: Tensor = torch.linalg.inv(_split(q, p, s, r))
        return other.mH
    return _whole(p, q)


def _split(p: Tensor, q: Tensor, r: int, s: int) -> Tensor:
    """:func:`balancer` for a P of rank r < n, in coordinates where it only has the last r: (C, B; B^H, Q on U) is Q."""
    n = p.shape[-1]
    _, frame = torch.linalg.eigh((p + p.mH) / 2)
    p, q = (frame.mH @ one @ frame for one in (p, q))
    rest, both, inner = q[..., : n - r, : n - r], q[..., n - r :, : n - r], q[..., n - r :, n - r :]
    shear = torch.linalg.pinv(inner, hermitian=True, rtol=RANK) @ both  # u + shear c: the part of U that c looks like to Q
    result = torch.eye(n, dtype=p.dtype, device=p.device).expand(p.shape).clone()
    result[..., n - r :, n - r :] = balancer(p[..., n - r :, n - r :], inner, ranks=(r, min(r, s)))
    result[..., n - r :, : n - r] = result[..., n - r :, n - r :] @ shear
    result[..., : n - r, : n - r] = _unit(rest - both.mH @ shear, max(0, s - r))
    whole: Tensor = frame @ result @ frame.mH
    return whole


def _unit(q: Tensor, rank: int) -> Tensor:
    """The positive S that makes ``S^-1 Q S^-1`` the identity on the image of Q, and is the identity on the kernel."""
    values, vectors = torch.linalg.eigh((q + q.mH) / 2)
    seen = torch.arange(q.shape[-1]) >= q.shape[-1] - rank
    roots = torch.where(seen, values.clamp_min(torch.finfo(values.dtype).tiny).sqrt(), 1.0)
    result: Tensor = (vectors * roots.unsqueeze(-2).to(vectors.dtype)) @ vectors.mH
    return result


def _whole(p: Tensor, q: Tensor) -> Tensor:
    """:func:`balancer` for matrices of full rank, or none."""
    eye = torch.eye(p.shape[-1], dtype=p.dtype)
    sizes = [one.diagonal(dim1=-2, dim2=-1).real.mean(-1)[..., None, None] for one in (p, q)]
    empty = [size <= 0 for size in sizes]
    p = torch.where(empty[0], eye, p + RIDGE * sizes[0] * eye)
    q = torch.where(empty[1], eye, q + RIDGE * sizes[1] * eye)
    root = power(p, 0.5)
    back = power(p, -0.5)
    mean = back @ power(root @ q @ root, 0.5) @ back
    result = power(mean, 0.5)
    result = torch.where(empty[1], back, torch.where(empty[0], power(q, 0.5), result))
    return torch.where(empty[0] & empty[1], eye, result)


def power(matrix: Tensor, exponent: float) -> Tensor:
    """A real power of positive hermitian matrices."""
    values, vectors = torch.linalg.eigh((matrix + matrix.mH) / 2)
    smallest = values.amax(-1, keepdim=True) * torch.finfo(values.dtype).eps
    raised = values.clamp_min(torch.finfo(values.dtype).tiny).maximum(smallest).pow(exponent)
    result: Tensor = (vectors * raised.unsqueeze(-2).to(vectors.dtype)) @ vectors.mH
    return result


def _scales(
    space: Space, names: Sequence[str], occurrences: Sequence[Occurrence], values: Sequence[Tensor], shape: tuple[int, ...]
) -> Monomial:
    """All generators of the space at once, for every class of indices."""
    terms: dict[tuple[int, ...], Tensor] = {}
    for one in occurrences:
        weights = dict(one.factor.weights)
        key = tuple(weights.get(name, 0) for name in names)
        if any(key):
            squares = _by_class(space, front(values[one.piece].square(), one).flatten(len(one.outer) + 1).sum(-1))
            terms[key] = terms[key] + squares if key in terms else squares
    logs = {}
    if terms:
        found = least_scales(torch.tensor(list(terms), dtype=torch.float64), torch.stack(list(terms.values()), -1))
        logs = {name: spread(found[..., k], space) for k, name in enumerate(names)}
    zero = torch.zeros((*shape, space.size), dtype=torch.float64)
    still = torch.arange(space.size).expand(zero.shape).clone()
    return Monomial(
        still,
        {scale.name: logs.get(scale.name, zero) for scale in space.scales},
        {scale.name: torch.ones_like(zero) for scale in space.scales},
    )


def _by_class(space: Space, squares: Tensor) -> Tensor:
    """``squares[.., n]`` summed over the classes of the partition."""
    if not space.partition:
        return squares
    return torch.stack([squares[..., list(one)].sum(-1) for one in space.partition], -1)


def least_scales(w: Tensor, c: Tensor) -> Tensor:
    """``x[.., g]`` that minimises ``sum_t c[.., t] exp(2 w[t, g] x[.., g])``.

    Where no minimum exists because a generator only grows what is there, slices of norm one: the term ``- x`` stops it.
    """
    if w.shape[1] == 1 and bool((w.abs() == w.abs().max()).all()):
        return _closed(w[:, 0], c)
    grows = ((w >= 0) | (c[..., None] == 0)).all(-2) & (w[:, :] != 0).any(-2)  # [.., g]
    falls = ((w <= 0) | (c[..., None] == 0)).all(-2) & (w[:, :] != 0).any(-2)
    pull = torch.where(grows & ~falls, 1.0, torch.where(falls & ~grows, -1.0, 0.0)).double()
    x = torch.zeros(*c.shape[:-1], w.shape[1], dtype=torch.float64)
    size = c.sum(-1)[..., None].clamp_min(torch.finfo(torch.float64).tiny)
    c, pull = c / size, pull / size
    for _ in range(100):
        values = c * (2 * x @ w.T).exp()
        gradient = 2 * values @ w - pull
        hessian = torch.einsum("...t,tg,th->...gh", 4 * values, w, w)
        ridge = 1e-14 * hessian.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None] + torch.finfo(torch.float64).tiny
        step = -torch.linalg.solve(hessian + ridge * torch.eye(w.shape[1]).double(), gradient[..., None])[..., 0]
        step = step / step.norm(dim=-1, keepdim=True).clamp_min(1.0)
        x = x + step
        if float(step.abs().max()) < 1e-13:
            break
    return x


def _closed(w: Tensor, c: Tensor) -> Tensor:
    """One generator with weights of one size m: ``x = log(c- / c+) / 4m``, slices of norm one where a side is zero."""
    m = float(w.abs().max())
    up, down = c[..., w > 0].sum(-1), c[..., w < 0].sum(-1)
    empty = (up <= 0, down <= 0)
    up_log, down_log = (torch.where(side <= 0, 1.0, side).log() for side in (up, down))
    x = (down_log - up_log) / (4 * m)
    x = torch.where(empty[0], down_log / (2 * m), torch.where(empty[1], -up_log / (2 * m), x))
    return torch.where(empty[0] & empty[1], 0.0, x)[..., None]
