"""Every architecture of a catalogue: trace, discover, verify and, where it is small enough, audit.

    python -m tests.benchmarks.sweep ../shared                       # all that are not done yet, then the table
    python -m tests.benchmarks.sweep ../shared llama bert            # these, also if they are done
    python -m tests.benchmarks.sweep ../shared --audit 5000          # with audits up to so many parameters

Each architecture runs in a process of its own, which ends when its CPU time is spent, so that none can stop the others. Rows
are appended to a file of JSON lines as they come (``--rows``); a later row replaces an earlier one of the same architecture,
and a run that was cut short goes on where it stopped. At the end ``specs/coverage.json`` is written, and a summary printed.
The exit status is 1 where a spec is unsound.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import os
import resource
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

import symgraph as sg
from symgraph.errors import TraceError
from symgraph.frontend.models import one_line
from symgraph.spec.codec import dumps
from tests.benchmarks.catalog import USUAL, Catalog, CatalogError

COVERAGE = Path(__file__).resolve().parents[2] / "specs" / "coverage.json"
ROWS = Path("sweep.jsonl")
CPU_SECONDS, WALL = 300, 8
"""CPU time of one architecture, and how many times that it may take on a machine that others use."""
SAMPLE, SAMPLE_SECONDS = 40, 60.0
"""What the sample for every run of the tests may have: architectures, and their CPU time together."""
NO_LAW = "an operator without a rule"
Row = dict[str, Any]


def examine(catalog: Catalog, name: str, samples: int = 1, audited: int = 0) -> Row:
    """What comes of one architecture. ``audited``: the largest number of parameters of an audit."""
    row: Row = {"model": name, "status": "refused"}
    seconds: dict[str, float] = {}

    def timed(stage: str, started: float) -> None:
        seconds[stage] = round(time.process_time() - started, 2)

    module, kwargs = catalog.build(name)
    row["parameters"] = sum(parameter.numel() for parameter in module.parameters())
    started = time.process_time()
    try:
        graph = sg.trace(module, kwargs=kwargs)
    except TraceError as error:
        return {**row, "why": str(error)}
    timed("trace", started)
    started = time.process_time()
    spec = sg.discover(graph)
    timed("discover", started)
    row |= {"spaces": len(spec.spaces), "groups": dict(sorted(Counter(space.group.value for space in spec.spaces).items()))}
    row |= {"shifts": len(spec.shifts), "dimension": spec.dimension.total, "bytes": len(dumps(spec))}
    row["pins"] = pins(spec)
    row["operators"] = sorted({str(node.target).removeprefix("aten.") for node in graph.nodes if node.op == "call_function"})
    started = time.process_time()
    report = sg.verify(graph, spec, samples=samples)
    timed("verify", started)
    row["status"] = "sound" if report.passed else "silent" if report.silent else "unsound"
    if not report.passed:
        row["why"] = report.summary
        row["failures"] = [failure.name for failure in report.failures]
    if report.passed and sum(tensor.numel for tensor in spec.tensors) <= audited:
        started = time.process_time()
        found = sg.audit(graph, spec, seconds=0)
        timed("audit", started)
        row |= {"nullity": found.nullity, "complete": found.complete}
        if not found.complete:
            row["missing"] = found.summary
    return {**row, "seconds": seconds}


def pins(spec: sg.SymmetrySpec) -> dict[str, int]:
    """Number of pins by operator; those whose operator has a law that cannot type the call are marked as such."""
    kinds = Counter(pin.operator if pin.reason == NO_LAW else f"{pin.operator} (not typed)" for pin in spec.pins)
    return dict(sorted(kinds.items()))


def lacks_law(row: Row) -> bool:
    """Whether something is pinned because an operator has no law."""
    return any(not kind.endswith("(not typed)") for kind in row.get("pins", ()))


def isolated(catalog: Catalog, name: str, samples: int, audited: int, cpu: int) -> Row:
    """:func:`examine` in a process of its own; a row whatever happens there."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(theirs, catalog, name, samples, audited, cpu))
    process.start()
    theirs.close()
    try:
        return ours.recv() if ours.poll(WALL * cpu) else {"model": name, "status": "timeout", "why": f"{WALL * cpu} s"}
    except EOFError:
        process.join()
        spent = process.exitcode == -signal.SIGXCPU
        why = f"{cpu} s of CPU time" if spent else f"the process ended with {process.exitcode}"
        return {"model": name, "status": "timeout" if spent else "failed", "why": why}
    finally:
        if process.is_alive():
            process.kill()
        process.join()


