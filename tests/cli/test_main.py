"""Help, usage and exit statuses."""

from __future__ import annotations

import subprocess
import sys

import pytest

from symgraph.cli import main as module
from symgraph.cli.main import main

COMMANDS = ("discover", "explain", "verify", "audit", "diff", "match", "barrier", "apply", "demo", "rules")


def test_help_lists_the_commands(symgraph):
    outcome = symgraph("--help")
    assert outcome.status == 0
    assert [line.split()[0] for line in outcome.out.split("Commands:")[1].strip().splitlines()] == list(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_json(symgraph, command):
    outcome = symgraph(command, "--help")
    assert outcome.status == 0
    assert "--json" in outcome.out


def test_version(symgraph):
    assert symgraph("--version").out == "symgraph 0.1.0\n"


def test_no_command_is_bad_usage(symgraph):
    outcome = symgraph()
    assert outcome.status == 2
    assert "Commands:" in outcome.out


def test_bad_usage_is_one_line(refused):
    assert refused("discover") == "Missing argument 'MODEL'. (see symgraph discover --help)"
    assert "No such command 'find'" in refused("find")
    assert "No such option" in refused("discover", "x", "--nothing")


def test_help_needs_no_torch():
    code = "import sys; from symgraph.cli.main import main; main(['--help']); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_a_fault_of_our_own_shows_where(monkeypatch, capsys):
    monkeypatch.setattr(module, "app", lambda *_, **__: 1 / 0)
    assert main(["rules"]) == 2
    error = capsys.readouterr().err
    assert "ZeroDivisionError" in error
    assert error.endswith("symgraph: this is a fault of symgraph, please report it with the lines above\n")


def test_an_interrupt_is_one_line(monkeypatch, capsys):
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "app", interrupted)
    assert main(["rules"]) == 2
    assert capsys.readouterr().err == "symgraph: interrupted\n"
