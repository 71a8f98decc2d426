"""Elimination and span against dense linear algebra."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import null_space

from symgraph.infer.linear import Elimination, Span, integral

UNKNOWNS = 6
ROWS = st.lists(st.lists(st.integers(-3, 3), min_size=UNKNOWNS, max_size=UNKNOWNS), max_size=8)


def solved(rows, modulo=0):
    system = Elimination(modulo)
    for row in rows:
        system.equation(enumerate(row))
    return system


def dense(rows):
    return np.array([[float(row.get(key, 0)) for key in range(UNKNOWNS)] for row in rows]).reshape(-1, UNKNOWNS)


def binary_rank(matrix):
    rows, rank = [int("".join(str(value % 2) for value in row), 2) for row in matrix], 0
    while rows:
        pivot = rows.pop()
        if pivot:
            rank += 1
            low = pivot & -pivot
            rows = [row ^ pivot if row & low else row for row in rows]
    return rank


@given(ROWS)
@settings(max_examples=150, deadline=None)
def test_the_basis_spans_the_null_space(rows):
    matrix = np.array(rows, dtype=float).reshape(-1, UNKNOWNS)
    basis = dense(solved(rows).basis(range(UNKNOWNS)))
    expected = null_space(matrix).shape[1] if len(rows) else UNKNOWNS
    assert len(basis) == expected
    assert not len(basis) or np.linalg.matrix_rank(basis) == expected
    assert not (matrix @ basis.T).any()


@given(ROWS)
@settings(max_examples=150, deadline=None)
def test_the_basis_over_two_elements(rows):
    basis = dense(solved(rows, 2).basis(range(UNKNOWNS))).astype(int)
    assert len(basis) == UNKNOWNS - binary_rank(rows) == binary_rank(basis.tolist())
    assert not (np.array(rows, dtype=int).reshape(-1, UNKNOWNS) @ basis.T % 2).any()


@given(ROWS, st.randoms(use_true_random=False))
@settings(max_examples=80, deadline=None)
def test_the_order_of_equations_does_not_matter(rows, random):
    shuffled = random.sample(rows, len(rows))
    first, second = (dense(solved(each).basis(range(UNKNOWNS))) for each in (rows, shuffled))
    assert len(first) == len(second)
    assert not len(first) or np.linalg.matrix_rank(np.concatenate([first, second])) == len(first)


@given(ROWS)
@settings(max_examples=80, deadline=None)
def test_an_equation_that_is_implied_changes_nothing(rows):
    system = solved(rows)
    before = system.basis(range(UNKNOWNS))
    assert not any(system.equation(enumerate(row)) for row in rows)
    assert system.basis(range(UNKNOWNS)) == before


@given(ROWS)
@settings(max_examples=80, deadline=None)
def test_a_projection_of_the_solutions(rows):
    kept = (0, 2, 3)
    full = dense(solved(rows).basis(range(UNKNOWNS)))[:, kept]
    found = dense(solved(rows).basis(kept))[:, kept]
    rank = int(np.linalg.matrix_rank(full)) if len(full) else 0
    assert len(found) == rank
    assert not rank or np.linalg.matrix_rank(np.concatenate([full, found])) == rank


@given(ROWS, st.lists(st.integers(-3, 3), min_size=UNKNOWNS, max_size=UNKNOWNS))
@settings(max_examples=150, deadline=None)
def test_a_span_knows_its_vectors(rows, vector):
    span = Span()
    added = [span.add(dict(enumerate(row))) for row in rows]
    rank = int(np.linalg.matrix_rank(np.array(rows))) if rows else 0
    assert sum(added) == rank == len(span.pivots)
    inside = int(np.linalg.matrix_rank(np.array([*rows, vector]))) == rank
    assert (not span.residual(dict(enumerate(vector)))) == inside


@given(ROWS)
@settings(max_examples=80, deadline=None)
def test_a_span_over_two_elements(rows):
    span = Span(2)
    assert sum(span.add({key: value % 2 for key, value in enumerate(row) if value % 2}) for row in rows) == binary_rank(rows)


def test_preferred_unknowns_are_eliminated_last():
    system = Elimination(prefer=lambda key: key == "kept")
    system.equation([("kept", 1), ("other", -2)])
    assert set(system.expression("other")) == {"kept"}


def test_two_elements_take_integers():
    with pytest.raises(ValueError, match="integers"):
        Elimination(2).equation([("a", Fraction(1, 2))])


@pytest.mark.parametrize(
    ("row", "expected"),
    [({}, {}), ({0: Fraction(1, 2), 1: Fraction(-1, 3)}, {0: 3, 1: -2}), ({0: -4, 1: 6}, {0: 2, 1: -3})],
)
def test_the_shortest_integer_multiple(row, expected):
    assert integral(row) == expected
