"""Checkpoints: read lazily, written whole or not at all, refused with the name of what is wrong."""

import json

import pytest
import torch
from safetensors.torch import save_file

from symgraph.errors import CheckpointError
from symgraph.frontend.checkpoint import compare_states, read_state, write_checkpoint

STATE = {f"layer.{index}": torch.randn(3, 5 + index) for index in range(4)}


def equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("shard_bytes", [100, 150, 10**9])
def test_what_is_written_is_read(tmp_path, shard_bytes):
    source = tmp_path / "source"
    source.mkdir()
    (source / "config.json").write_text('{"model_type": "x", "tied": true}')
    (source / "tokenizer.json").write_text("{}")
    (source / "training.pkl").write_bytes(b"")
    target = write_checkpoint(tmp_path / "deep" / "target", STATE, source, {"tied": False}, shard_bytes=shard_bytes)
    assert equal(dict(read_state(target)), STATE)
    assert json.loads((target / "config.json").read_text()) == {"model_type": "x", "tied": False}
    assert (target / "tokenizer.json").exists()
    assert not (target / "training.pkl").exists()
    assert (target / "model.safetensors").exists() == (shard_bytes == 10**9)
    assert sorted(path.name for path in target.parent.iterdir()) == ["target"]


def test_a_lazy_state_knows_shapes_and_streams(tmp_path):
    lazy = read_state(write_checkpoint(tmp_path / "a", STATE, shard_bytes=100))
    assert lazy.shapes == {name: tuple(value.shape) for name, value in STATE.items()}
    assert equal(dict(read_state(write_checkpoint(tmp_path / "b", lazy))), STATE)
    assert "layer.9" not in lazy


def test_an_existing_directory_is_kept(tmp_path):
    target = write_checkpoint(tmp_path / "a", STATE)
    with pytest.raises(CheckpointError, match=r"is not empty: choose another directory or ask to overwrite it$"):
        write_checkpoint(target, STATE)
    (target / "old.txt").write_text("")
    write_checkpoint(target, {"x": torch.ones(1)}, overwrite=True)
    assert list(read_state(target)) == ["x"]
    assert not (target / "old.txt").exists()


def test_a_failure_leaves_nothing_behind(tmp_path):
    target = write_checkpoint(tmp_path / "a", STATE)

    class Failing(dict):
        def __getitem__(self, name):
            if name == "layer.3":
                raise KeyError(name)
            return super().__getitem__(name)

    with pytest.raises(KeyError):
        write_checkpoint(target, Failing(STATE), overwrite=True, shard_bytes=100)
    assert equal(dict(read_state(target)), STATE)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_tied_tensors_follow_the_source(tmp_path):
    shared = torch.randn(3, 2)
    state = {"embed": shared, "head": shared}
    both = write_checkpoint(tmp_path / "both", state)
    assert set(read_state(both)) == {"embed", "head"}
    one = write_checkpoint(tmp_path / "one", {"head": shared})
    assert set(read_state(write_checkpoint(tmp_path / "c", state, one))) == {"head"}
    untied = {"embed": shared, "head": 2 * shared}
    assert equal(dict(read_state(write_checkpoint(tmp_path / "d", untied, one))), untied)
    assert torch.equal(read_state(write_checkpoint(tmp_path / "e", {"x": shared.mT}))["x"], shared.mT)


@pytest.mark.parametrize("keep", [4, 60, -8])
def test_a_file_that_is_cut_short(tmp_path, keep):
    path = write_checkpoint(tmp_path / "a", STATE) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match=rf"^{path} is cut short or no safetensors file: .*$"):
        read_state(tmp_path / "a")


SHARDS = ["../a.safetensors", "/a.safetensors", "a.bin", "..", "b\\a.safetensors", 3, ".safetensors"]


@pytest.mark.parametrize("shard", SHARDS)
def test_an_index_stays_in_its_directory(tmp_path, shard):
    folder = tmp_path / "model"
    folder.mkdir()
    save_file({"x": torch.ones(1)}, str(tmp_path / "a.safetensors"))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"x": shard}}))
    with pytest.raises(CheckpointError, match=r"a shard is a .safetensors file beside it$"):
        read_state(folder)


def test_an_index_that_does_not_fit(tmp_path):
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}))
    with pytest.raises(CheckpointError, match=r"a.safetensors is missing$"):
        read_state(tmp_path)
    save_file({"x": torch.ones(1)}, str(tmp_path / "a.safetensors"))
    save_file({"z": torch.ones(1)}, str(tmp_path / "b.safetensors"))
    with pytest.raises(CheckpointError, match=r"b.safetensors lacks the tensor 'y' that the index says it holds$"):
        read_state(tmp_path)
    index.write_text("{")
    with pytest.raises(CheckpointError, match=r"index.json cannot be read as JSON: "):
        read_state(tmp_path)


def test_no_weights(tmp_path):
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"holds no model.safetensors \(nor .*\); other formats are not read$"):
        read_state(tmp_path)
    with pytest.raises(CheckpointError, match=r"does not exist$"):
        read_state(tmp_path / "nowhere")


def test_the_first_difference_is_named():
    compare_states(STATE, dict(STATE))
    with pytest.raises(CheckpointError, match=r"^tensor 'layer.3' is in A but not in B$"):
        compare_states(STATE, {name: value for name, value in STATE.items() if name != "layer.3"})
    with pytest.raises(CheckpointError, match=r"^tensor 'norm' is in the second but not in the first$"):
        compare_states(STATE, {**STATE, "norm": torch.ones(1)}, ("the first", "the second"))
    with pytest.raises(CheckpointError, match=r"^tensor 'layer.0' has shape \(3, 5\) in A but \(5, 3\) in B$"):
        compare_states(STATE, {**STATE, "layer.0": torch.ones(5, 3)})
