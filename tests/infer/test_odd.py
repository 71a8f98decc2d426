"""Odd modules: what is claimed of them holds, and nothing is missing from most."""

from __future__ import annotations

import pytest

import symgraph as sg
from tests.infer.modules import found
from tests.infer.odd import CASES

# A product next to a whole matrix hides in it, and statistics of a norm trade with what stands before it: not counted yet.
NOT_COUNTED = {"low_rank_beside_a_whole", "convolution_and_batch_norm"}


@pytest.mark.parametrize("name", CASES)
def test_what_is_claimed_holds(name):
    graph, spec = found(CASES[name])
    report = sg.verify(graph, spec)
    assert report.passed, report.summary
    assert not spec.pins


@pytest.mark.parametrize("name", [name for name in CASES if name not in NOT_COUNTED])
def test_nothing_is_missing(name):
    graph, spec = found(CASES[name])
    report = sg.audit(graph, spec)
    assert report.complete, report.summary
    assert report.dimension + len(spec.approximate) == report.nullity
