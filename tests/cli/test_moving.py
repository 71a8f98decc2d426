"""``apply``: the result is another checkpoint of the same function, for the unmodified class."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file

import symgraph as sg
from tests.cli.conftest import CONFIG, save

IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])


def logits(path: Path) -> torch.Tensor:
    model, report = transformers.AutoModelForCausalLM.from_pretrained(path, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    with torch.no_grad():
        return model.eval()(input_ids=IDS).logits.float()


def off(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).abs().max() / other.abs().max())


@pytest.fixture(scope="session")
def trained(pair: tuple[Path, Path]) -> Path:
    return pair[0]


def test_a_random_element_keeps_the_logits(symgraph, trained, tmp_path):
    symgraph("discover", trained, "-o", tmp_path / "spec.json")
    outcome = symgraph("apply", trained, "--spec", tmp_path / "spec.json", "--sample", 1, "-o", tmp_path / "out")
    assert (outcome.status, outcome.err) == (0, "")
    assert off(logits(tmp_path / "out"), logits(trained)) < 1e-4
    before, after = (load_file(path / "model.safetensors") for path in (trained, tmp_path / "out"))
    assert before.keys() == after.keys()
    assert off(after["model.embed_tokens.weight"], before["model.embed_tokens.weight"]) > 0.1


def test_a_saved_element_is_applied_again(symgraph, trained, tmp_path):
    save_it = ("--save-transform", tmp_path / "t")
    first = symgraph("apply", trained, "--sample", 5, *save_it, "-o", tmp_path / "one", "--json").json
    second = symgraph("apply", trained, "--transform", tmp_path / "t", "-o", tmp_path / "two", "--json").json
    assert first["max_relative_error"] == second["max_relative_error"] < 1e-4
    for name, value in load_file(tmp_path / "one" / "model.safetensors").items():
        assert torch.equal(value, load_file(tmp_path / "two" / "model.safetensors")[name])


def test_the_normal_form_alone(symgraph, trained, tmp_path):
    assert symgraph("apply", trained, "-o", tmp_path / "out").status == 0
    assert torch.equal(load_file(tmp_path / "out" / "model.safetensors")["model.norm.weight"], torch.ones(12))
    assert off(logits(tmp_path / "out"), logits(trained)) < 1e-5


def test_an_untied_model_is_written_with_its_head(symgraph, tied, tmp_path):
    symgraph("discover", tied, "--untie", "-o", tmp_path / "spec.json")
    outcome = symgraph("apply", tied, "--spec", tmp_path / "spec.json", "--sample", 1, "-o", tmp_path / "out", "--json")
    assert outcome.json["untied"] is True
    assert json.loads((tmp_path / "out" / "config.json").read_text())["tie_word_embeddings"] is False
    written = load_file(tmp_path / "out" / "model.safetensors")
    assert not torch.equal(written["lm_head.weight"], written["model.embed_tokens.weight"])
    assert off(logits(tmp_path / "out"), logits(tied)) < 1e-4


def test_a_tied_model_stays_tied(symgraph, tied, tmp_path):
    assert symgraph("apply", tied, "--sample", 1, "-o", tmp_path / "out").status == 0
    assert "lm_head.weight" not in load_file(tmp_path / "out" / "model.safetensors")
    assert off(logits(tmp_path / "out"), logits(tied)) < 1e-4


def test_half_precision_is_kept(symgraph, tmp_path):
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**CONFIG)).to(torch.bfloat16)
    model.save_pretrained(tmp_path / "half")
    assert symgraph("apply", tmp_path / "half", "--sample", 1, "--scale", 0.1, "-o", tmp_path / "out").status == 0
    assert {value.dtype for value in load_file(tmp_path / "out" / "model.safetensors").values()} == {torch.bfloat16}
    assert off(logits(tmp_path / "out"), logits(tmp_path / "half")) < 0.2


def test_stacked_experts_load_again(symgraph, tmp_path):
    torch.manual_seed(0)
    config = transformers.MixtralConfig(**CONFIG, num_local_experts=3, num_experts_per_tok=2)
    transformers.MixtralForCausalLM(config).save_pretrained(tmp_path / "model")
    assert symgraph("apply", tmp_path / "model", "--sample", 1, "-o", tmp_path / "out").status == 0
    assert off(logits(tmp_path / "out"), logits(tmp_path / "model")) < 1e-4


def test_a_factory_gives_a_weights_file(symgraph, factories, tmp_path):
    assert symgraph("apply", f"{factories}:net", "--sample", 1, "-o", tmp_path / "out").status == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["model.safetensors"]


def test_a_spec_that_does_not_hold_is_not_applied(symgraph, pair, tmp_path):
    symgraph("discover", pair[0], "-o", tmp_path / "spec.json")
    text = (tmp_path / "spec.json").read_text()
    wrong = text.replace('"orthogonal"', '"general_linear"')
    assert wrong != text
    (tmp_path / "wrong.json").write_text(wrong)
    outcome = symgraph("apply", pair[0], "--spec", tmp_path / "wrong.json", "--sample", 1, "-o", tmp_path / "out")
    assert outcome.status in (1, 2)
    assert outcome.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_overwriting_has_to_be_asked_for(symgraph, refused, pair, tmp_path):
    save(tmp_path / "out", seed=3)
    arguments = ("apply", pair[0], "--sample", 1, "-o", tmp_path / "out")
    refused(*arguments)
    assert symgraph(*arguments, "--overwrite").status == 0
    assert off(logits(tmp_path / "out"), logits(pair[0])) < 1e-4


def test_a_transform_reads_back_as_it_was(symgraph, pair, tmp_path):
    spec = sg.discover(sg.load_model(pair[0]).module, kwargs={"input_ids": IDS})
    element = sg.sample(spec, seed=2)
    element.save(tmp_path / "t")
    sg.save_spec(spec, tmp_path / "spec.json")
    arguments = ("--spec", tmp_path / "spec.json", "--transform", tmp_path / "t", "-o", tmp_path / "out")
    assert symgraph("apply", pair[0], *arguments).status == 0
    moved = element.apply(sg.canonicalize(spec, load_file(pair[0] / "model.safetensors")))
    for name, value in load_file(tmp_path / "out" / "model.safetensors").items():
        assert torch.equal(value, moved[name])
