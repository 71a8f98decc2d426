"""Laws that say: what is the same at every position stays the same at every position."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from symgraph.rules import RULES
from symgraph.rules.law import Structure, pattern_letters
from tests.rules.equivariance import Case
from tests.rules.test_laws import cases, law_of, tried

UNIFORM = [operator for operator in tried() if any(found.law.uniform for found in cases(operator))]


def leveled(found: Case) -> bool:
    """Whether a first operand that is the same at all positions comes out so, and unchanged where nothing multiplies it."""
    law, x = found.law, found.tensors[0]
    before, after = law.operands[0], law.results[0]
    assert before is not None
    assert after is not None
    elsewhere = {letter for pattern in law.operands[1:] for letter in pattern_letters(pattern or ())}
    pinned = {use.letter for use in law.uses if use.structure is Structure.FIXED}
    positions = (pinned | (set(pattern_letters(before)) - set(pattern_letters(after)))) - elsewhere
    same = x
    for axis, letter in enumerate(before):
        if letter in positions:
            same = same.narrow(axis, 0, 1).expand_as(same)
    given = found.run([same, *found.tensors[1:]])[0] - found.run([torch.zeros_like(same), *found.tensors[1:]])[0]
    level = given
    for axis, letter in enumerate(after):
        if letter in pinned - set(pattern_letters(before)) or letter in positions:
            level = level.narrow(axis, given.shape[axis] // 2, 1).expand_as(given)
    if not torch.allclose(given, level):
        return False
    alone = len(law.terms[0].powers) == 1
    return not alone or torch.equal(given.round(decimals=9).unique(), same.round(decimals=9).unique())


@pytest.mark.parametrize("operator", UNIFORM, ids=str)
def test_what_is_the_same_stays_the_same(operator: Any) -> None:
    assert all(leveled(found) for found in cases(operator) if found.law.uniform)


def test_the_check_can_fail() -> None:
    x, w = torch.randn(2, 3, 7, dtype=torch.float64), torch.randn(5, 3, 3, dtype=torch.float64)
    padded, wrong = law_of("aten.conv1d.default", x, w, None, [1], [1])
    assert not padded.law.uniform
    assert not leveled(wrong(replace(padded.law, uniform=True)))
    total, wrong = law_of("aten.sum.dim_IntList", torch.randn(3, 5, dtype=torch.float64), [1])
    assert not leveled(wrong(replace(total.law, uniform=True)))


def test_convolutions_without_padding_are_uniform() -> None:
    names = {RULES[operator].__name__ for operator in UNIFORM}
    assert {"convolution", "general_convolution", "linear_reduction", "adaptive_average_pool"} <= names
