"""Verify passes on what is right, and on nothing that is wrong in one place."""

from __future__ import annotations

import pytest

import symgraph as sg
from symgraph.errors import SpecError
from symgraph.spec.checks import check
from symgraph.verify.preservation import belongs
from tests.verify.mutations import BROKEN, MUTATIONS
from tests.verify.samples import MODELS, model


@pytest.mark.parametrize("name", MODELS)
def test_the_spec_as_discovered_passes(name):
    graph, spec = model(name)
    check(spec)
    report = sg.verify(graph, spec)
    assert report.passed, report.summary
    assert report.max_relative_error <= 1e-12


def rejected(graph, spec):
    """By the checks that a loader makes, or by the function itself."""
    try:
        check(spec)
        report = sg.verify(graph, spec)
    except SpecError:
        return True
    return not report.passed and report.max_relative_error > 1e-4


@pytest.mark.parametrize("case", MUTATIONS, ids="{0[0]}: {0[1]}".format)
def test_a_wrong_spec_is_rejected(case):
    graph, spec = model(case[0])
    wrong = MUTATIONS[case](spec)
    assert wrong != spec
    assert rejected(graph, wrong)


@pytest.mark.parametrize("case", BROKEN)
def test_a_spec_that_contradicts_itself_or_the_model_is_refused(case):
    graph, spec = model("rectified")
    wrong = BROKEN[case](spec)
    with pytest.raises(SpecError):
        check_both(graph, wrong)


def check_both(graph, spec):
    check(spec)
    belongs(graph, spec)


def test_there_are_enough_of_them():
    assert len(MUTATIONS) >= 50
    assert len({name for name, _ in MUTATIONS}) >= 4
