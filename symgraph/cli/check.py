"""Commands that check: ``verify`` (the spec claims nothing false) and ``audit`` (it misses nothing)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from symgraph.cli.console import FAILED, OK, show, show_json, working
from symgraph.cli.describe import Json, Model, Untie
from symgraph.cli.moving import read_spec
from symgraph.cli.sources import resolve

SpecFile = Annotated[
    Path | None, typer.Option("--spec", metavar="SPEC.JSON", help="The spec to check; discovered if not given.")
]


def verify(
    model: Model,
    spec: SpecFile = None,
    untie: Untie = False,
    samples: Annotated[int, typer.Option("--samples", min=1, help="Random group elements to try.")] = 3,
    as_json: Json = False,
) -> int:
    """Check that outputs do not move under the group (else status 1).

    Draws random elements of the whole group at once and of every space alone, and compares outputs in float64.
    """
    from symgraph.verify import verify as run

    source = resolve(model)
    document = read_spec(spec, source, untie)
    graph = source.graph
    with working("verifying"):
        report = run(graph, document, samples=samples)
    show_json(report) if as_json else show(str(report))
    return OK if report.passed else FAILED


def audit(model: Model, spec: SpecFile = None, untie: Untie = False, as_json: Json = False) -> int:
    """Check that the spec misses no symmetry (else status 1).

    Compares the dimension of the continuous group with the null space of the Jacobian of the outputs at the weights.
    """
    from symgraph.verify import audit as run

    source = resolve(model)
    document = read_spec(spec, source, untie)
    graph = source.graph
    with working("counting the null space of the Jacobian"):
        report = run(graph, document)
    show_json(report) if as_json else show(str(report))
    return OK if report.complete else FAILED
