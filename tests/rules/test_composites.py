"""Two roads agree: an operator that is defined by simpler ones equals its definition."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from symgraph.rules import COMPOSITES
from symgraph.rules.examples import Draw, Example
from symgraph.rules.registry import EXAMPLES

TOLERANCE = 1e-12


def _tensors(results: Any) -> list[Tensor]:
    return [results] if isinstance(results, Tensor) else list(results)


def _run(function: Any, given: Example) -> list[Tensor]:
    copied = pytree.tree_map(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, (given.args, given.kwargs))
    return _tensors(function(*copied[0], **copied[1]))


@pytest.mark.parametrize("operator", COMPOSITES, ids=str)
def test_definition_equals_operator(operator: Any) -> None:
    compared = 0
    for given in EXAMPLES[operator](Draw(torch.Generator().manual_seed(0))):
        try:
            expected = _run(operator, given)
        except (RuntimeError, TypeError):
            continue  # a call of another overload of the family
        actual = _run(COMPOSITES[operator], given)
        for first, second in zip(actual, expected, strict=False):
            assert first.shape == second.shape
            assert bool(second.isfinite().all())
            assert float(second.std()) > 0 or second.numel() == 1
            scale = float(second.abs().max())
            assert float((first - second).abs().max()) <= TOLERANCE * scale
        compared += 1
    assert compared, "no example that the operator accepts"


@pytest.mark.parametrize("operator", COMPOSITES, ids=str)
def test_definition_uses_ruled_operators(operator: Any) -> None:
    """What it is written out into has laws, or is written out itself."""
    from torch.fx.experimental.proxy_tensor import make_fx

    from symgraph.rules import RULES

    for given in EXAMPLES[operator](Draw(torch.Generator().manual_seed(0))):
        flat, spec = pytree.tree_flatten((given.args, given.kwargs))
        tensors = [leaf for leaf in flat if isinstance(leaf, Tensor)]

        def run(*values: Tensor, flat: Any = flat, spec: Any = spec) -> Any:
            rest = iter(values)
            args, kwargs = pytree.tree_unflatten([next(rest) if isinstance(leaf, Tensor) else leaf for leaf in flat], spec)
            return COMPOSITES[operator](*args, **kwargs)

        try:
            _run(operator, given)
        except (RuntimeError, TypeError):
            continue
        graph = make_fx(run, tracing_mode="fake", pre_dispatch=True)(*tensors)
        targets = {node.target for node in graph.graph.nodes if node.op == "call_function"}
        targets = {target for target in targets if hasattr(target, "overloadpacket")}
        free = {target for target in targets if target not in RULES and target not in COMPOSITES
                and any("Tensor" in str(argument.type) for argument in target._schema.arguments)}  # fmt: skip
        assert not free, f"without a law: {sorted(map(str, free))}"