def _answer(connection: Connection, catalog: Catalog, name: str, samples: int, audited: int, cpu: int) -> None:
    spent = int(sum(os.times()[:2]))
    resource.setrlimit(resource.RLIMIT_CPU, (spent + cpu, spent + cpu + 1))
    logging.disable(logging.ERROR)
    warnings.simplefilter("ignore")
    try:
        row = examine(catalog, name, samples, audited)
    except Exception as error:
        row = {"model": name, "status": "failed", "why": one_line(error)}
    connection.send(row)


def read(path: Path) -> dict[str, Row]:
    """Rows by architecture; the last one of each. A line that was cut short is dropped."""
    rows: dict[str, Row] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        rows[row["model"]] = row
    return rows


def chosen(rows: Mapping[str, Row], most: int = SAMPLE, budget: float = SAMPLE_SECONDS) -> list[str]:
    """A sample that uses as many operators as it can in ``budget`` seconds: always the most new ones for the time."""
    costs = {name: 0.5 + sum(rows[name]["seconds"].values()) for name in sorted(rows) if rows[name]["status"] == "sound"}
    sample: list[str] = []
    seen: set[str] = set()
    while len(sample) < most:
        gains = {name: len(set(rows[name]["operators"]) - seen) / cost for name, cost in costs.items() if cost <= budget}
        best = max(gains, key=lambda name: gains[name], default=None)
        if best is None or not gains[best]:
            break
        sample.append(best)
        seen.update(rows[best]["operators"])
        budget -= costs[best]
    return sorted(sample)


def document(rows: Mapping[str, Row]) -> str:
    """One JSON object: the sample, and the rows in alphabetical order, a line an architecture."""
    hidden = ("model", "operators")
    shown = {name: {key: value for key, value in rows[name].items() if key not in hidden} for name in sorted(rows)}
    lines = (f"{json.dumps(name)}: {json.dumps(row)}" for name, row in shown.items())
    return f'{{"sample": {json.dumps(chosen(rows))},\n"architectures": {{\n' + ",\n".join(lines) + "\n}}\n"


def summary(rows: Iterable[Row]) -> str:
    """Counts of what came of them, the kinds of pins, and the CPU time of every stage."""
    rows = list(rows)
    total, pinned = len(rows), [row for row in rows if row.get("pins")]
    audits = [row for row in rows if "complete" in row]
    outcomes = Counter(row["status"] for row in rows).most_common()
    lines = [f"{total} architectures: " + ", ".join(f"{count} {status}" for status, count in outcomes)]
    lacking = sum(map(lacks_law, rows))
    lines.append(f"pins: {len(pinned)} ({len(pinned) / total:.1%}), for want of a law {lacking} ({lacking / total:.1%})")
    kinds = Counter(kind for row in pinned for kind in row["pins"])
    lines += [f"  {count:4} {kind}" for kind, count in kinds.most_common()]
    if audits:
        complete = sum(row["complete"] for row in audits)
        lines.append(f"complete: {complete} of {len(audits)} audited ({complete / len(audits):.1%})")
    spent: Counter[str] = Counter()
    for row in rows:
        spent.update(row.get("seconds", {}))
    lines.append("CPU seconds: " + ", ".join(f"{stage} {value:.0f}" for stage, value in spent.items()))
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("catalogue", nargs="?", type=Path, default=USUAL, help="directory with architectures.jsonl and .py")
    parser.add_argument("names", nargs="*", help="model types; without any, all that have no row yet")
    parser.add_argument("--rows", type=Path, default=ROWS, help="the file of JSON lines")
    parser.add_argument("--output", type=Path, default=COVERAGE, help="the table that is written at the end")
    parser.add_argument("--samples", type=int, default=1, help="random elements of the whole group that verify draws")
    parser.add_argument("--audit", type=int, default=0, metavar="N", help="audit models of at most N parameters")
    parser.add_argument("--seconds", type=int, default=CPU_SECONDS, help="CPU time of one architecture")
    options = parser.parse_intermixed_args(arguments)
    try:
        catalog = Catalog(options.catalogue)
        unknown = [name for name in options.names if name not in catalog.entries]
        if unknown:
            raise CatalogError(f"{options.catalogue} has no architecture {unknown[0]!r}")
    except CatalogError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    torch.set_num_threads(1)
    rows = read(options.rows)
    sg.trace(torch.nn.Linear(2, 2), [torch.ones(1, 2)])  # what tracing imports is shared by the processes
    for name in options.names or [name for name in catalog.entries if name not in rows]:
        row = isolated(catalog, name, options.samples, options.audit, options.seconds)
        rows[name] = row
        with options.rows.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(row) + "\n")
        print(f"{name}: {row['status']}", *filter(None, [row.get("why"), row.get("pins")]), flush=True)
    rows = {name: row for name, row in rows.items() if name in catalog.entries}
    options.output.write_text(document(rows), encoding="utf-8")
    print(summary(rows.values()))
    return 1 if any(row["status"] == "unsound" for row in rows.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
