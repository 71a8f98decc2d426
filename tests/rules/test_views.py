"""Laws of operators that only rearrange, against brute force: where does every entry of an ``arange`` come from?"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import pytest
import torch

from symgraph.rules import Cat
from symgraph.rules.examples import example
from symgraph.rules.registry import find_rule
from symgraph.rules.shape import regroup
from tests.rules.equivariance import bind, case

aten = torch.ops.aten


def shapes(total: int, rank: int) -> list[tuple[int, ...]]:
    """All shapes of a size and rank."""
    divisors = [each for each in range(1, total + 1) if total % each == 0]
    return [shape for shape in product(divisors, repeat=rank) if prod(shape) == total]


def coordinates(pattern: Any, sizes: dict[str, int], shape: tuple[int, ...]) -> dict[tuple[tuple[str, int], ...], int]:
    """From letters with their indices to the flat position."""
    axes = []
    for axis in pattern:
        entries: list[tuple[tuple[str, int], ...]] = []
        for part in axis.parts if isinstance(axis, Cat) else (axis,):
            letters = (part,) if isinstance(part, str) else part
            entries += [tuple(zip(letters, index, strict=True))
                        for index in product(*(range(sizes[letter]) for letter in letters))]  # fmt: skip
        axes.append(entries)
    places = product(*axes)
    return {tuple(sorted(pair for part in place for pair in part)): flat for flat, place in enumerate(places)}


@pytest.mark.parametrize("total", [1, 2, 6, 12, 24, 30, 36])
def test_every_reshape(total: int) -> None:
    for source in shapes(total, 2) + shapes(total, 3):
        for target in shapes(total, 2) + shapes(total, 3):
            before, after, sizes, bad = regroup(source, target)
            assert len(before) == len(source)
            assert len(after) == len(target)
            for pattern, shape in ((before, source), (after, target)):
                for axis, size in zip(pattern, shape, strict=True):
                    letters = (axis,) if isinstance(axis, str) else axis
                    assert prod(sizes[letter] for letter in letters) == size
            if not bad:
                assert coordinates(before, sizes, source) == coordinates(after, sizes, target)


def test_axes_that_agree_are_free_where_others_are_not() -> None:
    before, after, _, bad = regroup((7, 6, 4, 5), (7, 4, 6, 5))
    assert before[0] == after[0]
    assert before[3] == after[3]
    assert not {before[0], before[3]} & set(bad)
    assert len(bad) == 4


def test_nothing_is_left_of_an_empty_tensor() -> None:
    assert regroup((0, 3), (3, 0))[3]


CALLS = {
    "view": (aten.view.default, (6, 35), ([2, 3, 5, 7],)),
    "permute": (aten.permute.default, (2, 3, 5), ([2, 0, 1],)),
    "transpose": (aten.transpose.int, (2, 3, 5), (0, -1)),
    "movedim": (aten.movedim.int, (2, 3, 5), (2, 0)),
    "slice": (aten.slice.Tensor, (3, 11), (1, 2, 7)),
    "narrow": (aten.narrow.default, (3, 11), (1, 2, 5)),
    "squeeze": (aten.squeeze.dim, (3, 1, 5), (1,)),
    "unsqueeze": (aten.unsqueeze.default, (3, 5), (1,)),
    "flatten": (aten.flatten.using_ints, (2, 3, 5), (1, 2)),
    "unflatten": (aten.unflatten.int, (2, 15), (1, [3, 5])),
    "repeat": (aten.repeat.default, (3, 5), ([2, 3],)),
    "repeat_interleave": (aten.repeat_interleave.self_int, (3, 5), (2, 1)),
    "expand": (aten.expand.default, (3, 1, 5), ([3, 7, 5],)),
}


@pytest.mark.parametrize("name", CALLS)
def test_law_against_arange(name: str) -> None:
    operator, shape, args = CALLS[name]
    x = torch.arange(prod(shape), dtype=torch.float64).reshape(shape)
    call, tensors, run, results = bind(operator, example(x, *args))
    rule = find_rule(operator)
    law = rule(call) if rule else None
    assert law is not None
    found = case(call, law, tensors, run, results)
    before = coordinates(law.operands[0], found.sizes, shape)
    after = coordinates(law.results[0], found.sizes, tuple(results[0].shape))
    values = results[0].flatten().tolist()
    read = {letter for pairs in before for letter, _ in pairs}
    for place, flat in after.items():
        own = tuple(pair for pair in place if pair[0] in read)
        assert values[flat] == before[own]
