"""The report of a match: JSON for programs, Markdown and HTML for people, a picture of the loss along the line."""

from __future__ import annotations

import html
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from symgraph.cli.console import plain

if TYPE_CHECKING:
    from symgraph.match import BarrierCurve

COLOURS = ("#888888", "#c44e52", "#dd8452", "#4c72b0", "#55a868")
SHOWN = (0.0, 0.25, 0.5, 0.75, 1.0)  # places on the line that tables show

Curves = dict[str, "BarrierCurve"]


def curve_rows(curves: Curves) -> tuple[list[str], list[list[str]]]:
    """Headings and rows: every curve at the shown places, and its barrier."""
    first = next(iter(curves.values()))
    places = [min(range(len(first.alphas)), key=lambda i, at=at: abs(float(first.alphas[i]) - at)) for at in SHOWN]  # type: ignore[misc]
    places = list(dict.fromkeys(places))
    headings = ["path", *(f"α = {float(first.alphas[i]):.3g}" for i in places), "barrier"]
    rows = [
        [name, *(f"{float(curve.losses[i]):.3f}" for i in places), f"{float(curve.barrier):.3f}"]
        for name, curve in curves.items()
    ]
    return headings, rows


def curve_table(curves: Curves) -> Table:
    """The same as a table for the terminal."""
    headings, rows = curve_rows(curves)
    table = Table(title="loss along the line, in nats, on held-out data", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "path" else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def curves_json(curves: Curves) -> dict[str, Any]:
    """Numbers of all curves."""
    return {
        name: {
            "alphas": [float(one) for one in curve.alphas],
            "losses": [float(one) for one in curve.losses],
            "barrier": float(curve.barrier),
        }
        for name, curve in curves.items()
    }


def write_reports(folder: Path, report: dict[str, Any], curves: Curves) -> None:
    """report.json, report.md and, where matplotlib is installed, curve.png."""
    (folder / "report.json").write_text(json.dumps(plain(report), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    (folder / "report.md").write_text(markdown(report, curves), encoding="utf-8")
    draw(folder / "curve.png", curves)


def markdown(report: dict[str, Any], curves: Curves) -> str:
    """The report as Markdown."""
    headings, rows = curve_rows(curves)
    table = [headings, ["---"] * len(headings), *rows]
    lines = [f"| {' | '.join(row)} |" for row in table]
    spaces = [f"| {name} | {one['before']:.3g} | {one['after']:.3g} |" for name, one in report.get("distances", {}).items()]
    head = ["Relative distance of the tensors on which a space stands:", "", "| space | before | after |", "|---|---|---|"]
    apart = [*head, *spaces] if spaces else []
    return "\n".join(["# Match", "", *(f"- {line}" for line in _facts(report)), "", *lines, "", *apart, ""])


def page(report: dict[str, Any], curves: Curves) -> str:
    """The report as one HTML file that needs nothing else."""
    headings, rows = curve_rows(curves)
    facts = "".join(f"<li>{html.escape(line)}</li>" for line in _facts(report))
    head = "".join(f"<th>{html.escape(one)}</th>" for one in headings)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(one)}</td>" for one in row) + "</tr>" for row in rows)
    style = "body{font-family:sans-serif;max-width:50em;margin:2em auto}td,th{padding:.2em .8em;text-align:right}"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Match</title><style>{style}</style>'
        f"<h1>Match</h1><ul>{facts}</ul><table><tr>{head}</tr>{body}</table>{_svg(curves)}</html>\n"
    )


def peak_memory() -> int | None:
    """Bytes of resident memory that this process has held at most; None where the system does not tell."""
    try:
        import resource
    except ImportError:
        return None
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024))


def draw(path: Path, curves: Curves) -> bool:
    """A picture of the curves; False where matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 4))
    for colour, (name, curve) in zip(_colours(curves), curves.items(), strict=True):
        axes.plot([float(x) for x in curve.alphas], [float(y) for y in curve.losses], "o-", ms=3, color=colour, label=name)
    axes.set_xlabel("α")
    axes.set_ylabel("held-out loss (nats)")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
    return True


def _facts(report: dict[str, Any]) -> Iterable[str]:
    yield f"{report['a']} and {report['b']}, method {report['method']}, seed {report['seed']}"
    yield f"spec: {report['dimension']:,} continuous dimensions; preserved to {report['max_relative_error']:.1e}"
    if "summary" in report:
        memory = f", {report['peak_memory'] / 1e9:.2f} GB of memory at most" if report["peak_memory"] else ""
        yield f"{report['summary']}; matched in {report['seconds']} s{memory}"
    yield f"judged on {report['examples']} held-out examples"
    yield "the line runs in normal form (gains absorbed), except for the path called 'as they are'"


def _svg(curves: Curves, width: int = 560, height: int = 320, edge: int = 40) -> str:
    """Polylines on a frame, the axes marked at their ends."""
    values = [float(loss) for curve in curves.values() for loss in curve.losses]
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    parts = [f'<svg viewBox="0 0 {width} {height}" width="{width}" role="img" aria-label="loss along the line">']
    parts.append(
        f'<rect x="{edge}" y="{edge}" width="{width - 2 * edge}" height="{height - 2 * edge}" fill="none" stroke="#ccc"/>'
    )
    for row, (colour, (name, curve)) in enumerate(zip(_colours(curves), curves.items(), strict=True)):
        points = " ".join(
            f"{edge + float(x) * (width - 2 * edge):.1f},{height - edge - (float(y) - low) / span * (height - 2 * edge):.1f}"
            for x, y in zip(curve.alphas, curve.losses, strict=True)
        )
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(
            f'<text x="{edge + 8}" y="{edge + 16 + 16 * row}" font-size="12" fill="{colour}">{html.escape(name)}</text>'
        )
    for y, value in ((edge + 4, high), (height - edge, low)):
        parts.append(f'<text x="4" y="{y}" font-size="11">{value:.2f}</text>')
    return "".join(parts) + "</svg>"


def _colours(curves: Curves) -> list[str]:
    return [COLOURS[index % len(COLOURS)] for index in range(len(curves))]
