"""Every law of the registry, tried on its examples: what it claims holds, and what is larger does not.

Letters along which a law claims less than it could are listed with the reason; so are the operators that cannot be tried.
"""

from __future__ import annotations

import inspect
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from symgraph.rules import RULES, Call, Law
from symgraph.rules.examples import Draw, Example, example
from symgraph.rules.fixed import fixed_operator
from symgraph.rules.law import LINEAR, ODD, Cat, Term, term
from symgraph.rules.registry import EXAMPLES
from tests.rules.claims import too_small, unsound
from tests.rules.equivariance import Case, bind, case

OPERATORS = [operator for operator in RULES if not isinstance(operator, str)]

NOT_TRIED = {
    "aten.empty_like": "its entries are not defined",
    "aten.new_empty": "its entries are not defined",
    "aten._grouped_mm": "runs on no processor in float64; tried with models",
    "transformers.grouped_mm_fallback": "rows follow the order of their groups: a claim of several operators together",
    "aten.sort": "the order of a sort follows what it sorts: a claim of several operators together",
    "aten.argsort": "the order of a sort follows what it sorts",
    "aten.index_put": "for pointers, the inverse of such an order",
    "aten.index_put_": "for pointers, the inverse of such an order",
    "aten.histc": "counts by pointer",
    "aten.bincount": "counts by pointer",
}
"""Operators whose laws for pointers are claims of several operators together, or that do not run."""

CONSTANT_RESULTS = {
    "aten.zeros_like", "aten.ones_like", "aten.full_like", "aten.new_zeros", "aten.new_ones", "aten.new_full", "aten.zero",
    "aten.zero_", "aten.fill", "aten.fill_", "aten.isnan", "aten.isinf", "aten.isfinite", "aten.isclose", "aten.nan_to_num",
    "aten.nan_to_num_", "aten.eq", "aten.ne", "aten.not_equal", "aten.logical_and", "aten.logical_or", "aten.logical_xor",
    "aten.logical_and_", "aten.logical_or_", "aten.any", "aten.all", "aten.imag", "aten.copy", "aten.copy_", "aten.argmax",
    "aten.argmin", "aten.gt", "aten.le", "aten.greater", "aten.bitwise_and", "aten.bitwise_or",
    "aten.bitwise_and_", "aten.bitwise_or_", "aten.__and__",
    "aten.__or__", "aten.__iand__", "aten.__ior__", "aten.to", "aten._to_copy",
}  # fmt: skip
"""Operators of which some examples give one value everywhere: constants, and truth values of unequal numbers."""

CLAIMS_LESS = {
    "compare": "comparisons, remainders, quotients and angles of two tensors are homogeneous in both together: no monomial",
    "relu6": "scales where nothing reaches the bound",
    "hardtanh": "bounds that the examples do not reach from below",
    "hardshrink": "scales where nothing crosses the bound",
    "nan_to_num": "the identity on finite numbers",
    "median": "of an odd number of entries: signs as well, which depends on the number",
    "nanmedian": "of an odd number of entries: signs as well",
    "prod": "signs along the other axes, where the number of entries is odd",
    "argmax": "positive scales, but not one for every entry",
    "argmin": "positive scales, but not one for every entry",
    "to": "truth values do not change with positive scales",
    "gather": "places that are read by pointer are pinned",
}
"""Operators, or rules, whose laws are smaller than the truth, and why."""


def name_of(operator: Any) -> str:
    return ".".join(str(operator).split(".")[:2])


def apply_fixed(x: Tensor, axis: int, matrices: Tensor, varying: tuple[int, ...]) -> Tensor:
    """What the mark of the engine stands for."""
    shape = [x.shape[each] if each in varying else 1 for each in range(x.dim()) if each != axis]
    moved = matrices.reshape(*shape, *matrices.shape[1:]) @ x.movedim(axis, -1).unsqueeze(-1)
    return moved.squeeze(-1).movedim(-1, axis)


def bound(operator: Any, given: Example) -> tuple[Call, list[Tensor], Any, list[Tensor]]:
    if operator is not fixed_operator:
        return bind(operator, given)
    rest = given.args[1:]
    call, tensors, run, results = bind(lambda x: apply_fixed(x, *rest), example(given.args[0]))
    return replace(call, target=operator, args=(call.args[0], *rest)), tensors, run, results


