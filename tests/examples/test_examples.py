"""Every script in examples/ runs."""

from __future__ import annotations

from pathlib import Path

import pytest

import symgraph as sg
from examples import check_complete, check_models, make_specs, own_module, train_demo

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_every_example_is_run_by_a_test() -> None:
    tests = "\n".join(path.read_text(encoding="utf-8") for path in EXAMPLES.parent.glob("tests/**/test_*.py"))
    for path in EXAMPLES.glob("*.py"):
        assert path.stem == "__init__" or path.stem in tests, path


COUNTED = [name for name, (_, predicted) in check_complete.CASES.items() if predicted is not None]


@pytest.mark.parametrize("name", COUNTED)
def test_check_complete(capsys: pytest.CaptureFixture[str], name: str) -> None:
    """What was predicted by hand, what the spec has and what the Jacobian loses are one number."""
    check_complete.main([name])
    _, predicted, dimension, rank, nullity, _, verdict = capsys.readouterr().out.splitlines()[-1].strip("|").split("|")
    assert int(predicted) == int(rank) == int(nullity) >= int(dimension)
    assert verdict.strip() == "yes"


def test_own_module(capsys: pytest.CaptureFixture[str]) -> None:
    own_module.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("residual: O(16)")
    naive, weights, dual = (float(line.split()[-1]) for line in lines[-3:])
    assert naive > weights > dual


@pytest.mark.parametrize("name", ["llama", "gpt_neox"])
def test_check_models(capsys: pytest.CaptureFixture[str], name: str) -> None:
    check_models.main([name])
    cells = [cell.strip() for cell in capsys.readouterr().out.splitlines()[-1].strip("|").split("|")]
    assert float(cells[-2]) < 1e-9
    assert float(cells[-1]) < 1e-6


@pytest.mark.parametrize("name", check_models.MODELS)
def test_both_kinds_of_attention_give_one_spec(name: str) -> None:
    plain, fused = (graph(name, attention) for attention in ("eager", "sdpa"))
    spec, other = sg.discover(plain), sg.discover(fused)
    assert groups(spec) == groups(other)
    assert (spec.tensors, spec.dimension.total) == (other.tensors, other.dimension.total)
    assert sg.verify(fused, other, samples=1).passed


def graph(name: str, attention: str) -> sg.Graph:
    try:
        module, kwargs = check_models.build(name, attention)
    except ValueError as error:
        pytest.skip(str(error).split(":")[0])
    return sg.trace(module, kwargs=kwargs)


def groups(spec: sg.SymmetrySpec) -> list[object]:
    return [(space.name, space.group, space.per, space.scales, space.blocks) for space in spec.spaces]


def test_train_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["train_demo.py", "--steps", "4", "--out", str(tmp_path / "out")])
    train_demo.main()
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"a", "b", "digits.npz"}
    shipped = train_demo.DATA / "digits.npz"
    assert (tmp_path / "out" / "digits.npz").stat().st_size == shipped.stat().st_size
    assert "middle of the line: test loss" in capsys.readouterr().out


def test_make_specs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(make_specs, "SPECS", tmp_path)
    make_specs.main(["gpt2"])
    assert capsys.readouterr().out.startswith("gpt2: ")
    assert {path.name for path in tmp_path.iterdir()} == {"gpt2.json", "README.md"}
