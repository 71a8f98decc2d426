"""``discover``: from a traced graph, or a module and an example call, to a spec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from symgraph.frontend.graph import Graph
from symgraph.frontend.trace import trace
from symgraph.infer.absorb import absorb
from symgraph.infer.interpret import interpret
from symgraph.infer.ir import Program, build
from symgraph.infer.lower import lower
from symgraph.infer.normalize import normalize
from symgraph.infer.operators import fixed_operators
from symgraph.infer.solve import solve
from symgraph.spec.model import SymmetrySpec


def prepare(graph: Graph, untie: bool = False) -> Program:
    """The program of a graph in the form that rules read."""
    program = build(graph, untie)
    normalize(program)
    fixed_operators(program)
    return program


def discover(
    graph: Graph | nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    untie: bool = False,
    strict: bool = False,
) -> SymmetrySpec:
    """Every symmetry of the parameters that the rules can tell, as a typed spec.

    ``graph`` is a traced graph, or a module with the arguments of one example call. ``untie`` describes the model in which
    tied parameters are apart. An operator without a rule pins what it touches and is listed in the spec's ``pins``; with
    ``strict`` it raises :class:`~symgraph.errors.UnsupportedOperator`.
    """
    return _compile(trace(graph, args, kwargs) if isinstance(graph, nn.Module) else graph, untie, strict)


def without_epsilons(graph: Graph, untie: bool = False) -> SymmetrySpec:
    """The spec of the model in which every epsilon is zero: scales that only epsilons break are part of the groups."""
    return _compile(graph, untie, strict=False, epsilons=False)


def _compile(graph: Graph, untie: bool, strict: bool, epsilons: bool = True) -> SymmetrySpec:
    program = prepare(graph, untie)
    absorbed = absorb(program)
    typing = interpret(program, strict)
    return lower(graph, program, typing, solve(program, typing, epsilons), absorbed, untie)