@cache
def cases(operator: Any) -> list[Case]:
    """Calls that the operator accepts and for which its rule has a law."""
    found = []
    for given in EXAMPLES[operator](Draw(torch.Generator().manual_seed(0))):
        try:
            call, tensors, run, results = bound(operator, given)
        except (RuntimeError, TypeError, IndexError):
            continue  # a call of another operator of the family
        law = RULES[operator](call)
        if law is not None:
            found.append(case(call, law, tensors, run, results))
    return found


def tried() -> list[Any]:
    return [operator for operator in OPERATORS if name_of(operator) not in NOT_TRIED]


def label(operator):
    """The same in every run: a function's text has its address."""
    return getattr(operator, "__name__", None) if inspect.isfunction(operator) else str(operator)


@pytest.mark.parametrize("operator", tried(), ids=label)
def test_law_holds(operator: Any) -> None:
    assert cases(operator), "no example for which there is a law"
    for found in cases(operator):
        assert unsound(found) == []


@pytest.mark.parametrize("operator", tried(), ids=label)
def test_truth_is_worth_testing(operator: Any) -> None:
    """Results that are zero, constant or no numbers agree with anything."""
    for found in cases(operator):
        for result in found.run(found.tensors)[: len([each for each in found.law.results if each is not None])]:
            assert not bool(result.isnan().any())
            if name_of(operator) not in CONSTANT_RESULTS:
                entries = torch.view_as_real(result.resolve_conj()) if result.is_complex() else result
                assert result.numel() == 1 or len(entries.unique()) > 1
                assert bool(result.any())


@pytest.mark.parametrize("operator", tried(), ids=label)
def test_nothing_larger_holds(operator: Any) -> None:
    rule, name = RULES[operator].__name__, name_of(operator).removeprefix("aten.").rstrip("_")
    if rule in CLAIMS_LESS or name in CLAIMS_LESS:
        return
    if name_of(operator) in CONSTANT_RESULTS:
        return
    assert [too_small(found) for found in cases(operator) if too_small(found)] == []


def test_claims_less_is_not_stale() -> None:
    names = {name_of(operator).removeprefix("aten.").rstrip("_") for operator in OPERATORS}
    rules = {RULES[operator].__name__ for operator in OPERATORS}
    assert set(CLAIMS_LESS) <= names | rules


# --- laws that are wrong on purpose -----------------------------------------------------------------------------------


def law_of(name: str, *args: Any, **kwargs: Any) -> tuple[Case, Any]:
    namespace, operator, overload = name.split(".")
    target = getattr(getattr(getattr(torch.ops, namespace), operator), overload)
    call, tensors, run, results = bind(target, example(*args, **kwargs))
    law = RULES[target](call)
    assert law is not None
    return case(call, law, tensors, run, results), lambda wrong: case(call, wrong, tensors, run, results)


DRAW = Draw(torch.Generator().manual_seed(7))

