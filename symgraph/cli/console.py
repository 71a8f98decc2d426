"""What every command prints and how it ends: results on stdout, progress and errors on stderr, a status."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, RenderableType

WIDTH = 100  # where the output is no terminal

OK, FAILED, BAD_INPUT = 0, 1, 2


def _console(stream: Any) -> Console:
    return Console(file=stream, width=None if stream.isatty() else WIDTH, highlight=False, soft_wrap=False)


def show(*items: RenderableType) -> None:
    """Print tables, or text as it stands (without markup), on stdout."""
    console = _console(sys.stdout)
    for item in items:
        if isinstance(item, str):
            console.print(item, markup=False, soft_wrap=True)
        else:
            console.print(item)


def show_json(value: Any) -> None:
    """One JSON document on stdout; numbers that JSON has no word for are null."""
    sys.stdout.write(json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def complain(message: object) -> None:
    """One line on stderr."""
    text = " ".join(str(message).split())
    sys.stderr.write(f"symgraph: {text}\n")


@contextmanager
def working(what: str) -> Iterator[None]:
    """A spinner on stderr while something runs; nothing where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield
        return
    with _console(sys.stderr).status(what):
        yield


class Bar:
    """A progress bar on stderr that is told ``bar(done, total, text)``; silent where stderr is no terminal."""

    def __init__(self, what: str) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._progress = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
            console=_console(sys.stderr), disable=not sys.stderr.isatty(), transient=True,
        )  # fmt: skip
        self._what = what
        self._task = self._progress.add_task(what, total=None)

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def __call__(self, done: int, total: int | None = None, text: str = "") -> None:
        """Report that ``done`` of ``total`` steps are behind us."""
        description = f"{self._what} {text}".strip()
        self._progress.update(self._task, completed=done, total=total, description=description)


def plain(value: Any) -> Any:
    """The value as JSON knows it: dataclasses and models as objects, numbers that are none as null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if hasattr(value, "model_dump"):
        return plain(value.model_dump(mode="json"))
    if hasattr(value, "__dataclass_fields__"):
        return {name: plain(getattr(value, name)) for name in value.__dataclass_fields__}
    return str(value)
