"""``symgraph demo``: the whole road on two small networks that come with the package.

They are transformers of the same architecture, trained from different seeds to read digits. The straight line between
them leads over a barrier; after matching it hardly does.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from symgraph.cli.console import FAILED, OK, complain, show, show_json, working
from symgraph.cli.matching import Json, Judge, curves_of, run_matcher, write_match
from symgraph.cli.moving import replacing, require_free

if TYPE_CHECKING:
    from symgraph.match import MatchResult

DATA = Path(__file__).parent / "demo_data"
STEPS, RATE, BATCH, POINTS = 400, 3e-3, 64, 13


def demo(
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Directory to write.")] = Path("demo_out"),
    steps: Annotated[int, typer.Option("--steps", min=0, help="Steps of dual learned matching.")] = STEPS,
    seed: Annotated[int, typer.Option("--seed", help="Of the matcher.")] = 0,
    as_json: Json = False,
) -> int:
    """Match two small networks that ship with symgraph.

    They were trained from different seeds. Discovers their symmetries, verifies them, matches; prints the loss along
    the line between the networks, and writes the matched and merged checkpoints, a report and a plot.
    """
    from symgraph.cli.data import read_data
    from symgraph.cli.pairs import load_pair
    from symgraph.cli.report import curve_table, curves_json, write_reports
    from symgraph.spec.render import spaces_table
    from symgraph.verify import verify

    started = time.monotonic()
    ours = (output / "report.json").is_file()
    require_free(output, ours)
    pair = load_pair(str(DATA / "a"), str(DATA / "b"), None)
    data = read_data(DATA / "digits.npz", pair.source.loaded)
    spec = pair.source.spec()
    with working("verifying"):
        preserved = verify(pair.source.graph, spec)
    if not as_json:
        show("1. Discovered from the traced graph:", spaces_table(spec))
        show(f"2. Verified: outputs move by {preserved.max_relative_error:.1e} under random elements of the whole group.", "")
    if not preserved.passed:
        complain("the spec is not preserved: please report it")
        return FAILED
    options: dict[str, dict[str, Any]] = {"weights": {}, "dual": {"steps": steps, "lr": RATE}}
    results: dict[str, MatchResult] = {
        method: run_matcher(pair, spec, method, data.train, BATCH, seed, given) for method, given in options.items()
    }
    curves = curves_of(pair, spec, results, Judge(data.test, POINTS, size=100))
    summary = {
        "a": "a", "b": "b", "method": "dual", "seed": seed, "examples": len(data.test), "untied": False,
        "dimension": spec.dimension.total, "max_relative_error": float(preserved.max_relative_error),
        "seconds": round(time.monotonic() - started, 1), "curves": curves_json(curves),
    }  # fmt: skip
    with replacing(output, ours) as folder:
        write_match(folder, pair, spec, results["dual"])
        write_reports(folder, summary, curves)
    if as_json:
        show_json(summary)
        return OK
    show("3. Matched, and judged on 500 images that neither the networks nor the matcher saw:", curve_table(curves))
    plot = "curve.png, " if (output / "curve.png").is_file() else ""
    show(f"{summary['seconds']:.0f} seconds; {output} has {plot}report.md, spec.json and the checkpoints a, b and merged.")
    return OK
