"""Smooth coordinates on the groups, by name, for learning: zero is the identity.

Latents of an n x n matrix are the entries of an n x n matrix x (two of them, ``x`` and ``imag``, for a complex block); A is
the skew-hermitian matrix made of its strict lower triangle (and the imaginary diagonal), L the lower triangular one made
of its upper triangle, with the exponential of the real diagonal. So polar coordinates use every entry once.

    orthogonal     cayley        (1 - A)^-1 (1 + A) S; the sign matrix S makes every orthogonal matrix reachable
                   exp           exp(A)
                   householder   a product of n reflections (n even, or n - 1): x moves mirrors that cancel in pairs; rotations
                   svd           the polar factor of 1 + x
    invertible     polar         cayley times L L^T
                   exp           exp(x)
                   direct        1 + x
                   cayley        the orthogonal part alone
    one number     phases and radii: exp(x + i imag), whatever the name
    scales         exp(x), positive

Rotations that fix the ones act on the complement, in the frame of the algebra's ``householder_to_ones``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import scipy.linalg
import torch
from torch import Tensor

from symgraph.errors import MatchError

Latents = dict[str, Tensor]


@dataclass(frozen=True)
class Parametrization:
    """``forward(latents) -> [.., n, n]``, exact inverse ``right_inverse``; ``fixed`` are latents that are not learned."""

    forward: Callable[[Mapping[str, Tensor]], Tensor]
    right_inverse: Callable[[Tensor], Latents]
    fixed: frozenset[str] = frozenset()

    def zero(self, shape: tuple[int, ...], over_complex: bool, dtype: torch.dtype) -> Latents:
        """The latents of the identity, for matrices of ``shape`` [.., n, n]."""
        latents = {"x": torch.zeros(shape, dtype=dtype)}
        if over_complex:
            latents["imag"] = torch.zeros(shape, dtype=dtype)
        if "signs" in self.fixed:
            latents["signs"] = torch.ones(shape[:-1], dtype=dtype)
        return latents


def named(name: str, orthogonal: bool, size: int) -> Parametrization:
    """The parametrization of that name; MatchError if there is none for the group."""
    table = ORTHOGONAL if orthogonal else INVERTIBLE
    if name not in table:
        group = "orthogonal" if orthogonal else "invertible"
        raise MatchError(f"no parametrization {name!r} of {group} matrices: choose {', '.join(table)}")
    if size == 1 and name != "direct":
        return PHASE if orthogonal or name == "cayley" else RADIUS
    return table[name]


def skew(latents: Mapping[str, Tensor]) -> Tensor:
    """The skew-hermitian A."""
    lower = latents["x"].tril(-1)
    if "imag" not in latents:
        return lower - lower.mT
    both = torch.complex(lower, latents["imag"].tril(-1))
    return both - both.mH + torch.diag_embed(1j * latents["imag"].diagonal(dim1=-2, dim2=-1))


def cayley(latents: Mapping[str, Tensor]) -> Tensor:
    """``(1 - A)^-1 (1 + A) S``."""
    a = skew(latents)
    eye = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    result: Tensor = torch.linalg.solve(eye - a, eye + a)
    return result * latents["signs"].unsqueeze(-2) if "signs" in latents else result


def cayley_inverse(q: Tensor) -> Latents:
    """Signs such that all pivots of ``Q + S`` are at least one: then 1 is far from being an eigenvalue of ``-Q S``."""
    signs = _pivot_signs(q)
    turned = q * signs.unsqueeze(-2)
    eye = torch.eye(q.shape[-1], dtype=q.dtype, device=q.device)
    a = torch.linalg.solve(turned + eye, turned - eye, left=False)
    return {**_lower((a - a.mH) / 2), "signs": signs.real if signs.is_complex() else signs}


def _pivot_signs(q: Tensor) -> Tensor:
    work, n = q.clone(), q.shape[-1]
    signs = torch.ones(q.shape[:-1], dtype=q.dtype, device=q.device)
    for k in range(n):
        pivot = work[..., k, k]
        signs[..., k] = torch.where(pivot.real >= 0, 1.0, -1.0).to(q.dtype)
        work[..., k, k] = pivot + signs[..., k]
        factor = work[..., k + 1 :, k] / work[..., k, k].unsqueeze(-1)
        work[..., k + 1 :, :] -= factor.unsqueeze(-1) * work[..., k, :].unsqueeze(-2)
    return signs


def _lower(a: Tensor) -> Latents:
    """The latents whose skew-hermitian matrix is ``a``."""
    if not a.is_complex():
        return {"x": a.tril(-1)}
    return {"x": a.real.tril(-1), "imag": a.imag.tril(0)}


def exponential_skew(latents: Mapping[str, Tensor]) -> Tensor:
    """``exp(A)``."""
    result: Tensor = torch.linalg.matrix_exp(skew(latents))
    return result


def exponential(latents: Mapping[str, Tensor]) -> Tensor:
    """``exp(x)``."""
    result: Tensor = torch.linalg.matrix_exp(_full(latents))
    return result


def logarithm(matrix: Tensor) -> Latents:
    """The inverse of both exponentials; MatchError where there is no real logarithm."""
    flat = matrix.reshape(-1, *matrix.shape[-2:])
    logs = torch.stack([torch.from_numpy(scipy.linalg.logm(one.cpu().numpy())) for one in flat]).reshape(matrix.shape)
    if logs.is_complex() and not matrix.is_complex():
        if float(logs.imag.abs().max()) > 1e-8:
            raise MatchError("a matrix without a real logarithm is not in the image of exp: use cayley or polar")
        logs = logs.real
    return _split(logs.to(matrix))


def logarithm_skew(q: Tensor) -> Latents:
    """The inverse of :func:`exponential_skew` for rotations without the eigenvalue -1."""
    latents = logarithm(q)
    full = _full(latents)
    return _lower((full - full.mH) / 2)


def direct(latents: Mapping[str, Tensor]) -> Tensor:
    """``1 + x``."""
    x = _full(latents)
    return x + torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)


def direct_inverse(matrix: Tensor) -> Latents:
    """``matrix - 1``."""
    return _split(matrix - torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device))


def cholesky(latents: Mapping[str, Tensor]) -> Tensor:
    """The positive ``L L^H``."""
    x = latents["x"]
    diagonal = torch.diag_embed(x.diagonal(dim1=-2, dim2=-1).exp())
    lower = x.triu(1).mT
    if "imag" in latents:
        lower = torch.complex(lower, latents["imag"].triu(1).mT)
    factor = lower + diagonal
    return factor @ factor.mH


def polar(latents: Mapping[str, Tensor]) -> Tensor:
    """``cayley times L L^H``."""
    return cayley(latents) @ cholesky(latents)


def polar_inverse(matrix: Tensor) -> Latents:
    """Polar decomposition, then the inverse of both factors."""
    u, s, vh = torch.linalg.svd(matrix)
    latents = cayley_inverse(u @ vh)
    factor = torch.linalg.cholesky((vh.mH * s.unsqueeze(-2).to(vh.dtype)) @ vh)
    upper = factor.mT.triu(1)
    logs = torch.diag_embed(factor.diagonal(dim1=-2, dim2=-1).real.log())
    latents["x"] = latents["x"] + (upper.real if upper.is_complex() else upper) + logs
    if upper.is_complex():
        latents["imag"] = latents["imag"] + upper.imag
    return latents


class _Polar(torch.autograd.Function):
    """The unitary polar factor Q of W = Q P. With ``P O + O P = Q^H dW - dW^H Q``, ``dQ = Q O``: no gap is needed."""

    @staticmethod
    def forward(ctx: Any, w: Tensor) -> Tensor:
        """``w[.., n, n]`` to its factor."""
        u, s, vh = torch.linalg.svd(w)
        ctx.save_for_backward(u, s, vh)
        factor: Tensor = u @ vh
        return factor

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        """Through the singular vectors, with sums of singular values below, never differences."""
        u, s, vh = ctx.saved_tensors
        inner = u.mH @ grads[0] @ vh.mH
        result: Tensor = u @ ((inner - inner.mH) / (s.unsqueeze(-1) + s.unsqueeze(-2))) @ vh
        return result


def nearest(latents: Mapping[str, Tensor]) -> Tensor:
    """The polar factor of ``1 + x``."""
    result: Tensor = _Polar.apply(direct(latents))  # type: ignore[no-untyped-call]
    return result


def householder(latents: Mapping[str, Tensor]) -> Tensor:
    """Reflections along ``e_k + x[2k]`` and ``e_k + x[2k + 1]``, k = 0 .. n // 2 - 1, one after the other."""
    x = _full(latents)
    n = x.shape[-1]
    eye = torch.eye(n, dtype=x.dtype, device=x.device)
    result = eye.expand(x.shape)
    for row in range(n // 2 * 2):
        v = x[..., row, :] + eye[row // 2]
        v = v / torch.linalg.vector_norm(v, dim=-1, keepdim=True)
        result = result - 2 * (result @ v.unsqueeze(-1)) @ v.conj().unsqueeze(-2)
    return result


def householder_inverse(q: Tensor) -> Latents:
    """Of rotations: mirrors that bring one column after the other to the identity's, then pairs that cancel.

    MatchError for a reflection, which no even number of mirrors gives, and for a complex matrix other than the identity.
    """
    n = q.shape[-1]
    eye = torch.eye(n, dtype=q.dtype, device=q.device)
    if q.is_complex():
        if not torch.allclose(q, eye.expand(q.shape)):
            raise MatchError("householder coordinates of a complex matrix start at the identity only: use cayley, exp or svd")
        return _split(torch.zeros_like(q))
    flat = q.reshape(-1, n, n)
    x = torch.zeros_like(flat)
    for matrix, latents in zip(flat, x, strict=True):
        mirrors = _mirrors(matrix)
        if len(mirrors) % 2:
            raise MatchError("a reflection is no product of an even number of mirrors: use cayley or svd")
        for row, v in enumerate(mirrors):
            latents[row] = v - eye[row // 2]
    return {"x": x.reshape(q.shape)}


def _mirrors(q: Tensor) -> list[Tensor]:
    """Unit vectors of at most n reflections whose product, in order, is the orthogonal ``q[n, n]``."""
    work, n = q.clone(), q.shape[-1]
    eye = torch.eye(n, dtype=q.dtype, device=q.device)
    found = []
    for k in range(n):
        x = work[:, k].clone()
        x[: k + 1], cosine = 0.0, work[k, k]
        v = x - eye[k] * (x @ x / (1 + cosine) if cosine > 0 else 1 - cosine)  # the column minus e_k, without cancellation
        if bool(v.any()):
            found.append(v / torch.linalg.vector_norm(v))
            work = work - 2 * torch.outer(found[-1], found[-1] @ work)
    return found


def _phase(latents: Mapping[str, Tensor]) -> Tensor:
    """One number of modulus one: ``exp(i imag)``, or its sign where it is real."""
    if "imag" not in latents:
        return torch.ones_like(latents["x"]) * latents["signs"].unsqueeze(-1) + 0 * latents["x"]
    return torch.polar(torch.ones_like(latents["imag"]), latents["imag"]) * latents["signs"].unsqueeze(-1)


def _phase_inverse(q: Tensor) -> Latents:
    if not q.is_complex():
        return {"x": torch.zeros_like(q), "signs": q[..., 0]}
    return {"x": torch.zeros_like(q.real), "imag": q.angle(), "signs": torch.ones_like(q.real[..., 0])}


def _radius(latents: Mapping[str, Tensor]) -> Tensor:
    return _phase(latents) * latents["x"].exp()


def _radius_inverse(z: Tensor) -> Latents:
    return {**_phase_inverse(z / z.abs()), "x": z.abs().log()}


def _full(latents: Mapping[str, Tensor]) -> Tensor:
    return torch.complex(latents["x"], latents["imag"]) if "imag" in latents else latents["x"]


def _split(matrix: Tensor) -> Latents:
    return {"x": matrix.real, "imag": matrix.imag} if matrix.is_complex() else {"x": matrix}


_SIGNS = frozenset({"signs"})
CAYLEY = Parametrization(cayley, cayley_inverse, _SIGNS)
PHASE = Parametrization(_phase, _phase_inverse, _SIGNS)
RADIUS = Parametrization(_radius, _radius_inverse, _SIGNS)

ORTHOGONAL = {
    "cayley": CAYLEY,
    "exp": Parametrization(exponential_skew, logarithm_skew),
    "householder": Parametrization(householder, householder_inverse),
    "svd": Parametrization(nearest, direct_inverse),
}

INVERTIBLE = {
    "polar": Parametrization(polar, polar_inverse, _SIGNS),
    "exp": Parametrization(exponential, logarithm),
    "direct": Parametrization(direct, direct_inverse),
    "cayley": CAYLEY,
}
