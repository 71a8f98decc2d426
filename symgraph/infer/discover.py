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
    if isinstance(graph, nn.Module):
        graph = trace(graph, args, kwargs)
    program = prepare(graph, untie)
    absorbed = absorb(program)
    typing = interpret(program, strict)
    return lower(graph, program, typing, solve(program, typing), absorbed, untie)
