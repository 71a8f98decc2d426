"""Commands that describe: ``discover``, ``explain``, ``diff``, ``rules``."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from symgraph.cli.console import FAILED, OK, WIDTH, show, show_json
from symgraph.cli.sources import resolve, spec_of

if TYPE_CHECKING:
    from symgraph.spec.model import SymmetrySpec

Model = Annotated[
    str, typer.Argument(metavar="MODEL", help="Checkpoint directory, config.json, model type or file.py:factory.")
]
SpecOrModel = Annotated[str, typer.Argument(metavar="SPEC", help="A spec file, or a MODEL to discover it from.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Untie = Annotated[bool, typer.Option("--untie", help="Describe the model in which tied parameters are apart.")]

PINS_SHOWN = 10


def discover(
    model: Model,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="SPEC.JSON", help="Write the spec here.")] = None,
    untie: Untie = False,
    strict: Annotated[bool, typer.Option("--strict", help="Fail on an operator that has no rule.")] = False,
    weights: Annotated[
        bool | None,
        typer.Option("--weights/--no-weights", help="Check the graph with a checkpoint's weights; by default up to 2 GiB."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Find the symmetries of a model and print, or write, its spec."""
    from symgraph.spec.codec import dumps, save_spec

    spec = resolve(model, weights).spec(untie, strict)
    if output is not None:
        save_spec(spec, output)
    if as_json:
        typer.echo(dumps(spec), nl=False)
    else:
        _show_spec(spec)
        if output is not None:
            show(f"written to {output}")
    return OK


def explain(
    spec: SpecOrModel,
    space: Annotated[
        str | None, typer.Argument(metavar="[SPACE]", help="A space of the spec; without it, all are listed.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Say which operators forbid a larger group on a space.

    Names every operator, with its source line, that uses a structure of the space. Without SPACE, all are listed.
    """
    from symgraph.spec.render import explain_text

    document = spec_of(spec)
    if space is None:
        if as_json:
            show_json({one.name: explain_text(document, one.name).splitlines() for one in document.spaces})
        else:
            _show_spec(document)
            show("symgraph explain SPEC SPACE says why a space has its group and no larger one.")
        return OK
    text = explain_text(document, space)
    if as_json:
        show_json({"space": document.space(space).model_dump(mode="json"), "text": text})
    else:
        show(text)
    return OK


def diff(
    a: Annotated[str, typer.Argument(metavar="SPEC", help="A spec file, or a MODEL to discover it from.")],
    b: Annotated[str, typer.Argument(metavar="SPEC", help="The one to compare with it.")],
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit with status 1 where they differ.")] = False,
    as_json: Json = False,
) -> int:
    """Say in words what changed from one spec to another."""
    from symgraph.cli.difference import differences

    found = differences(spec_of(a), spec_of(b))
    if as_json:
        show_json({"same": not found, "differences": found})
    else:
        show("\n".join(found) if found else "The specs describe the same symmetries.")
    return FAILED if found and exit_code else OK


def rules(
    operator: Annotated[
        str | None, typer.Argument(metavar="[OP]", help="An operator, as in aten.linear, linear or relu.")
    ] = None,
    as_json: Json = False,
) -> int:
    """List the operators that have a law, or show that of one."""
    from symgraph.cli.laws import all_laws, laws_of

    if operator is None:
        entries = all_laws()
        if as_json:
            show_json(entries)
        else:
            show("\n".join(_law_lines(entries)))
        return OK
    found = laws_of(operator)
    if as_json:
        show_json(found)
    else:
        texts = (f"{', '.join(one['operators'])}\n  {one['kind']} in {one['family']}\n  {one['text']}" for one in found)
        show("\n\n".join(texts))
    return OK


def _law_lines(entries: list[dict[str, str]]) -> list[str]:
    """Family, law, and the operators that obey it."""
    lines, previous = list[str](), ""
    laws: dict[tuple[str, str], list[str]] = {}
    for entry in entries:
        laws.setdefault((entry["family"], entry["law"]), []).append(entry["operator"])
    for (family, law), operators in laws.items():
        lines += ["", family] if family != previous else []
        lines.append(f"  {law}")
        lines += textwrap.wrap(", ".join(operators), WIDTH, initial_indent="      ", subsequent_indent="      ")
        previous = family
    return lines[1:]


def _show_spec(spec: SymmetrySpec) -> None:
    from symgraph.spec.render import folded, spaces_table

    show(spaces_table(spec))
    for one in spec.approximate:
        show(f"approximate: {one.name}, which an epsilon breaks: {one.condition}")
    pins = [row["text"] for row, _ in folded({"text": _pin_text(pin)} for pin in spec.pins)]
    if pins:
        show("Nothing moves where these operators are, for want of a law:")
        show(*(f"  {text}" for text in pins[:PINS_SHOWN]))
    if len(pins) > PINS_SHOWN:
        show(f"  and {len(pins) - PINS_SHOWN} more")


def _pin_text(pin: object) -> str:
    source, module = getattr(pin, "source", ""), getattr(pin, "module", "")
    place = (f" at {source}" if source else "") + (f" in {module}" if module else "")
    return f"{getattr(pin, 'operator', '')}{place}: {getattr(pin, 'reason', '')}"
