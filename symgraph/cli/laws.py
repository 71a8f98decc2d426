"""The registry of rules, for reading: every operator with the law that its rule states."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from symgraph.errors import SymgraphError
from symgraph.rules import COMPOSITES, RULES
from symgraph.rules.elementwise import UNARY
from symgraph.rules.law import Power


class UnknownOperatorError(SymgraphError):
    """An operator that has no rule."""


def all_laws() -> list[dict[str, str]]:
    """One entry for every operator (its overloads together), by family."""
    found: dict[str, dict[str, str]] = {}
    for target, function in _entries():
        if (name := _packet(target)) and name not in found:
            found[name] = {"operator": name, "family": _family(function), "law": _first(_law(name, function))}
    return sorted(found.values(), key=lambda entry: (entry["family"], entry["operator"]))


def laws_of(operator: str) -> list[dict[str, Any]]:
    """The laws of an operator: one for every rule that overloads of it have."""
    wanted = operator.removeprefix("torch.ops.")
    found: dict[Any, dict[str, Any]] = {}
    for target, function in _entries():
        name = _packet(target)
        if wanted not in (str(target), name, name.partition(".")[2]):
            continue
        kind = "defined by other operators" if COMPOSITES.get(target) is function else "law"
        entry = {"operators": [], "family": _family(function), "kind": kind, "text": _law(name, function)}
        found.setdefault(function, entry)["operators"].append(str(target))
    if not found:
        names = sorted({_packet(target) for target, _ in _entries()} - {""})
        close = get_close_matches(wanted if "." in wanted else f"aten.{wanted}", names, n=2, cutoff=0.7)
        hint = f"did you mean {' or '.join(close)}?" if close else "symgraph rules lists those that have one"
        raise UnknownOperatorError(f"no rule for operator {operator!r}, so it pins what it touches: {hint}")
    return list(found.values())


def _entries() -> Iterator[tuple[Any, Any]]:
    yield from RULES.items()
    yield from COMPOSITES.items()


def _packet(target: Any) -> str:
    """``aten.linear`` of ``aten.linear.default``; nothing for marks of the engine, which are no operators of torch."""
    text = str(target)
    return ".".join(text.split(".")[:2]) if hasattr(target, "overloadpacket") else ""


def _family(function: Any) -> str:
    return str(function.__module__).rpartition(".")[2]


def _law(name: str, function: Any) -> str:
    document = inspect.getdoc(function)
    if document:
        return document
    short = name.partition(".")[2]
    return next((_words(power) for power, names in UNARY.items() if short in names), "")


def _words(power: Power) -> str:
    """What an elementwise function does to scales and signs."""
    factor = "c " if power.degree == 1 else f"c^{power.degree} "
    scales = f"f(c x) = {factor}f(x) for c > 0" if power.degree is not None else ""
    signs = {1: "f(-x) = -f(x)", 0: "f(-x) = f(x)", None: ""}[power.parity]
    return "elementwise: " + (", ".join(text for text in (scales, signs) if text) or "keeps the coordinates, no more")


def _first(text: str) -> str:
    return text.splitlines()[0] if text else ""
