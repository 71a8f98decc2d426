"""Coverage as data: every operator has a law, or a reason for having none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from symgraph.rules import COMPOSITES, RULES
from symgraph.rules.examples import Draw, Example
from symgraph.rules.registry import EXAMPLES, composite, rule
from symgraph.rules.unsupported import UNSUPPORTED, reason_for
from tests.rules.test_laws import NOT_TRIED, bound, name_of

MET = (Path(__file__).parent / "operators.txt").read_text().split("\n")[:-1]
"""Operators in the traced graphs of some five hundred architectures."""
RULED = {str(operator) for operator in (*RULES, *COMPOSITES)}
IN_PLACE = {"aten.abs_.default", "aten.detach_.default", "aten.dropout_.default"}


def core() -> list[str]:
    """The core set of ATen of this version of torch."""
    found = []
    for schema in torch._C._jit_get_all_schemas():
        if schema.name.startswith("aten::"):
            packet = getattr(torch.ops.aten, schema.name[6:])
            overload = getattr(packet, schema.overload_name or "default")
            if torch.Tag.core in overload.tags:
                found.append(str(overload))
    return sorted(found)


@pytest.mark.parametrize("name", sorted({*MET, *core()}))
def test_every_operator_has_a_law_or_a_reason(name: str) -> None:
    has_law, has_reason = name in RULED, bool(reason_for(name))
    assert has_law or has_reason, f"{name} has neither a law nor a reason"
    assert not (has_law and has_reason), f"{name} has a law; take it out of the table"


def test_no_stale_reason() -> None:
    wanted = {*MET, *core()}
    stale = [name for name in UNSUPPORTED if name not in wanted and not any(each.startswith(f"{name}.") for each in wanted)]
    assert not stale


def test_every_law_has_an_example() -> None:
    assert set(EXAMPLES) == {*RULES, *COMPOSITES}


@pytest.mark.parametrize("register", [rule, composite])
def test_no_example_no_registration(register: Any) -> None:
    with pytest.raises(TypeError, match="examples"):
        register("aten.relu6")


def test_second_registration_is_refused() -> None:
    with pytest.raises(ValueError, match=r"aten\.relu\.default has a rule already"):
        rule("aten.relu", examples=lambda draw: [])(lambda call: None)


def test_every_example_is_run() -> None:
    """A call that no operator of its family accepts tests nothing."""
    users: dict[int, list[Any]] = {}
    for operator, examples in EXAMPLES.items():
        if not isinstance(operator, str) and name_of(operator) not in NOT_TRIED:
            users.setdefault(id(examples), []).append(operator)
    idle = []
    for operators in users.values():
        for index, given in enumerate(EXAMPLES[operators[0]](Draw(torch.Generator().manual_seed(0)))):
            if not any(_accepts(operator, given) for operator in operators):
                idle.append(f"{operators[0]}: example {index}")
    assert not idle


def _accepts(operator: Any, given: Example) -> bool:
    try:
        bound(operator, given)
    except (RuntimeError, TypeError, IndexError):
        return False
    return True
