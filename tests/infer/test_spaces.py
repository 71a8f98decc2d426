"""Laws of unification: any order gives the same partition, and a conflict is an error."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from symgraph.infer.spaces import ConflictError, anchor, branches, direct_sum, factor, fresh, product, split, unify


def pattern(spaces):
    """Branches of all spaces, leaves numbered by first appearance: what is one, and of which size."""
    numbers = {}
    return [
        [tuple((numbers.setdefault(id(leaf), len(numbers)), leaf.size, leaf.anchored) for leaf in branch) for branch in
         branches(space)]
        for space in spaces
    ]  # fmt: skip


SIZES = (12, 12, 12, 12, 12)
FORMS = [
    lambda: product([fresh(3), fresh(4)]),
    lambda: product([fresh(6), fresh(2)]),
    lambda: product([fresh(3), direct_sum([fresh(2), fresh(2)])]),
    lambda: product([direct_sum([fresh(1), fresh(2)]), fresh(4)]),
    lambda: direct_sum([fresh(4), fresh(8)]),
    lambda: direct_sum([product([fresh(2), fresh(2)]), product([fresh(4), fresh(2)])]),
    lambda: fresh(12),
    lambda: fresh(12, anchored=True),
]


def outcome(chosen, pairs):
    """What is left of the spaces after all pairs were unified; None for a conflict."""
    spaces = [FORMS[form]() for form in chosen]
    try:
        for a, b in pairs:
            unify(spaces[a], spaces[b])
    except ConflictError:
        return None
    return pattern(spaces)


PAIRS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=6)


@given(st.lists(st.sampled_from(range(6)), min_size=5, max_size=5), PAIRS, st.randoms(use_true_random=False))
@settings(max_examples=300, deadline=None)
def test_orders_that_end_without_a_conflict_agree(chosen, pairs, random):
    shuffled = [pair if random.random() < 0.5 else pair[::-1] for pair in random.sample(pairs, len(pairs))]
    first, second = outcome(chosen, pairs), outcome(chosen, shuffled)
    assert first == second or first is None or second is None


@given(st.lists(st.sampled_from((0, 1, 6)), min_size=5, max_size=5), PAIRS, st.randoms(use_true_random=False))
@settings(max_examples=200, deadline=None)
def test_products_do_not_depend_on_the_order(chosen, pairs, random):
    assert outcome(chosen, pairs) == outcome(chosen, random.sample(pairs, len(pairs)))


@given(st.lists(st.sampled_from(range(len(FORMS))), min_size=5, max_size=5), PAIRS)
@settings(max_examples=150, deadline=None)
def test_unifying_again_changes_nothing(chosen, pairs):
    assert outcome(chosen, pairs) == outcome(chosen, [*pairs, *pairs])


@pytest.mark.parametrize("form", range(len(FORMS)))
def test_a_space_is_itself(form):
    space = FORMS[form]()
    before = pattern([space])
    unify(space, space)
    assert pattern([space]) == before


def test_products_refine_each_other():
    a, b = product([fresh(2), fresh(6)]), product([fresh(4), fresh(3)])
    unify(a, b)
    assert pattern([a, b]) == [[((0, 2, False), (1, 2, False), (2, 3, False))]] * 2


def test_sums_refine_each_other():
    a, b = direct_sum([fresh(2), fresh(6)]), direct_sum([fresh(5), fresh(3)])
    unify(a, b)
    assert pattern([a, b]) == [[((0, 2, False),), ((1, 3, False),), ((2, 3, False),)]] * 2


def test_a_product_with_a_sum():
    head, packed = fresh(2), direct_sum([fresh(3), fresh(3), fresh(4)])
    whole = fresh(20)
    unify(whole, product([head, packed]))
    assert pattern([whole]) == [
        [((0, 2, False), (1, 3, False)), ((0, 2, False), (2, 3, False)), ((0, 2, False), (3, 4, False))]
    ]


def test_blocks_one_after_another():
    whole = fresh(18)
    parts = split(whole, [6, 6, 6])
    for part in parts:
        unify(part, product([fresh(2), fresh(3)]))
    assert [[leaf.size for leaf in branch] for branch in branches(whole)] == [[2, 3]] * 3


def test_splitting_and_factoring_find_what_is_there():
    whole = fresh(10)
    first, second = split(whole, [4, 6])
    assert [part.root() for part in split(whole, [4, 6])] == [first, second]
    other = fresh(12)
    outer, inner = factor(other, [3, 4])
    assert [part.root() for part in factor(other, [3, 4])] == [outer, inner]


def test_an_anchor_reaches_everything_below():
    whole, part = fresh(6), fresh(2)
    unify(whole, product([part, fresh(3)]))
    anchor(whole)
    assert part.root().anchored
    free = fresh(2)
    unify(free, part)
    assert free.root().anchored


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_an_anchor_does_not_depend_on_the_order(order):
    a, b, c = fresh(6), product([fresh(2), fresh(3)]), fresh(6, anchored=True)
    for step in order:
        unify(*[(a, b), (b, c), (a, c)][step])
    assert all(leaf.anchored for branch in branches(a) for leaf in branch)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (lambda: fresh(3), lambda: fresh(4)),
        (lambda: product([fresh(4), fresh(6)]), lambda: product([fresh(3), fresh(8)])),
        (lambda: direct_sum([fresh(3), fresh(5)]), lambda: product([fresh(2), fresh(4)])),
    ],
)
def test_no_common_refinement_is_a_conflict(first, second):
    with pytest.raises(ConflictError):
        unify(first(), second())
