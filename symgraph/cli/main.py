"""The command line: ``symgraph COMMAND``. Every command is a function of its own file; this one only gathers them.

Exit status 0: done and true. 1: a check failed (not preserved, incomplete). 2: bad usage or bad input; one line on
stderr says what to do.
"""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from symgraph import __version__
from symgraph.cli import check, demo, describe, matching, moving
from symgraph.cli.console import BAD_INPUT, OK, complain
from symgraph.errors import SymgraphError

_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

app = typer.Typer(
    name="symgraph",
    add_completion=False,
    rich_markup_mode=None,
    context_settings=_SETTINGS,
    pretty_exceptions_enable=False,
)

_COMMANDS = (
    describe.discover, describe.explain, check.verify, check.audit, describe.diff, matching.match, matching.barrier,
    moving.apply, demo.demo, describe.rules,
)  # fmt: skip


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"symgraph {__version__}")
        raise typer.Exit


@app.callback()
def symgraph(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    """Find the symmetries of a PyTorch model, check them, and use them to align checkpoints.

    MODEL is a checkpoint directory (config.json and safetensors), a config.json or a model type that transformers
    knows (structure only, no weights), or file.py:factory or package.module:factory, a function that returns
    (module, kwargs).
    """


for _command in _COMMANDS:
    app.command(context_settings=_SETTINGS)(_command)


def main(arguments: Sequence[str]) -> int:
    """Run one command; the exit status."""
    warnings.filterwarnings("ignore")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # models are local: nothing is ever downloaded
    try:
        result: Any = app(list(arguments) or ["--help"], prog_name="symgraph", standalone_mode=False)
    except SymgraphError as error:
        complain(error)
    except KeyboardInterrupt:
        complain("interrupted")
    except OSError as error:
        complain(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else error)
    except Exception as error:
        # typer's usage errors, which have no common public base over its versions, know their own message
        message = getattr(error, "format_message", None)
        if callable(message):
            complain(_usage(error, message()))
        elif isinstance(error, typer.Abort):
            complain("interrupted")
        else:
            traceback.print_exc()
            complain("this is a fault of symgraph, please report it with the lines above")
    else:
        done = result if isinstance(result, int) else OK
        return done if arguments else BAD_INPUT
    return BAD_INPUT


def _usage(error: Exception, message: str) -> str:
    context = getattr(error, "ctx", None)
    path = getattr(context, "command_path", "symgraph")
    return f"{message} (see {path} --help)" if message else f"see {path} --help"


def run() -> None:
    """Entry point of the installed command."""
    sys.exit(main(sys.argv[1:]))


if __name__ == "__main__":
    run()
