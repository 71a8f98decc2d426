"""The table of matched pairs, on a zoo of two tiny pairs: with a batch norm on images, and on text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from examples import match_pairs

ZOO = """
import torch
from torch import nn
NAMES = ("images", "text")
class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.up, self.down = nn.Embedding(11, 6), nn.Linear(6, 8), nn.Linear(8, 11)
    def forward(self, input_ids):
        return self.down(self.up(self.embed(input_ids)).relu())
def load(name, seed=0):
    torch.manual_seed(0)
    if name == "text":
        module = Words()
        inner, outer = (module.up.weight, module.up.bias), module.down.weight
    else:
        module = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.ReLU(), nn.Linear(7, 3))
        inner, outer = (module[0].weight, module[0].bias), module[3].weight
    with torch.no_grad():
        outer.mul_(30)
        if seed:
            outer.copy_(outer.flip(1) + 0.1 * torch.randn(outer.shape))
            for value in inner:
                value.copy_(value.flip(0))
    return module.eval()
def batches(name, split="test", n=64, size=16):
    generator, teacher = torch.Generator().manual_seed(int(split == "test")), load(name)
    for _ in range(min(n, 64) // size):
        kwargs = {"input": torch.randn(size, 5, generator=generator)}
        if name == "text":
            kwargs = {"input_ids": torch.randint(11, (size, 8), generator=generator)}
        with torch.no_grad():
            yield kwargs, teacher(**kwargs).argmax(-1)
def loss(module, kwargs, targets):
    return nn.functional.cross_entropy(module(**kwargs).flatten(0, -2), targets.flatten())
"""


@pytest.fixture
def zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(match_pairs, "JUDGED", {True: (64, 32), False: (64, 32)})
    (tmp_path / "zoo.py").write_text(ZOO, encoding="utf-8")
    return tmp_path


def table(capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    lines = capsys.readouterr().out.splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_row_keeps_the_ends(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    match_pairs.main(["--zoo", str(zoo), "--steps", "3"])
    rows = table(capsys)
    assert [row[:2] for row in rows] == [[name, title] for name in ("images", "text") for title in match_pairs.ROWS]
    for name in ("images", "text"):
        ends = [(float(row[2]), float(row[6])) for row in rows if row[0] == name]
        assert all(end == pytest.approx(ends[0], abs=2e-3) for end in ends)
        barriers = {row[1]: float(row[7]) for row in rows if row[0] == name}
        assert barriers["weights"] < barriers["naive"] / 2


def test_results_are_kept_and_not_run_again(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = zoo / "found.json"
    arguments = ["text", "--zoo", str(zoo), "--steps", "2", "--json", str(path)]
    match_pairs.main([*arguments, "--rows", "weights", "dual"])
    first = table(capsys)
    assert list(json.loads(path.read_text())) == ["text; weights", "text; dual; steps 2; lr 0.003"]
    assert (zoo / "found.text.dual.steps 2.lr 0.003.safetensors").is_file()
    (zoo / "zoo.py").write_text("NAMES = ()", encoding="utf-8")
    match_pairs.main([*arguments, "--rows", "weights", "dual"])
    assert table(capsys) == first


def test_a_row_of_ones_own(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    match_pairs.main(["text", "--zoo", str(zoo), "--method", "weights", "--without", "permutation", "--without", "scale"])
    (row,) = table(capsys)
    assert row[1] == "weights, without permutation, without scale"


def test_no_zoo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    match_pairs.main(["--zoo", str(tmp_path)])
    assert capsys.readouterr().out == f"there is no zoo in {tmp_path}: nothing was run\n"
