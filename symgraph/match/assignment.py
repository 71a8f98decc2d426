"""The permutation, with signs, that aligns best: linear assignment on correlations.

Every occurrence of a space carries integer weights for its scale generators; a sign enters where the weight is odd. So
the correlations come sorted by the *parity* of their weights, and for one pair of indices the best signs are found by
trying all of them: a space has few generators.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from symgraph.algebra.elements import Monomial
from symgraph.match.selection import Freedom
from symgraph.spec.model import Space

Parity = frozenset[str]  # the generators whose sign an occurrence feels
Correlations = Mapping[Parity, Tensor]  # [*per, n, n] each


def assign(space: Space, freedom: Freedom, correlations: Correlations) -> Monomial:
    """The best permutation and signs; the index of a sign is the old one, that of the moved side."""
    some = next(iter(correlations.values()))
    if not freedom.permutes:
        diagonal = {parity: c.diagonal(dim1=-2, dim2=-1) for parity, c in correlations.items()}
        permutation = torch.arange(space.size).expand(some.shape[:-1])
        return monomial(space, permutation, _diagonal_signs(space, freedom.signs, diagonal))
    choices = [dict(zip(freedom.signs, signs, strict=True)) for signs in product((1.0, -1.0), repeat=len(freedom.signs))]
    if space.partition:  # one sign for a class: keep it while permuting
        choices = choices[:1]
    profits = torch.stack([sum_signed(correlations, signs) for signs in choices])
    best, which = profits.max(0)
    permutation = solve(best)
    chosen = which.gather(-1, permutation.unsqueeze(-1)).squeeze(-1)  # [*per, new]
    old = torch.zeros_like(chosen).scatter(-1, permutation, chosen)
    values = {name: torch.tensor([choice[name] for choice in choices], dtype=torch.float64)[old] for name in freedom.signs}
    return monomial(space, permutation, values)


def sum_signed(correlations: Correlations, signs: Mapping[str, float]) -> Tensor:
    """The profit of every pair under the given signs."""
    total = torch.zeros_like(next(iter(correlations.values())))
    for parity, c in correlations.items():
        sign = 1.0
        for name in parity:
            sign *= signs.get(name, 1.0)
        total = total + sign * c
    return total


def solve(profit: Tensor) -> Tensor:
    """Permutations ``p[.., i]`` that maximise ``sum_i profit[.., i, p[i]]``."""
    flat = profit.reshape(-1, *profit.shape[-2:])
    rows = [torch.from_numpy(linear_sum_assignment(one.cpu().numpy(), maximize=True)[1]) for one in flat]
    return torch.stack(rows).reshape(profit.shape[:-1])


def monomial(space: Space, permutation: Tensor, signs: Mapping[str, Tensor]) -> Monomial:
    """An element without scales; generators without a sign have ones."""
    ones = torch.ones(permutation.shape, dtype=torch.float64)
    return Monomial(
        permutation.clone(),
        {scale.name: torch.zeros_like(ones) for scale in space.scales},
        {scale.name: signs.get(scale.name, ones) for scale in space.scales},
    )


def _diagonal_signs(space: Space, names: Sequence[str], diagonal: Mapping[Parity, Tensor]) -> dict[str, Tensor]:
    """The best signs without a permutation, one for every class of the partition."""
    if not names:
        return {}
    members = [list(one) for one in space.partition] or [[index] for index in range(space.size)]
    choices = list(product((1.0, -1.0), repeat=len(names)))
    table = torch.tensor(choices, dtype=torch.float64)
    profits = torch.stack([sum_signed(diagonal, dict(zip(names, choice, strict=True))) for choice in choices])
    result = torch.ones((len(names), *profits.shape[1:]), dtype=torch.float64)
    for one in members:
        which = profits[..., one].sum(-1).argmax(0)
        result[..., one] = table[which].movedim(-1, 0).unsqueeze(-1)
    return dict(zip(names, result, strict=True))
