"""References to models: each kind resolves, and each fault is one line that says what to do."""

import json

import pytest
import torch
import transformers

from symgraph.errors import CheckpointError, ModelError
from symgraph.frontend.checkpoint import read_state, write_checkpoint
from symgraph.frontend.models import load_model

CONFIG = transformers.LlamaConfig(
    hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12, vocab_size=31,
    tie_word_embeddings=False,
)  # fmt: skip

FACTORIES = """
import torch
from beside import width
def good(): return torch.nn.Linear(width, 2), {"input": torch.ones(1, width)}
def bad(): raise ValueError("no data\\nat all")
def single(): return torch.nn.Linear(2, 2)
def nan():
    layer = torch.nn.Linear(2, 2)
    torch.nn.init.constant_(layer.bias, float("nan"))
    return layer, {}
number = 3
"""


@pytest.fixture
def checkpoint(tmp_path):
    torch.manual_seed(0)
    transformers.LlamaForCausalLM(CONFIG).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def altered(tmp_path, checkpoint):
    """Writes the checkpoint with other tensors or another configuration."""

    def write(change=dict, **config):
        return write_checkpoint(tmp_path / "altered", change(dict(read_state(checkpoint))), checkpoint, config)

    return write


def test_a_checkpoint_with_and_without_its_weights(checkpoint):
    loaded = load_model(checkpoint)
    assert loaded.has_weights
    assert not loaded.module.training
    assert loaded.path == checkpoint
    assert {name: tuple(value.shape) for name, value in loaded.kwargs.items()} == {"input_ids": (2, 8)}
    assert torch.equal(loaded.module.lm_head.weight, read_state(checkpoint)["lm_head.weight"])
    for structure in (load_model(checkpoint, weights=False), load_model(checkpoint / "config.json")):
        assert type(structure.module) is type(loaded.module)
        assert not structure.has_weights
        assert all(value.is_meta for value in structure.module.parameters())


def test_the_example_is_the_same_every_time(checkpoint):
    first, second = (load_model(checkpoint, weights=False).kwargs["input_ids"] for _ in range(2))
    assert torch.equal(first, second)
    assert first.max() < 31


@pytest.mark.parametrize(
    ("model_type", "options", "shapes"),
    [
        ("vit", {"image_size": 12, "patch_size": 4, "num_channels": 1}, {"pixel_values": (2, 1, 12, 12)}),
        ("t5", {"d_model": 8, "num_layers": 1}, {"input_ids": (2, 8), "decoder_input_ids": (2, 6)}),
        ("bert", {"hidden_size": 12, "num_hidden_layers": 1}, {"input_ids": (2, 8)}),
        ("resnet", {"embedding_size": 8, "hidden_sizes": [8, 8], "depths": [1, 1]}, {"pixel_values": (2, 3, 64, 64)}),
        ("wav2vec2", {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2},
         {"input_values": (2, 4000)}),
        ("whisper", {"d_model": 12, "encoder_layers": 1, "decoder_layers": 1, "max_source_positions": 20},
         {"input_features": (2, 80, 40), "decoder_input_ids": (2, 6)}),
        ("clip", {}, {"input_ids": (2, 8), "pixel_values": (2, 3, 224, 224)}),
    ],
)  # fmt: skip
def test_examples_follow_the_configuration(tmp_path, model_type, options, shapes):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type, **options}))
    kwargs = load_model(tmp_path / "config.json").kwargs
    assert {name: tuple(value.shape) for name, value in kwargs.items()} == shapes


def test_a_model_type_is_its_default_structure():
    loaded = load_model("gpt2")
    assert not loaded.has_weights
    assert loaded.module.lm_head.weight is loaded.module.transformer.wte.weight


def test_a_directory_without_a_configuration(tmp_path):
    message = r"has no config.json: give a checkpoint directory, a config.json or file.py:factory$"
    with pytest.raises(ModelError, match=message):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("ref", "message"),
    [
        ("lama", "transformers knows no model type 'lama': did you mean 'llama'?"),
        ("qqqqqq", "transformers knows no model type 'qqqqqq': give a checkpoint directory or file.py:factory"),
        ("some/where", "some/where does not exist (models are local: nothing is downloaded)"),
        ("nothing.py:f", "nothing.py does not exist"),
        ("no.such.module:f", "there is no file or module 'no.such.module'"),
        ("json:nothing", "json defines no function 'nothing'"),
    ],
)
def test_references_that_lead_nowhere(ref, message):
    with pytest.raises(ModelError) as caught:
        load_model(ref)
    assert str(caught.value) == message


def test_a_tensor_that_is_missing(altered, capfd):
    path = altered(lambda state: {name: value for name, value in state.items() if "1.mlp.up" not in name})
    with pytest.raises(CheckpointError) as caught:
        load_model(path)
    name = "model.layers.1.mlp.up_proj.weight"
    assert str(caught.value) == f"{path}: tensor '{name}' is missing, and LlamaForCausalLM needs it"
    assert capfd.readouterr().err == ""


def test_a_tied_tensor_is_not_missing(altered):
    def without_head(state):
        return {name: value for name, value in state.items() if name != "lm_head.weight"}

    module = load_model(altered(without_head, tie_word_embeddings=True)).module
    assert module.lm_head.weight is module.model.embed_tokens.weight


def test_a_tensor_of_another_shape(altered):
    path = altered(vocab_size=40)
    with pytest.raises(CheckpointError) as caught:
        load_model(path)
    assert str(caught.value) == f"{path}: tensor 'lm_head.weight' has shape (31, 8), the model needs (40, 8)"


@pytest.mark.parametrize(("value", "kind"), [(float("nan"), "NaN"), (float("inf"), "infinite")])
def test_a_tensor_that_is_not_finite(altered, value, kind):
    path = altered(lambda state: {**state, "model.norm.weight": torch.full((8,), value)})
    with pytest.raises(CheckpointError, match=rf"^{path}: tensor 'model.norm.weight' has {kind} entries$"):
        load_model(path)


def test_a_tensor_too_many_is_told(altered):
    assert load_model(altered(lambda state: {**state, "extra": torch.ones(1)})).unused == ("extra",)


def test_a_checkpoint_that_is_cut_short(checkpoint):
    path = checkpoint / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match=rf"^{path} is cut short or no safetensors file: "):
        load_model(checkpoint)


def test_pickles_are_not_read(checkpoint):
    (checkpoint / "model.safetensors").rename(checkpoint / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"holds no model.safetensors .*; other formats are not read$"):
        load_model(checkpoint)


@pytest.fixture
def factories(tmp_path):
    (tmp_path / "beside.py").write_text("width = 3\n")
    (tmp_path / "made.py").write_text(FACTORIES)
    return tmp_path / "made.py"


def test_a_factory(factories):
    loaded = load_model(f"{factories}:good")
    assert loaded.has_weights
    assert loaded.kwargs["input"].shape == (1, 3)
    assert load_model(f"{factories}:good", weights=False).module.weight.is_meta


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (":bad", "{}:bad raised ValueError: no data"),
        (":single", "{}:single returned Linear, not a pair (module, kwargs)"),
        (":number", "{} defines no function 'number'"),
        ("", "{0} is a file: write {0}:factory, or give a checkpoint directory or a config.json"),
    ],
)
def test_factories_that_fail(factories, name, message):
    with pytest.raises(ModelError) as caught:
        load_model(f"{factories}{name}")
    assert str(caught.value) == message.format(factories)


def test_a_factory_with_bad_weights(factories):
    with pytest.raises(CheckpointError, match=r"made.py:nan: tensor 'bias' has NaN entries$"):
        load_model(f"{factories}:nan")
