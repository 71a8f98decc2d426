"""The sweep itself, over a catalogue of five modules of which only some behave."""

import json
import time

import pytest

import symgraph as sg
from symgraph.algebra.groups import Group
from tests.benchmarks import sweep

LOADER = """
import json, os
import torch
from torch import nn

class Hanging(nn.Module):
    def forward(self, x):
        while True:
            pass

class Dying(nn.Module):
    def forward(self, x):
        os._exit(7)

class Branching(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x

def load(path, exportable):
    return [json.loads(line) for line in open(path)]

def build(entry):
    torch.manual_seed(0)
    if entry["model_type"] == "broken":
        raise ValueError("no such thing")
    plain = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2))
    kinds = {"plain": plain, "hanging": Hanging(), "dying": Dying(), "branching": Branching()}
    return kinds[entry["model_type"]].eval(), {"x" if entry["model_type"] != "plain" else "input": torch.randn(5, 3)}
"""
NAMES = ("plain", "hanging", "dying", "branching", "broken")


@pytest.fixture
def run(tmp_path):
    (tmp_path / "architectures.py").write_text(LOADER)
    (tmp_path / "architectures.jsonl").write_text("".join(json.dumps({"model_type": name}) + "\n" for name in NAMES))

    def run(*arguments):
        status = sweep.main([str(tmp_path), *arguments, "--rows", str(tmp_path / "rows.jsonl"),
                             "--output", str(tmp_path / "coverage.json"), "--seconds", "2"])  # fmt: skip
        return status, json.loads((tmp_path / "coverage.json").read_text())

    return run


def test_none_stops_the_others(run, capsys):
    started = time.monotonic()
    status, found = run("--audit", "100")
    rows = found["architectures"]
    assert status == 0
    assert {name: row["status"] for name, row in rows.items()} == {
        "plain": "sound", "hanging": "timeout", "dying": "failed", "branching": "refused", "broken": "failed",
    }  # fmt: skip
    assert rows["hanging"]["why"] == "2 s of CPU time"
    assert rows["dying"]["why"] == "the process ended with 7"
    assert rows["broken"]["why"] == "ValueError: no such thing"
    assert rows["branching"]["why"].startswith("torch.export cannot trace Branching: ")
    assert (rows["plain"]["groups"], rows["plain"]["complete"]) == ({"permutation": 1}, True)
    assert found["sample"] == ["plain"]
    assert "5 architectures: 2 failed, 1 sound, 1 timeout, 1 refused" in capsys.readouterr().out
    assert time.monotonic() - started < 120


def test_a_second_run_goes_on_where_the_first_one_stopped(run, tmp_path, capsys):
    run("plain")
    with (tmp_path / "rows.jsonl").open("a") as rows:
        rows.write('{"model": "dying", "status": "sou')  # cut short
    run("dying", "branching", "broken", "hanging")
    capsys.readouterr()
    assert set(run()[1]["architectures"]) == set(NAMES)
    assert "plain:" not in capsys.readouterr().out


def test_an_unsound_spec_is_told(run, monkeypatch):
    discover = sg.discover

    def wrong(graph):
        spec = discover(graph)
        spaces = tuple(space.model_copy(update={"group": Group.GENERAL_LINEAR}) for space in spec.spaces)
        return spec.model_copy(update={"spaces": spaces})

    monkeypatch.setattr(sg, "discover", wrong)
    status, found = run("plain")
    assert status == 1
    assert found["architectures"]["plain"]["status"] == "unsound"
    assert found["architectures"]["plain"]["failures"]
    assert found["sample"] == []


def test_a_catalogue_that_is_not_there(tmp_path, run, capsys):
    assert sweep.main([str(tmp_path / "nowhere")]) == 2
    assert capsys.readouterr().err == (
        f"error: {tmp_path / 'nowhere'} has no architectures.jsonl: give the directory of the catalogue\n"
    )
    assert sweep.main([str(tmp_path), "llama"]) == 2
    assert capsys.readouterr().err == f"error: {tmp_path} has no architecture 'llama'\n"


def test_the_sample_covers_most_in_the_time():
    def row(operators, seconds, status="sound"):
        return {"status": status, "operators": operators, "seconds": {"trace": seconds}}

    rows = {"a": row(["x", "y"], 1), "b": row(["x"], 0.1), "c": row(["z"], 50), "d": row(["y", "z"], 2)}
    rows["e"] = row(["w"], 1, "unsound")
    assert sweep.chosen(rows, 40, 60) == ["b", "d"]  # x for the least time, then y and z; nothing is left for a and c
    assert sweep.chosen(rows, 1, 60) == ["b"]
    assert sweep.chosen(rows, 40, 1) == ["b"]
