"""What a spec lacks, so that a person can read it.

The part of a null space outside of a spec's directions is one subspace, smeared over all parameters. Readable is which *few*
parameters suffice for a direction that is not in the spec: parameters are dropped one after the other as long as some such
direction remains on the others. What it does to those that are left is then put into words where it is simple:

    `a.bias` and `b.bias` enter only through their sum (7 directions)
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

NEGLIGIBLE = 1e-6
"""Length below which a part of a unit vector is no part of it."""
READABLE = 64
"""Most missing directions that are put into words."""
SENTENCES = 8
"""Most groups of parameters that are named."""


def explained(null: Tensor, known: Tensor, weights: Mapping[str, Tensor], places: Mapping[str, Tensor]) -> tuple[str, ...]:
    """Sentences on the directions of ``null`` [n, k] outside of ``known`` [n, j], both orthonormal, the latter within.

    ``places`` has the rows of every parameter, ``weights`` [rows] its values there.
    """
    sentences: list[str] = []
    while 0 < null.shape[1] - known.shape[1] <= READABLE and len(sentences) < SENTENCES:
        rest = null - known @ (known.mT @ null)
        energy = {name: float(rest[rows].square().sum()) for name, rows in places.items()}
        names = _few(null, known, places, sorted(places, key=lambda name: energy[name]))
        fresh = _outside(_within(null, names, places), _within(known, names, places))
        parts = {name: fresh[places[name]] for name in names}
        sentences.append(_sentence(parts, {name: weights[name] for name in names}))
        known = torch.linalg.qr(torch.cat([known, fresh - known @ (known.mT @ fresh)], 1)).Q
    return tuple(sentences)


def _few(null: Tensor, known: Tensor, places: Mapping[str, Tensor], order: list[str]) -> list[str]:
    """A set of parameters that none can be taken from: on the others, all of the null space would be known."""
    names = list(order)
    for name in order:
        others = [each for each in names if each != name]
        if _within(null, others, places).shape[1] > _within(known, others, places).shape[1]:
            names = others
    return [name for name in places if name in names]


def _within(space: Tensor, names: list[str], places: Mapping[str, Tensor]) -> Tensor:
    """An orthonormal basis of the vectors of a span that are zero outside of some parameters."""
    outside = [rows for name, rows in places.items() if name not in names]
    if not outside or not space.shape[1]:
        return space
    _, values, right = torch.linalg.svd(space[torch.cat(outside)], full_matrices=True)
    inside: Tensor = space @ right[int((values > NEGLIGIBLE).sum()) :].mT
    return inside


def _outside(space: Tensor, known: Tensor) -> Tensor:
    """An orthonormal basis of the part of a span that is orthogonal to another one within it."""
    left: Tensor = torch.linalg.svd(space - known @ (known.mT @ space), full_matrices=False)[0]
    return left[:, : space.shape[1] - known.shape[1]]


def _sentence(parts: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> str:
    """``parts`` [rows, k]: what every parameter does under k directions."""
    names, count = [f"`{name}`" for name in parts], next(iter(parts.values())).shape[1]
    directions = f"({count} direction{'s' if count > 1 else ''})"
    values = list(parts.values())
    if len(values) == 1:
        return f"{names[0]} {'is' if count == len(values[0]) else 'is in part'} not seen {directions}"
    if len(values) == 2 and values[0].shape == values[1].shape:
        if _same(values[0], -values[1]):
            return f"{' and '.join(names)} enter only through their sum {directions}"
        if _same(values[0], values[1]):
            return f"{' and '.join(names)} enter only through their difference {directions}"
    if count == 1 and (scaled := _scaled(parts, weights)):
        return f"a scale: {scaled} {directions}"
    return f"{', '.join(names)} move together {directions}"


def _same(a: Tensor, b: Tensor) -> bool:
    return float((a - b).abs().max()) < NEGLIGIBLE


def _scaled(parts: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> str:
    """``a times s, b times s^-2`` where a direction multiplies every parameter as a whole; else nothing."""
    rates: dict[str, float] = {}
    for name, part in parts.items():
        rate = float(part[:, 0] @ weights[name] / weights[name].square().sum())
        if not _same(part[:, 0], rate * weights[name]):
            return ""
        rates[name] = rate
    unit = min((abs(rate) for rate in rates.values()), default=0.0)
    powers = {name: rate / unit for name, rate in rates.items()} if unit else {}
    if any(abs(power - round(power)) > NEGLIGIBLE for power in powers.values()):
        return ""
    return ", ".join(f"`{name}` times s^{round(power)}" for name, power in powers.items())
