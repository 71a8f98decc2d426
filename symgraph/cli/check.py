"""Commands that check: ``verify`` (the spec claims nothing false) and ``audit`` (it misses nothing)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from symgraph.cli.console import FAILED, OK, show, show_json, working
from symgraph.cli.describe import Json, Model, Untie
from symgraph.cli.moving import read_spec
from symgraph.cli.sources import resolve
from symgraph.errors import ModelError

if TYPE_CHECKING:
    from symgraph.spec.model import SymmetrySpec

LARGEST = 10**9
"""Most weights that a check takes."""
FAILURES_SHOWN = 10

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
    require_memory(document)
    graph = source.graph
    with working("verifying"):
        report = run(graph, document, samples=samples)
    if as_json:
        show_json(report)
    else:
        show(report.summary)
        for failure in report.failures[:FAILURES_SHOWN]:
            tensors = f", carried by {', '.join(failure.tensors[:3])}" if failure.tensors else ""
            show(f"  {failure.name}: outputs move by {failure.error:.1e}{tensors}")
        if report.rounding is not None:
            show(f"in the dtype of the checkpoint a move costs {report.rounding:.1f} times a mere rounding")
    return OK if report.passed else FAILED


def require_memory(spec: SymmetrySpec) -> None:
    """Refuse what would not fit: a check holds the weights in float64, some copies at once."""
    count = sum(tensor.numel for tensor in spec.tensors)
    if count > LARGEST:
        raise ModelError(
            f"{spec.identity.model} has {count / 1e9:.1f}e9 weights, and a check computes in float64 with at most "
            f"{LARGEST / 1e9:.0f}e9: give a smaller config of the same architecture"
        )


def audit(
    model: Model,
    spec: SpecFile = None,
    untie: Untie = False,
    seconds: Annotated[float, typer.Option("--seconds", min=0, help="Time to search for permutations and signs.")] = 60.0,
    as_json: Json = False,
) -> int:
    """Check that the spec misses no symmetry (else status 1).

    Compares the dimension of the continuous group with the null space of the Jacobian of the outputs at generic weights, and
    searches for permutations and sign flips of parameter axes that the spec does not have.
    """
    from symgraph.verify import audit as run

    source = resolve(model)
    document = read_spec(spec, source, untie)
    graph = source.graph
    with working("counting the null space of the Jacobian"):
        report = run(graph, document, seconds=seconds)
    if as_json:
        show_json(report)
    else:
        show(report.summary)
        for sentence in report.explained:
            show(f"  missing: {sentence}")
        for each in report.missing_discrete:
            show(f"  missing: {each}")
        show(f"  searched: {report.searched}")
    return OK if report.complete and not report.missing_discrete else FAILED
