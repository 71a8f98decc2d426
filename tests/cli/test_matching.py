"""``match`` and ``barrier`` on text and on images, and the demo."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers

import symgraph as sg
from symgraph.cli.demo import DATA
from tests.cli.conftest import CONFIG, save

TEXT = "in the beginning was a word and it was not the last of them all but one more came after"
WORDS = TEXT.split()
ROUND_OFF = 2e-6  # of float32 logits, relative to the largest: 16 epsilons
WRITTEN = {"a", "b", "merged", "spec.json", "transform_a.safetensors", "transform_b.safetensors", "report.json", "report.md"}


@pytest.fixture(scope="session")
def text(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("text") / "words.txt"
    path.write_text(" ".join(WORDS[(7 * i * i + i) % len(WORDS)] for i in range(900)), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def readers(tmp_path_factory) -> tuple[Path, Path]:
    """Two checkpoints with a tokenizer."""
    vocabulary = {word: index for index, word in enumerate(sorted({*WORDS}))}
    tokenizer = Tokenizer(models.WordLevel({**vocabulary, "?": len(vocabulary)}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    folder = tmp_path_factory.mktemp("readers")
    paths = save(folder / "a", 0), save(folder / "b", 1)
    for path in paths:
        tokenizer.save(str(path / "tokenizer.json"))
    return paths


def test_barrier_of_a_checkpoint_with_itself_is_zero(symgraph, readers, text):
    curve = symgraph("barrier", readers[0], readers[0], "--data", text, "--points", 3, "--json").json
    assert curve["alphas"] == [0.0, 0.5, 1.0]
    assert abs(curve["barrier"]) < 1e-6
    assert curve["examples"] == 5  # a tenth of 56 windows of 16 tokens
    table = symgraph("barrier", *readers, "--data", text, "--points", 3)
    assert table.status == 0
    assert "barrier" in table.out


def test_barrier_judges_on_another_text(symgraph, readers, text, tmp_path):
    (tmp_path / "other.txt").write_text(" ".join(WORDS * 20))
    curve = symgraph("barrier", *readers, "--data", text, "--test", tmp_path / "other.txt", "--context", 8, "--json").json
    assert curve["examples"] == 49


def test_match_recovers_a_moved_copy(symgraph, readers, text, tmp_path):
    symgraph("apply", readers[0], "--sample", 7, "-o", tmp_path / "moved")
    arguments = (readers[0], tmp_path / "moved", "--data", text, "--method", "weights", "-o", tmp_path / "out", "--points", 5)
    outcome = symgraph("match", *arguments, "--report", tmp_path / "report.html", "--json")
    assert (outcome.status, outcome.err) == (0, "")
    assert outcome.json["curves"]["weights"]["barrier"] < 1e-3
    assert {path.name for path in (tmp_path / "out").iterdir()} - {"curve.png"} == WRITTEN
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert list(report["curves"]) == ["as they are", "normal form", "weights"]
    assert "<svg" in (tmp_path / "report.html").read_text()
    written = (tmp_path / "out" / "report.md").read_text()
    assert "| weights |" in written
    assert "- equivalent: relative distance" in written
    assert "| residual | " in written
    assert report["distances"]["residual"]["after"] < 1e-4 < report["distances"]["residual"]["before"]
    assert 1e7 < report["peak_memory"] < 1e11
    states = [load_file(tmp_path / "out" / name / "model.safetensors") for name in ("a", "b", "merged")]
    for name, value in states[0].items():
        assert torch.allclose(value, states[1][name], atol=1e-3)
        assert torch.allclose((value + states[1][name]) / 2, states[2][name], atol=1e-6)


def test_what_match_writes_loads_and_keeps_its_function(symgraph, readers, text, tmp_path):
    arguments = (*readers, "--data", text, "-o", tmp_path / "out", "--steps", 2, "--points", 3)
    assert symgraph("match", *arguments).status == 0
    ids = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])
    for name, original in zip(("a", "b"), readers, strict=True):
        found, expected = (
            transformers.AutoModelForCausalLM.from_pretrained(path).eval()(input_ids=ids).logits
            for path in (tmp_path / "out" / name, original)
        )
        assert float((found - expected).abs().max() / expected.abs().max()) < ROUND_OFF
    assert transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out" / "merged").config.hidden_size == 12
    spec = sg.load_spec(tmp_path / "out" / "spec.json")
    for name in ("transform_a", "transform_b"):
        sg.Transform.load(tmp_path / "out" / f"{name}.safetensors", spec)


FAMILIES = {
    "GPTNeoX": {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 36},
    "GPT2": {"n_embd": 24, "n_layer": 2, "n_head": 4},
    "Qwen3": {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
              "intermediate_size": 24},
}  # fmt: skip


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("method", ["weights", "dual"])
def test_aligned_and_merged_checkpoints_load_and_ends_keep_their_logits(symgraph, text, readers, tmp_path, name, method):
    kind = "LMHeadModel" if name == "GPT2" else "ForCausalLM"
    for seed, end in enumerate("ab"):
        torch.manual_seed(seed)
        config = getattr(transformers, f"{name}Config")(**FAMILIES[name], vocab_size=31, max_position_embeddings=16)
        module = getattr(transformers, name + kind)(config)
        for parameter in module.parameters():  # gains and biases that are not ones and zeros
            parameter.data += 0.2 * torch.randn_like(parameter)
        module.save_pretrained(tmp_path / end)
        (tmp_path / end / "tokenizer.json").write_bytes((readers[0] / "tokenizer.json").read_bytes())
    arguments = (tmp_path / "a", tmp_path / "b", "--data", text, "-o", tmp_path / "out", "--points", 3, "--method", method)
    assert symgraph("match", *arguments, *(["--steps", 3] if method == "dual" else [])).status == 0
    ids = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])
    logits = {
        path: transformers.AutoModelForCausalLM.from_pretrained(tmp_path / path).eval()(input_ids=ids).logits
        for path in ("a", "b", "out/a", "out/b", "out/merged")
    }
    for end in "ab":
        assert type(transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out" / end)).__name__ == name + kind
        gap = (logits[f"out/{end}"] - logits[end]).abs().max()
        assert float(gap / logits[end].abs().max()) < ROUND_OFF
    assert float((logits["out/merged"] - logits["a"]).abs().max()) > 1e-2
    ends = [transformers.AutoModelForCausalLM.from_pretrained(tmp_path / path).state_dict() for path in ("b", "out/b")]
    assert any(not torch.equal(value, ends[1][key]) for key, value in ends[0].items())


def test_match_on_activations_and_from_them(symgraph, readers, text, tmp_path):
    symgraph("apply", readers[0], "--sample", 7, "-o", tmp_path / "moved")
    arguments = (readers[0], tmp_path / "moved", "--data", text, "--points", 3, "-o", tmp_path / "out")
    alone = symgraph("match", *arguments, "--method", "activations", "--json").json
    assert alone["curves"]["activations"]["barrier"] < 1e-3
    assert alone["distance"]["after"] < alone["distance"]["before"] / 2
    started = symgraph("match", *arguments, "--method", "weights", "--start", "activations", "--overwrite", "--json").json
    assert started["options"]["start"] == "activations"
    assert started["equivalent"]


def test_kinds_take_part_alone(symgraph, readers, text, tmp_path):
    arguments = (*readers, "--data", text, "--method", "weights", "--points", 3, "-o", tmp_path / "out", "--json")
    distances = [
        symgraph("match", *arguments, "--overwrite", *chosen).json["distance"]["after"]
        for chosen in (["--only", "permutation"], ["--only", "permutation", "--only", "orthogonal"], ["--without", "qk"], [])
    ]
    assert distances[0] > distances[1] > distances[2] > distances[3]


def test_learning_is_resumed(symgraph, readers, text, tmp_path):
    arguments = (*readers, "--data", text, "--points", 3, "--steps", 4, "--json", "--resume", tmp_path / "run.safetensors")
    first = symgraph("match", *arguments, "-o", tmp_path / "first").json
    assert (tmp_path / "run.safetensors").is_file()
    again = symgraph("match", *arguments, "-o", tmp_path / "again").json
    assert again["curves"] == first["curves"]
    assert again["seconds"] <= first["seconds"] + 1


def test_only_so_many_examples_are_judged_on(symgraph, readers, tmp_path):
    (tmp_path / "long.txt").write_text(" ".join(WORDS * 2000))
    curve = symgraph("barrier", *readers, "--data", tmp_path / "long.txt", "--context", 8, "--points", 3, "--json").json
    assert curve["examples"] == 256
    arguments = ("--data", tmp_path / "long.txt", "--context", 8, "--points", 3, "--examples", 300, "--json")
    assert symgraph("barrier", *readers, *arguments).json["examples"] == 300


def test_match_can_leave_spaces_out(symgraph, readers, text, tmp_path):
    arguments = (*readers, "--data", text, "--method", "weights", "--points", 3, "-o", tmp_path / "out")
    everything = symgraph("match", *arguments, "--json").json["curves"]["weights"]
    nothing = symgraph("match", *arguments, "--overwrite", "--json", *without_all(readers[0])).json["curves"]
    assert nothing["weights"]["losses"][1] == pytest.approx(nothing["normal form"]["losses"][1], abs=0.05)
    assert everything["losses"] != nothing["weights"]["losses"]


def without_all(path: Path) -> list[str]:
    spec = sg.discover(sg.load_model(path).module, kwargs={"input_ids": torch.tensor([[1, 2, 3]])})
    return [one for space in spec.spaces for one in ("--without", space.name)]


def test_match_in_half_precision_and_untied(symgraph, text, readers, tmp_path):
    for seed, name in enumerate(("a", "b")):
        torch.manual_seed(seed)
        config = transformers.LlamaConfig(**{**CONFIG, "tie_word_embeddings": True})
        transformers.LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(tmp_path / name)
        (tmp_path / name / "tokenizer.json").write_bytes((readers[0] / "tokenizer.json").read_bytes())
    arguments = (tmp_path / "a", tmp_path / "b", "--data", text, "-o", tmp_path / "out", "--points", 3, "--untie")
    outcome = symgraph("match", *arguments, "--method", "weights")
    assert (outcome.status, outcome.err) == (0, "")
    merged = load_file(tmp_path / "out" / "merged" / "model.safetensors")
    assert {value.dtype for value in merged.values()} == {torch.bfloat16}
    assert "lm_head.weight" in merged
    assert json.loads((tmp_path / "out" / "merged" / "config.json").read_text())["tie_word_embeddings"] is False


def test_weights_files_with_a_factory(symgraph, factories, tmp_path):
    generator = np.random.default_rng(0)
    arrays = {
        f"{split}_{kind}": generator.normal(size=(40, 5)) if kind == "images" else generator.integers(0, 3, 40)
        for split in ("train", "test")
        for kind in ("images", "labels")
    }
    np.savez(tmp_path / "data.npz", **arrays)
    for seed, name in enumerate("ab"):
        torch.manual_seed(seed)
        shapes = {"0.weight": (7, 5), "0.bias": (7,), "2.weight": (3, 7), "2.bias": (3,)}
        save_file({key: torch.randn(shape) for key, shape in shapes.items()}, tmp_path / f"{name}.safetensors")
    files = (tmp_path / "a.safetensors", tmp_path / "b.safetensors")
    model = ("--model", f"{factories}:net", "--data", tmp_path / "data.npz")
    assert symgraph("barrier", *files, *model, "--json").json["examples"] == 40
    outcome = symgraph("match", *files, *model, "-o", tmp_path / "out", "--method", "weights", "--json")
    assert outcome.status == 0
    assert [path.name for path in (tmp_path / "out" / "merged").iterdir()] == ["model.safetensors"]


def test_nothing_is_left_of_a_match_that_fails(refused, readers, text, tmp_path):
    message = refused("match", *readers, "--data", text, "-o", tmp_path / "out", "--without", "nothing")
    assert "nothing" in message
    assert list(tmp_path.iterdir()) == []


def test_the_demo(symgraph, tmp_path):
    outcome = symgraph("demo", "-o", tmp_path / "out", "--steps", 3, "--json")
    assert (outcome.status, outcome.err) == (0, "")
    curves = outcome.json["curves"]
    assert curves["as they are"]["barrier"] > 1
    assert curves["weights"]["barrier"] < curves["normal form"]["barrier"]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {*WRITTEN, "curve.png"}
    assert symgraph("demo", "-o", tmp_path / "out", "--steps", 0).status == 0
    merged = transformers.AutoModelForImageClassification.from_pretrained(tmp_path / "out" / "merged")
    assert merged.config.hidden_size == 64


def test_the_demo_is_small():
    assert sum(path.stat().st_size for path in DATA.rglob("*") if path.is_file()) < 3_000_000
