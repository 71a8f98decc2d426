from itertools import product

import pytest

from symgraph.algebra.groups import Group, includes, meet

ALL = list(Group)


def test_inclusion_is_an_order():
    for a, b, c in product(ALL, repeat=3):
        assert includes(a, a)
        assert not (includes(a, b) and includes(b, a)) or a is b
        assert not (includes(a, b) and includes(b, c)) or includes(a, c)


def test_the_meet_is_the_greatest_lower_bound():
    for a, b in product(ALL, repeat=2):
        assert includes(a, meet(a, b))
        assert includes(b, meet(a, b))
        for c in ALL:
            assert includes(meet(a, b), c) == (includes(a, c) and includes(b, c))


def test_the_meet_is_associative_commutative_idempotent():
    for a, b, c in product(ALL, repeat=3):
        assert meet(meet(a, b), c) is meet(a, meet(b, c))
        assert meet(a, b) is meet(b, a)
        assert meet(a, a) is a


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("orthogonal", "monomial", "signed_permutation"),
        ("orthogonal", "positive_monomial", "permutation"),
        ("orthogonal_fixing_ones", "signed_permutation", "permutation"),
        ("orthogonal", "commutant", "orthogonal_commutant"),
        ("general_linear", "commutant", "commutant"),
        ("signed_permutation", "positive_monomial", "permutation"),
        ("commutant", "monomial", "trivial"),
    ],
)
def test_some_meets(a, b, expected):
    assert meet(Group(a), Group(b)).value == expected
