"""Bad input: one line that says what to do, status 2, nothing half-written."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.cli.conftest import save

WEIGHTS = "model.safetensors"
NORM = "model.norm.weight"

# Every command that reads a checkpoint, with what else it needs; {} is the place of the checkpoint.
READERS = {
    "discover": ("discover", "{}"),
    "explain": ("explain", "{}"),
    "verify": ("verify", "{}"),
    "audit": ("audit", "{}"),
    "apply": ("apply", "{}", "--sample", "0", "-o", "{out}"),
    "match": ("match", "{good}", "{}", "--data", "{data}", "-o", "{out}"),
    "barrier": ("barrier", "{}", "{good}", "--data", "{data}"),
}


@pytest.fixture
def copied(tmp_path, pair):
    """A copy of a good checkpoint that a test may break."""
    shutil.copytree(pair[0], tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("some words " * 100, encoding="utf-8")
    return path


@pytest.fixture
def refused_by(refused, tmp_path, pair, data):
    """The message of a command on a bad checkpoint; nothing new may lie around afterwards."""

    def run(command: str, checkpoint: object) -> str:
        before = sorted(tmp_path.rglob("*"))
        places = {"good": str(pair[1]), "data": str(data), "out": str(tmp_path / "out")}
        arguments = [one.format(str(checkpoint), **places) for one in READERS[command]]
        message = refused(*arguments)
        assert sorted(tmp_path.rglob("*")) == before
        return message

    return run


def rewrite(model: Path, change) -> None:
    tensors = load_file(model / WEIGHTS)
    change(tensors)
    save_file(tensors, model / WEIGHTS, metadata={"format": "pt"})


every_reader = pytest.mark.parametrize("command", READERS)


@every_reader
def test_a_directory_without_a_configuration(refused_by, copied, command):
    (copied / "config.json").unlink()
    assert refused_by(command, copied) == (
        f"{copied} has no config.json: give a checkpoint directory, a config.json or file.py:factory"
    )


@every_reader
def test_a_file_cut_short(refused_by, copied, command):
    content = (copied / WEIGHTS).read_bytes()
    (copied / WEIGHTS).write_bytes(content[: len(content) // 2])
    assert f"{copied / WEIGHTS} is cut short or no safetensors file" in refused_by(command, copied)


@every_reader
def test_a_missing_tensor(refused_by, copied, command):
    rewrite(copied, lambda tensors: tensors.pop(NORM))
    assert refused_by(command, copied) == f"{copied}: tensor {NORM!r} is missing, and LlamaForCausalLM needs it"


@every_reader
def test_nan_weights(refused_by, copied, command):
    rewrite(copied, lambda tensors: tensors[NORM].fill_(float("nan")))
    assert refused_by(command, copied) == f"{copied}: tensor {NORM!r} has NaN entries"


@every_reader
def test_an_unknown_model_type(refused_by, copied, command):
    config = json.loads((copied / "config.json").read_text())
    (copied / "config.json").write_text(json.dumps({**config, "model_type": "lama"}))
    assert "transformers knows no model type 'lama': did you mean 'llama'?" in refused_by(command, copied)


@every_reader
def test_a_configuration_that_is_no_json(refused_by, copied, command):
    (copied / "config.json").write_text("{")
    assert f"{copied / 'config.json'} cannot be read as JSON" in refused_by(command, copied)


def test_a_model_type_that_is_misspelt(refused):
    assert refused("discover", "lama").startswith("transformers knows no model type 'lama': did you mean 'llama'?")


def test_a_path_that_is_not_there(refused):
    assert refused("discover", "no/such/model") == "no/such/model does not exist (models are local: nothing is downloaded)"


@pytest.mark.parametrize("command", ["discover", "verify", "audit", "apply"])
def test_a_factory_that_raises(refused_by, factories, command):
    assert refused_by(command, f"{factories}:bad") == f"{factories}:bad raised ValueError: no data"


def test_a_factory_that_is_not_there(refused, factories):
    assert refused("discover", f"{factories}:nothing") == f"{factories} defines no function 'nothing'"


@pytest.mark.parametrize("command", ["match", "barrier"])
def test_two_checkpoints_of_different_shapes(refused_by, pair, tmp_path, command):
    other = save(tmp_path / "other", intermediate_size=24)
    message = refused_by(command, other)
    assert "tensor 'model.layers.0.mlp." in message
    assert "has shape (20, 12) in" in message or "has shape (24, 12) in" in message


def test_two_checkpoints_of_different_depths(refused_by, tmp_path):
    assert "tensor 'model.layers.2." in refused_by("match", save(tmp_path / "other", num_hidden_layers=3))


def test_two_checkpoints_whose_shapes_hide_the_difference(refused_by, tmp_path):
    message = refused_by("match", save(tmp_path / "other", num_attention_heads=2, num_key_value_heads=1, head_dim=12))
    assert message.startswith("the models differ at modeling_llama.py:")


def test_two_checkpoints_that_differ_by_a_constant(refused_by, tmp_path):
    message = refused_by("match", save(tmp_path / "other", rms_norm_eps=1e-3))
    assert "0.001" in message


@pytest.mark.parametrize("command", ["verify", "audit", "apply"])
def test_a_spec_of_another_model(symgraph, refused, pair, tmp_path, factories, command):
    symgraph("discover", f"{factories}:net", "-o", tmp_path / "spec.json")
    more = ("--sample", 0, "-o", tmp_path / "out") if command == "apply" else ()
    message = refused(command, pair[0], "--spec", tmp_path / "spec.json", *more)
    assert "another model" in message or "'0.weight'" in message
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema_version": 2}', '{"schema_version": 1, "colour": 1}'])
def test_a_malformed_spec(refused, pair, tmp_path, text):
    path = tmp_path / "spec.json"
    path.write_text(text)
    for arguments in (("explain", path), ("diff", path, path), ("apply", pair[0], "--spec", path, "-o", tmp_path / "out")):
        assert str(path) in refused(*arguments)
    assert not (tmp_path / "out").exists()


def test_a_transform_of_another_spec(symgraph, refused, pair, factories, tmp_path):
    moved = symgraph("apply", f"{factories}:net", "--sample", 1, "--save-transform", tmp_path / "t", "-o", tmp_path / "x")
    assert moved.status == 0
    assert "spec" in refused("apply", pair[0], "--transform", tmp_path / "t", "-o", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_transform_that_is_none(refused, pair, tmp_path):
    (tmp_path / "t").write_bytes(b"\x80\x04nothing")
    assert str(tmp_path / "t") in refused("apply", pair[0], "--transform", tmp_path / "t", "-o", tmp_path / "out")


def test_an_output_that_is_there_is_kept(refused, pair, tmp_path, data):
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine").write_text("kept")
    message = f"{out} is not empty: choose another directory or pass --overwrite"
    assert refused("apply", pair[0], "--sample", 1, "-o", out) == message
    assert refused("match", *pair, "--data", data, "-o", out) == message
    assert [path.name for path in out.iterdir()] == ["mine"]


def test_weights_that_are_needed(refused, pair, tmp_path):
    config = pair[0] / "config.json"
    assert refused("apply", config, "--sample", 1, "-o", tmp_path / "out") == (
        f"{config} has no weights: give a checkpoint directory or a factory that has them"
    )


# Data


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.txt", None, "does not exist"),
        ("noise.txt", b"\xff\xfe\x00", "cannot be read as text"),
        ("noise.npz", b"noise", "cannot be read as an .npz file"),
        ("text.txt", b"words", "has no tokenizer that can be loaded"),
    ],
)
def test_data_that_cannot_be_read(refused, pair, tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert message in refused("barrier", *pair, "--data", tmp_path / name)


def test_images_for_a_model_of_text(refused, pair, tmp_path):
    arrays = {
        f"{split}_{kind}": np.zeros((2, 4, 4) if kind == "images" else 2)
        for split in ("train", "test")
        for kind in ("images", "labels")
    }
    np.savez(tmp_path / "images.npz", **arrays)
    assert refused("barrier", *pair, "--data", tmp_path / "images.npz") == (
        "images need a model with one floating-point input, this one has none"
    )


def test_images_without_labels(refused, factories, tmp_path):
    np.savez(tmp_path / "images.npz", train_images=np.zeros((2, 5)))
    save_file({"weight": torch.ones(3, 5), "bias": torch.ones(3)}, tmp_path / "a.safetensors")
    one = tmp_path / "a.safetensors"
    message = refused("barrier", one, one, "--model", f"{factories}:linear", "--data", tmp_path / "images.npz")
    assert "has no array 'train_labels'" in message


def test_weights_of_another_module(refused, factories, tmp_path, data):
    save_file({"weight": torch.ones(3, 6), "bias": torch.ones(3)}, tmp_path / "a.safetensors")
    save_file({"weight": torch.ones(3, 5)}, tmp_path / "b.safetensors")
    a, b = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    model = ("--model", f"{factories}:linear", "--data", data)
    assert "tensor 'weight' has shape (3, 5) in" in refused("barrier", a, b, *model)
    assert f"{b}: tensor 'bias' is missing" in refused("barrier", b, a, *model)
