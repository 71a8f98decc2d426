"""Whatever a complete spec loses, the audit says which parameters are concerned; and dimension, rank and nullity are one."""

from __future__ import annotations

import re
from functools import cache

import pytest
import torch

import symgraph as sg
from symgraph.algebra.groups import Group
from symgraph.spec.operations import canonicalize, tangents
from symgraph.verify.preservation import random_state
from tests.infer.modules import found
from tests.infer.odd import CASES
from tests.verify.samples import MODELS, model
from tests.verify.test_audit import carriers, continuous, without_space

ODD = ("packed_by_head", "gate_per_head", "two_streams", "tied_linear_autoencoder", "squared_rectifier", "layer_scale",
       "learned_temperature", "weight_norm", "group_norm", "parallel_branches", "bilinear_form", "mixer")  # fmt: skip
# In `experts`, what a wide layer writes into the kernel of a narrow one is not seen; no part of a spec says so yet.
NAMES = (*(name for name in MODELS if name != "experts"), *ODD)


def graph_and_spec(name):
    return model(name) if name in MODELS else found(CASES[name])


@cache
def whole(name):
    graph, spec = graph_and_spec(name)
    return sg.audit(graph, spec, seconds=0)


def without_scale(spec, space, scale):
    """The spec in which one scale generator of a space is missing, and nothing else."""
    left = tuple(each for each in spec.space(space).scales if each.name != scale)
    group = spec.space(space).group
    if group.permutes and not any(each.kind != "sign" for each in left):
        group = Group.SIGNED_PERMUTATION if left else Group.PERMUTATION
    spaces = tuple(each.model_copy(update={"scales": left, "group": group}) if each.name == space else each
                   for each in spec.spaces)  # fmt: skip

    def word(text):
        return re.sub(re.escape(space) + r"(')?\[([^]]*)\]", lambda match: rewritten(match, space, scale), text)

    tensors = tuple(each.model_copy(update={"axes": tuple(map(word, each.axes)), "scale": word(each.scale)})
                    for each in spec.tensors)  # fmt: skip
    return spec.model_copy(update={"spaces": spaces, "tensors": tensors})


def rewritten(match, space, scale):
    kept = [each.strip() for each in match[2].split(",") if each.strip().split("^")[0] != scale]
    return space + (match[1] or "") + (f"[{', '.join(kept)}]" if kept else "")


def parts(spec):
    """What can be dropped: a label, the spec without it, and the parameters that it concerns."""
    for name in continuous(spec):
        yield f"space {name}", without_space(spec, name), carriers(spec, name)
        scales = [scale for scale in spec.space(name).scales if scale.kind != "sign"]
        for scale in scales if len(scales) > 1 else ():
            yield f"scale {scale.name} of {name}", without_scale(spec, name, scale.name), carriers(spec, name)
    for shift in spec.shifts:
        changed = spec.model_copy(update={"shifts": tuple(each for each in spec.shifts if each is not shift)})
        yield f"shift {shift.name}", changed, {term.target.tensor for term in shift.terms}
    for one in spec.absorptions:
        changed = spec.model_copy(update={"absorptions": tuple(each for each in spec.absorptions if each is not one)})
        yield f"absorption {one.source}", changed, {one.source, *(target.tensor for target in one.targets)}


def rank(spec, name):
    """Of all orbit directions, at weights in the normal form of the complete spec."""
    graph, complete = graph_and_spec(name)
    return int(torch.linalg.matrix_rank(tangents(spec, canonicalize(complete, random_state(graph, complete))), rtol=1e-9))


@pytest.mark.parametrize("name", NAMES)
def test_every_lost_part_is_noticed(name):
    graph, spec = graph_and_spec(name)
    lost = 0
    for label, changed, concerned in parts(spec):
        lacking = rank(spec, name) - rank(changed, name)
        report = sg.audit(graph, changed, seconds=0)
        assert report.nullity - report.rank == lacking, label
        if lacking:  # else other parts have its directions, too
            lost += 1
            assert not report.complete, label
            assert set(report.missing) & concerned, label
            # groups are stated for the normal form: without an absorption they claim too much
            assert "missing" in report.summary or label.startswith("absorption"), label
    assert lost or not whole(name).nullity


@pytest.mark.parametrize("name", NAMES)
def test_dimension_rank_and_nullity_are_one(name):
    _, spec = graph_and_spec(name)
    report = whole(name)
    assert report.complete, report.summary
    assert spec.dimension.total == rank(spec, name) == report.nullity - report.approximate


def test_there_is_something_of_every_kind():
    labels = {label.split()[0] for name in NAMES for label, _, _ in parts(graph_and_spec(name)[1])}
    assert labels == {"space", "scale", "shift", "absorption"}