WRONG: dict[str, tuple[Any, ...]] = {
    "relu is linear": ("aten.relu.default", (DRAW(3, 5),), lambda law: replace(law, terms=(term(0),))),
    "relu is odd": ("aten.relu.default", (DRAW(3, 5),), lambda law: replace(law, terms=(Term(((0, ODD),)),))),
    "gelu is odd": ("aten.gelu.default", (DRAW(3, 5),), lambda law: replace(law, terms=(Term(((0, ODD),)),))),
    "tanh is linear": ("aten.tanh.default", (DRAW(3, 5),), lambda law: replace(law, terms=(Term(((0, LINEAR),)),))),
    "softmax does not mix": ("aten.softmax.int", (DRAW(3, 5), 1), lambda law: replace(law, mixes=())),
    "bias is free": (
        "aten.linear.default", (DRAW(3, 5), DRAW(7, 5), DRAW(7)), lambda law: replace(law, terms=law.terms[:1]),
    ),
    "bias on the wrong axis": (
        "aten.linear.default", (DRAW(7, 5), DRAW(7, 5), DRAW(7)),
        lambda law: replace(law, operands=(*law.operands[:2], ("a0",))),
    ),
    "positions of a convolution are free": (
        "aten.conv1d.default", (DRAW(2, 3, 7), DRAW(5, 3, 7), None, [1], [3]), lambda law: replace(law, uses=()),
    ),
    "groups of a convolution are exchanged with channels": (
        "aten.conv1d.default", (DRAW(2, 15, 7), DRAW(9, 5, 3), None, [1], [0], [1], 3),
        lambda law: replace(law, operands=(("b0", ("c", "g"), "s0"), *law.operands[1:])),
    ),
    "view splits column-major": (
        "aten.view.default", (DRAW(3, 35), [3, 5, 7]), lambda law: replace(law, operands=(("v0", ("v2", "v1")),)),
    ),
    "cat in the wrong order": (
        "aten.cat.default", ([DRAW(3, 5), DRAW(3, 5)], 1),
        lambda law: replace(law, results=(("a0", Cat(("c1", "c0"))),)),
    ),
    "slice one too far": (
        "aten.slice.Tensor", (DRAW(3, 13), 1, 3, 8),
        lambda law: replace(law, sizes=(("l", 4), ("m", 5), ("r", 4))),
    ),
    "a product is a sum": ("aten.mul.Tensor", (DRAW(3, 5), DRAW(3, 5)), lambda law: replace(law, terms=(term(0), term(1)))),
    "a sum is a product": ("aten.add.Tensor", (DRAW(3, 5), DRAW(3, 5)), lambda law: replace(law, terms=(term(0, 1),))),
    "division is a product": ("aten.div.Tensor", (DRAW(3, 5), DRAW(3, 5)), lambda law: replace(law, terms=(term(0, 1),))),
    "a sum over an axis that stays": (
        "aten.cumsum.default", (DRAW(3, 5), 1), lambda law: replace(law, uses=(), mixes=()),
    ),
    "flip is nothing": ("aten.flip.default", (DRAW(3, 5), [1]), lambda law: replace(law, uses=(), mixes=())),
    "the mean is the inner product's": (
        "aten.mean.dim", (DRAW(3, 5), [1]), lambda law: replace(law, operands=(("a0", ()),)),
    ),
    "the square is linear": (
        "aten.pow.Tensor_Scalar", (DRAW(3, 5), 2), lambda law: replace(law, terms=(term(0),)),
    ),
    "an epsilon is nothing": ("aten.add.Scalar", (DRAW(3, 5), 1e-3), lambda law: replace(law, terms=law.terms[:1])),
    "the mask is not read": (
        "aten.where.ScalarOther", (DRAW.mask(3, 5), DRAW(3, 5), 0.0), lambda law: replace(law, terms=(term(1),)),
    ),
    "the target of a write is not read": (
        "aten.slice_scatter.default", (DRAW(3, 13), DRAW(3, 5), 1, 3, 8),
        lambda law: replace(law, operands=(None, *law.operands[1:]), terms=law.terms[1:]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_laws_are_caught(name: str) -> None:
    operator, args, spoil = WRONG[name]
    right, again = law_of(operator, *args)
    assert unsound(right) == []
    try:
        wrong = again(spoil(right.law))
    except AssertionError:
        return  # refused: it does not fit the shapes
    assert unsound(wrong) != []


# --- calls that have no law -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "args"), [
    ("aten.dropout.default", (DRAW(3, 5), 0.5, True)),
    ("aten.view.dtype", (DRAW(3, 5), torch.int64)),
    ("aten.einsum.default", ("ii->i", [DRAW(5, 5)])),
    ("aten.diff.default", (DRAW(3, 5), 1, -1, DRAW(3, 1))),
    ("aten.rrelu.default", (DRAW(3, 5), 0.1, 0.3, True)),
])  # fmt: skip
def test_no_law(name: str, args: tuple[Any, ...]) -> None:
    namespace, operator, overload = name.split(".")
    target = getattr(getattr(getattr(torch.ops, namespace), operator), overload)
    rule: Any = RULES.get(target, lambda call: None)
    law: Law | None = rule(bind(target, example(*args))[0])
    assert law is None
