"""Commands on two checkpoints: ``match`` aligns them, ``barrier`` measures the line between them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
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
    learned = "learned"
    dual = "dual"


A = Annotated[str, typer.Argument(metavar="A", help="Checkpoint directory; with --model, a .safetensors file.")]
B = Annotated[str, typer.Argument(metavar="B", help="The other one.")]
DataFile = Annotated[Path, typer.Option("--data", metavar="FILE", help="A text, or an .npz of images and labels.")]
TestFile = Annotated[Path | None, typer.Option("--test", metavar="FILE", help="Another text to judge on.")]
Factory = Annotated[
    str | None, typer.Option("--model", metavar="FILE.PY:FACTORY", help="The model that A and B are weights of.")
]
Count = Annotated[int, typer.Option("--examples", min=1, help="Held-out windows or images to judge on, at most.")]
Points = Annotated[int, typer.Option("--points", min=3, help="Points on the line.")]
Context = Annotated[int | None, typer.Option("--context", min=2, help="Tokens in a window of text.")]
Size = Annotated[int, typer.Option("--batch-size", min=1, help="Examples in a batch.")]
Names = Annotated[list[str] | None, typer.Option(metavar="SPACE", help="Names of spaces; may be given again.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def barrier(
    a: A,
    b: B,
    data: DataFile,
    model: Factory = None,
    test: TestFile = None,
    examples: Count = 2000,
    batch_size: Size = 64,
    context: Context = None,
    points: Points = 13,
    as_json: Json = False,
) -> int:
    """Measure the loss on the line between two checkpoints."""
    from symgraph.cli.pairs import load_pair
    from symgraph.cli.report import curve_table, curves_json

    pair = load_pair(a, b, model)
    judged = _judged(_data(data, pair, context, test), examples)
    curve = _curve(pair, pair.wide(), judged, batch_size, points)
    curves = {"as they are": curve}
    if as_json:
        show_json(curves_json(curves)["as they are"] | {"examples": len(judged)})
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
    only: Names = None,
    without: Names = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the order of the data, and of the matcher.")] = 0,
    test: TestFile = None,
    examples: Count = 2000,
    context: Context = None,
    points: Points = 13,
    report: Annotated[Path | None, typer.Option("--report", metavar="REPORT.HTML", help="Also one HTML file.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace DIR if it is there.")] = False,
    as_json: Json = False,
) -> int:
    """Align two checkpoints of one architecture and merge them.

    Writes DIR/a, DIR/b and DIR/merged, checkpoints that load into the unmodified model class; spec.json, the two
    transforms, report.json, report.md and curve.png (with matplotlib).
    """
    from symgraph.cli.pairs import load_pair
    from symgraph.cli.report import curve_table, page, write_reports

    require_free(output, overwrite)
    pair = load_pair(a, b, model)
    examples_of = _data(data, pair, context, test)
    document = read_spec(spec, pair.source, untie)
    preserved = _verified(pair, document)
    if preserved is None:
        return FAILED
    judged = _judged(examples_of, examples)
    options = {"steps": steps, "lr": lr, "only": only, "without": without}
    started = time.monotonic()
    result = run_matcher(pair, document, method.value, examples_of.train, batch_size, seed, options)
    seconds = time.monotonic() - started
    curves = curves_of(pair, document, {method.value: result}, judged, points)
    summary = {
        "a": a, "b": b, "method": method.value, "seed": seed, "seconds": round(seconds, 1), "examples": len(judged),
        "dimension": document.dimension.total, "max_relative_error": preserved, "data": str(data),
        "distance": {"before": result.distance_before, "after": result.distance_after}, "equivalent": result.equivalent,
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
    if method in (Method.learned.value, Method.dual.value):
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


def curves_of(
    pair: Pair, spec: SymmetrySpec, results: dict[str, MatchResult], judged: Examples, points: int, size: int = 64
) -> dict[str, BarrierCurve]:
    """The loss along the line: raw, in normal form, and after every match."""
    from symgraph.spec.operations import canonicalize

    first, second = pair.wide()
    curves = {"as they are": _curve(pair, (first, second), judged, size, points)}
    untied = spec.identity.untied
    normal = canonicalize(spec, first), canonicalize(spec, second)
    curves["normal form"] = _curve(pair, normal, judged, size, points, untied)
    for name, result in results.items():
        if name != Method.naive.value:
            curves[name] = _curve(pair, (result.a, result.b), judged, size, points, untied)
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


def _judged(data: Data, count: int) -> Examples:
    return data.test.first(count)


def _verified(pair: Pair, spec: SymmetrySpec) -> float | None:
    """How well the spec is preserved; None, after a word on stderr, where it is not."""
    from symgraph.verify import verify

    with working("verifying the spec"):
        report = verify(pair.source.graph, spec)
    if not report.passed:
        complain(f"the spec is not preserved (outputs move by {report.max_relative_error:.1e}), so nothing was matched")
        return None
    return float(report.max_relative_error)


def _curve(
    pair: Pair, states: tuple[State, State], judged: Examples, size: int, points: int, untied: bool = False
) -> BarrierCurve:
    from symgraph.cli.data import loss
    from symgraph.match import barrier as measure

    with Bar("measuring the line") as bar:
        module, batches = pair.module(untied), judged.batches(size)
        return measure(module, states[0], states[1], loss=loss, batches=batches, points=points, progress=bar)


def _curves_json(curves: dict[str, BarrierCurve]) -> dict[str, Any]:
    from symgraph.cli.report import curves_json

    return {"curves": curves_json(curves)}
