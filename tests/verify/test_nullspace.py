"""The null space of a matrix, where it stands clear of weak directions, and of rows that come in blocks."""

from __future__ import annotations

import pytest
import torch

from symgraph.verify.nullspace import null_space, settled


def matrix(rows, values, seed=0):
    """A matrix [rows, n] with the given singular values, and its right singular vectors."""
    generator = torch.Generator().manual_seed(seed)
    count = len(values)
    left = torch.linalg.qr(torch.randn(rows, count, generator=generator, dtype=torch.float64)).Q
    right = torch.linalg.qr(torch.randn(count, count, generator=generator, dtype=torch.float64)).Q
    return left @ torch.diag(torch.tensor(values, dtype=torch.float64)) @ right.mT, right


@pytest.mark.parametrize("weak", [1e-4, 1e-6, 1e-8])
@pytest.mark.parametrize("null", [0, 1, 7])
def test_a_weak_direction_is_not_null(weak, null):
    values = [10.0, 5.0, 3.0, 2.0, 1.5, 1.0, 0.5, 0.1, 0.05, 0.01, 1e-4, weak] + [0.0] * null
    built, right = matrix(60, values)
    found = null_space(built)
    assert found.basis.shape == (len(values), null)
    if null:
        assert float((right[:, -null:].mT @ found.basis).det().abs()) == pytest.approx(1.0, abs=1e-6)
        assert found.gap > 4


def test_nothing_is_seen():
    assert null_space(torch.zeros(9, 4, dtype=torch.float64)).basis.shape == (4, 4)


def test_a_direction_that_shows_late():
    """Only one row in many sees the last parameter; the count waits for it."""
    generator = torch.Generator().manual_seed(1)
    drawn = 0

    def blocks():
        nonlocal drawn
        while True:
            block = torch.randn(4, 6, generator=generator, dtype=torch.float64)
            block[:, 5] = 0.0
            if drawn == 5:
                block[0, 5] = 1.0
            drawn += 1
            yield block

    assert settled(blocks(), 6).basis.shape[1] == 0
    assert drawn > 5
