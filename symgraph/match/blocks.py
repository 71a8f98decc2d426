"""The isotypic blocks of a commutant inside of real matrices: read out as real or complex m x m matrices, written back.

A complex number acts on a plane (re, im) by ``[[re, -im], [im, re]]``; reading a real matrix out takes the nearest
matrix of that form, up to the factor 2 for correlations and Gram matrices, where both parts add up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from symgraph.spec.model import Block, Space


@dataclass(frozen=True)
class Blocks:
    """Blocks of one field and size: coordinates ``places[blocks, m, 1 or 2]``, matrices ``values[.., blocks, m, m]``."""

    places: Tensor
    values: Tensor


def alike(space: Space) -> Iterator[tuple[str, Tensor]]:
    """Field and ``places[blocks, m, 1 or 2]`` of blocks of the same field and size."""
    groups: dict[tuple[str, int], list[Block]] = defaultdict(list)
    for block in space.blocks:
        groups[block.field, len(block.coordinates)].append(block)
    for (field, _), blocks in groups.items():
        yield field, torch.tensor([[list(one) for one in block.coordinates] for block in blocks])


def gather(space: Space, c: Tensor) -> Iterator[Blocks]:
    """The blocks of ``c[.., n, n] = sum x_i y_j``: real corners, or ``sum z_k conj(w_l)`` over planes."""
    for field, places in alike(space):
        parts = {(p, q): _corner(c, places, p, q) for p in range(places.shape[-1]) for q in range(places.shape[-1])}
        if field == "real":
            yield Blocks(places, parts[0, 0])
        else:
            yield Blocks(places, torch.complex(parts[0, 0] + parts[1, 1], parts[1, 0] - parts[0, 1]))


def scatter(matrix: Tensor, blocks: Blocks, values: Tensor) -> None:
    """Write ``values[.., blocks, m, m]`` into the real matrices ``matrix[.., n, n]``."""
    rows, columns = blocks.places[:, :, None, :], blocks.places[:, None, :, :]
    if not values.is_complex():
        matrix[..., rows[..., 0], columns[..., 0]] = values
        return
    matrix[..., rows[..., 0], columns[..., 0]] = values.real
    matrix[..., rows[..., 1], columns[..., 1]] = values.real
    matrix[..., rows[..., 0], columns[..., 1]] = -values.imag
    matrix[..., rows[..., 1], columns[..., 0]] = values.imag


def _corner(c: Tensor, places: Tensor, p: int, q: int) -> Tensor:
    return c[..., places[:, :, None, p], places[:, None, :, q]]
