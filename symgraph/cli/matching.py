"""Commands on two checkpoints: ``match`` aligns them, ``barrier`` measures the line between them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from symgraph.cli.console import FAILED, OK, Bar, complain, show, show_json, working
from symgraph.cli.moving import read_spec, replacing, require_free, write_model

if TYPE_CHECKING:
    from symgraph.cli.data import Data, Examples
    from symgraph.cli.pairs import Pair, State
    from symgraph.match import BarrierCurve, MatchResult
    from symgraph.spec.model import SymmetrySpec


class Method(str, Enum):
    """How to match."""

    naive = "naive"
    weights = "weights"
    activations = "activations"
    learned = "learned"
    dual = "dual"


class Start(str, Enum):
    """What weight matching or learning begins with."""

    naive = "naive"
    weights = "weights"
    activations = "activations"


A = Annotated[str, typer.Argument(metavar="A", help="Checkpoint directory; with --model, a .safetensors file.")]
B = Annotated[str, typer.Argument(metavar="B", help="The other one.")]
DataFile = Annotated[Path, typer.Option("--data", metavar="FILE", help="A text, or an .npz of images and labels.")]
TestFile = Annotated[Path | None, typer.Option("--test", metavar="FILE", help="Another text to judge on.")]
Factory = Annotated[
    str | None, typer.Option("--model", metavar="FILE.PY:FACTORY", help="The model that A and B are weights of.")
]
Count = Annotated[
    int | None,
    typer.Option("--examples", min=1, help="Held-out examples to judge on: 256 windows of text or 2,000 images if not given."),
]
Anew = Annotated[
    bool, typer.Option("--reestimate", help="Take running statistics of batch norms anew at every point, on training examples.")
]
Points = Annotated[int, typer.Option("--points", min=3, help="Points on the line.")]
Context = Annotated[int | None, typer.Option("--context", min=2, help="Tokens in a window of text.")]
Size = Annotated[int, typer.Option("--batch-size", min=1, help="Examples in a batch.")]
Resumed = Annotated[
    Path | None, typer.Option("--resume", metavar="FILE", help="State of learning: written, and gone on from if it is there.")
]
Names = Annotated[
    list[str] | None, typer.Option(metavar="WHAT", help="A kind of group, a role or a space; may be given again.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@dataclass(frozen=True)
class Judge:
    """How lines are measured: on which examples, at how many points, and where to take statistics anew, if at all."""

    examples: Examples
    points: int
    statistics: Examples | None = None
    size: int = 16

    def curve(self, pair: Pair, states: tuple[State, State], untied: bool = False) -> BarrierCurve:
        """The loss along one line, with a progress bar."""
        from symgraph.cli.data import loss
        from symgraph.match import barrier as measure

        batches = self.examples.batches(self.size)
        statistics = None if self.statistics is None else self.statistics.batches(self.size)
        with Bar("measuring the line") as bar:
            return measure(
                pair.module(untied),
                *states,
                loss=loss,
                batches=batches,
                points=self.points,
                statistics=statistics,
                progress=bar,
            )


def barrier(
    a: A,
    b: B,
    data: DataFile,
    model: Factory = None,
    test: TestFile = None,
    examples: Count = None,
    batch_size: Size = 16,
    context: Context = None,
    points: Points = 13,
    reestimate: Anew = False,
    as_json: Json = False,
) -> int:
    """Measure the loss on the line between two checkpoints."""
    from symgraph.cli.pairs import load_pair
    from symgraph.cli.report import curve_table, curves_json

    pair = load_pair(a, b, model)
    judge = _judge(_data(data, pair, context, test), examples, points, reestimate, batch_size)
    curves = {"as they are": judge.curve(pair, pair.wide())}
    if as_json:
        show_json(curves_json(curves)["as they are"] | {"examples": len(judge.examples)})
    else:
        show(curve_table(curves))
    return OK


def match(
    a: A,
    b: B,
    data: DataFile,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Directory to write.")],
    method: Annotated[Method, typer.Option("--method", help="How to match.")] = Method.dual,
    model: Factory = None,
    spec: Annotated[Path | None, typer.Option("--spec", metavar="SPEC.JSON", help="Discovered if not given.")] = None,
    untie: Annotated[bool, typer.Option("--untie", help="Match with tied parameters apart.")] = False,
    steps: Annotated[int | None, typer.Option("--steps", min=0, help="Steps of learned and dual.")] = None,
    lr: Annotated[float | None, typer.Option("--lr", help="Learning rate of learned and dual.")] = None,
    batch_size: Annotated[int, typer.Option("--batch-size", min=1, help="Training examples in a step.")] = 16,
    start: Annotated[Start, typer.Option("--start", help="What weights, learned and dual begin with.")] = Start.weights,
    only: Names = None,
    without: Names = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the order of the data, and of the matcher.")] = 0,
    test: TestFile = None,
    examples: Count = None,
    context: Context = None,
    points: Points = 13,
    reestimate: Anew = False,
    resume: Resumed = None,
    report: Annotated[Path | None, typer.Option("--report", metavar="REPORT.HTML", help="Also one HTML file.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace DIR if it is there.")] = False,
    as_json: Json = False,
) -> int:
    """Align two checkpoints of one architecture and merge them.

    Writes DIR/a, DIR/b and DIR/merged, checkpoints that load into the unmodified model class; spec.json, the two
    transforms, report.json, report.md and curve.png (with matplotlib).
    """
    from symgraph.cli.pairs import load_pair
    from symgraph.cli.report import curve_table, page, peak_memory, write_reports

    require_free(output, overwrite)
    pair = load_pair(a, b, model)
    examples_of = _data(data, pair, context, test)
    document = read_spec(spec, pair.source, untie)
    preserved = _verified(pair, document)
    if preserved is None:
        return FAILED
    judge = _judge(examples_of, examples, points, reestimate)
    options = {
        "steps": steps, "lr": lr, "only": only, "without": without, "start": None if start is Start.weights else start.value,
        "batch_statistics": reestimate or None, "checkpoint": None if resume is None else str(resume),
    }  # fmt: skip
    started = time.monotonic()
    result = run_matcher(pair, document, method.value, examples_of.train, batch_size, seed, options)
    seconds = time.monotonic() - started
    curves = curves_of(pair, document, {method.value: result}, judge)
    summary = {
        "a": a, "b": b, "method": method.value, "seed": seed, "seconds": round(seconds, 1), "examples": len(judge.examples),
        "dimension": document.dimension.total, "max_relative_error": preserved, "data": str(data),
        "distance": {"before": result.distance_before, "after": result.distance_after}, "equivalent": result.equivalent,
        "distances": {name: {"before": x, "after": y} for name, (x, y) in result.distances.items()}, "summary": result.summary,
        "peak_memory": peak_memory(),
        "options": {name: value for name, value in options.items() if value is not None}, "untied": untie,
    }  # fmt: skip
    summary |= _curves_json(curves)
    with replacing(output, overwrite) as folder:
        write_match(folder, pair, document, result)
        write_reports(folder, summary, curves)
    if report is not None:
        report.write_text(page(summary, curves), encoding="utf-8")
    if as_json:
        show_json(summary)
    else:
        show(curve_table(curves), result.summary, f"written to {output}")
    return OK


def run_matcher(
    pair: Pair, spec: SymmetrySpec, method: str, train: Examples, size: int, seed: int, options: dict[str, Any]
) -> MatchResult:
    """The matcher on both endpoints, with a progress bar."""
    from symgraph.cli.data import loss
    from symgraph.match import match as run

    first, second = pair.wide()
    given = {name: value for name, value in options.items() if value is not None}
    if method in ("activations", "learned", "dual") or given.get("start") == "activations":
        given |= {"module": pair.module(spec.identity.untied), "loss": loss, "batches": epochs(train, size, seed)}
    with Bar(f"matching ({method})") as bar:
        given["callback"] = lambda step, steps, value: bar(step, steps, f"loss {value:.3f}")
        return run(spec, first, second, method=method, seed=seed, **given)


def epochs(examples: Examples, size: int, seed: int) -> Callable[[], Iterator[Any]]:
    """Every call gives one pass over the examples, in another order."""
    passes = iter(range(10**9))

    def once() -> Iterator[Any]:
        return examples.shuffled(size, seed * 10**6 + next(passes))

    return once


def curves_of(pair: Pair, spec: SymmetrySpec, results: dict[str, MatchResult], judge: Judge) -> dict[str, BarrierCurve]:
    """The loss along the line: raw, in normal form, and after every match."""
    from symgraph.spec.operations import canonicalize

    first, second = pair.wide()
    curves = {"as they are": judge.curve(pair, (first, second))}
    untied = spec.identity.untied
    curves["normal form"] = judge.curve(pair, (canonicalize(spec, first), canonicalize(spec, second)), untied)
    for name, result in results.items():
        if name != Method.naive.value:
            curves[name] = judge.curve(pair, (result.a, result.b), untied)
    return curves


def write_match(folder: Path, pair: Pair, spec: SymmetrySpec, result: MatchResult) -> None:
    """Aligned endpoints and their middle as checkpoints in the dtypes of the originals, the spec, the transforms."""
    from symgraph.match.merge import interpolate
    from symgraph.spec.codec import save_spec

    middle = interpolate(result.a, result.b, 0.5)
    for name, state, source in (("a", result.a, 0), ("b", result.b, 1), ("merged", middle, 0)):
        own = pair.states[source]
        cast = {key: value.to(own[key].dtype) for key, value in state.items()}
        write_model(folder / name, cast, pair.sources[source], spec)
    save_spec(spec, folder / "spec.json")
    result.transform_a.save(folder / "transform_a.safetensors")
    result.transform_b.save(folder / "transform_b.safetensors")


def _data(path: Path, pair: Pair, context: int | None, test: Path | None) -> Data:
    from symgraph.cli.data import read_data

    with working("reading the data"):
        return read_data(path, pair.source.loaded, context, test)


def _judge(data: Data, count: int | None, points: int, reestimate: bool, size: int = 16) -> Judge:
    return Judge(data.test.judged(count), points, data.train.judged(count) if reestimate else None, size)


def _verified(pair: Pair, spec: SymmetrySpec) -> float | None:
    """How well the spec is preserved; None, after a word on stderr, where it is not."""
    from symgraph.verify import verify

    with working("verifying the spec"):
        report = verify(pair.source.graph, spec)
    if not report.passed:
        complain(f"the spec is not preserved (outputs move by {report.max_relative_error:.1e}), so nothing was matched")
        return None
    return float(report.max_relative_error)


def _curves_json(curves: dict[str, BarrierCurve]) -> dict[str, Any]:
    from symgraph.cli.report import curves_json

    return {"curves": curves_json(curves)}
