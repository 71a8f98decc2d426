import pytest
import torch
from safetensors.torch import save_file

from symgraph.errors import CheckpointError, SpecError
from symgraph.spec import Transform, canonicalize, identity_transform, load_spec, sample, save_spec
from symgraph.spec.model import Tensor
from tests.spec.samples import MODELS, document, gained_linear, grouped_attention, relu_mlp, weights

TOLERANCE = 1e-12


def close(a, b):
    assert a.keys() == b.keys()
    return all((a[name] - b[name]).abs().max() <= TOLERANCE * (1 + b[name].abs().max()) for name in a)


def case(name, seed=0):
    spec, run, shape = MODELS[name]()
    x = torch.randn(shape, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    return spec, run, x, weights(spec, seed)


@pytest.mark.parametrize("name", MODELS)
def test_the_function_is_preserved(name):
    spec, run, x, state = case(name)
    canon = canonicalize(spec, state)
    expected = run(state, x)
    assert (run(canon, x) - expected).abs().max() < TOLERANCE
    for seed in range(3):
        moved = sample(spec, seed=seed).apply(canon)
        assert (run(moved, x) - expected).abs().max() < TOLERANCE * (1 + expected.abs().max())
        assert any((moved[key] - canon[key]).abs().max() > 1e-2 for key in canon)


@pytest.mark.parametrize("name", MODELS)
def test_each_space_alone_preserves_the_function(name):
    spec, run, x, state = case(name)
    canon = canonicalize(spec, state)
    for part in (*spec.spaces, *spec.shifts):
        moved = sample(spec, seed=1, only=[part.name]).apply(canon)
        assert (run(moved, x) - run(state, x)).abs().max() < TOLERANCE * 100


@pytest.mark.parametrize("name", MODELS)
def test_group_laws(name):
    spec, _, _, state = case(name)
    a, b, c = (sample(spec, seed=seed) for seed in range(3))
    assert close(a.compose(b).apply(state), a.apply(b.apply(state)))
    assert close(a.compose(b).compose(c).apply(state), a.compose(b.compose(c)).apply(state))
    assert close(a.inverse().apply(a.apply(state)), state)
    assert close(a.compose(a.inverse()).apply(state), state)
    mixed = a.compose(b.inverse()).compose(c)
    assert close(mixed.inverse().apply(mixed.apply(state)), state)
    assert close(identity_transform(spec).apply(state), state)
    assert close(identity_transform(spec).compose(a).apply(state), a.apply(state))


def test_a_negative_control():
    """A wrong variance does not preserve the function: the tests above can fail."""
    spec, run, x, state = case("grouped_attention")
    tensors = [t.model_copy(update={"axes": ("kv query qk", "5")}) if t.name == "q" else t for t in spec.tensors]
    wrong = spec.model_copy(update={"tensors": tuple(tensors)})
    assert (run(sample(wrong).apply(state), x) - run(state, x)).abs().max() > 1e-2


def test_nothing_is_mutated_and_unknown_tensors_pass():
    spec, _, _, state = case("gained_linear")
    state["other"] = torch.ones(2)
    before = {name: value.clone() for name, value in state.items()}
    moved = sample(spec).apply(state)
    assert moved["other"] is state["other"]
    assert all(torch.equal(state[name], before[name]) for name in state)


def test_aliases_share_the_result():
    spec, _, _, state = case("gained_linear")
    moved = sample(spec).apply(state)
    assert moved["W2"] is moved["head.W2"]
    del state["W2"]
    assert sample(spec).apply(state).keys() == state.keys()


def test_tied_tensors_that_differ_are_refused():
    spec, _, _, state = case("gained_linear")
    sample(spec).apply(state | {"W2": state["W2"].clone()})
    with pytest.raises(CheckpointError, match=r"^tensors 'W2' and 'head\.W2' are one in the spec, but differ$"):
        sample(spec).apply(state | {"W2": state["W2"] + 1})


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_dtypes_are_kept_and_cast_last(dtype):
    spec, _, _, _ = case("grouped_attention")
    state = weights(spec, dtype=dtype)
    moved = sample(spec).apply(state)
    exact = sample(spec).apply({name: value.double() for name, value in state.items()})
    for name in state:
        assert moved[name].dtype is dtype
        error = (moved[name].double() - exact[name]).abs().max()
        assert error <= 2 * torch.finfo(dtype).eps * (1 + exact[name].abs().max())


def test_integer_buffers_are_permuted():
    spec, _, _ = relu_mlp()
    counts = Tensor(name="counts", shape=(5,), axes=("hidden",), kind="buffer")
    spec = spec.model_copy(update={"tensors": (*spec.tensors, counts)})
    state = weights(spec) | {"counts": torch.arange(5)}
    transform = sample(spec)
    assert torch.equal(transform.apply(state)["counts"], transform.elements["hidden"].permutation)


def test_the_whole_tensor_scale():
    from symgraph.spec.model import Scale, Space

    space = Space(name="loud", size=1, group="diagonal", scales=(Scale(name="s", kind="real"),))
    spec = document([space], [Tensor(name="a", shape=(2, 3), axes=("2", "3"), scale="loud[s^2]")])
    transform, state = sample(spec), weights(spec)
    factor = (2 * transform.elements["loud"].log["s"]).exp()
    assert torch.allclose(transform.apply(state)["a"], factor * state["a"])


def test_missing_and_misshapen_tensors():
    spec, _, _, state = case("relu_mlp")
    with pytest.raises(CheckpointError, match=r"^tensor 'b1' of the spec is missing from the state dict$"):
        sample(spec).apply({name: value for name, value in state.items() if name != "b1"})
    message = r"^tensor 'b1' has shape \(4,\), but the spec expects \(5,\): is this the checkpoint of another model\?$"
    with pytest.raises(CheckpointError, match=message):
        sample(spec).apply(state | {"b1": torch.zeros(4)})


@pytest.mark.parametrize("name", MODELS)
def test_save_and_load(name, tmp_path):
    spec, _, _, state = case(name)
    save_spec(spec, tmp_path / "spec.json")
    transform = sample(spec).compose(sample(spec, seed=1).inverse())
    transform.save(tmp_path / "t.safetensors")
    loaded = Transform.load(tmp_path / "t.safetensors", load_spec(tmp_path / "spec.json"))
    assert loaded.digest == transform.digest
    assert all(torch.equal(value, transform.apply(state)[key]) for key, value in loaded.apply(state).items())


def test_loading_refuses_what_is_no_transform(tmp_path):
    path = tmp_path / "t.safetensors"
    path.write_bytes(b"junk")
    with pytest.raises(SpecError, match="not a readable transform"):
        Transform.load(path)
    save_file({"a": torch.zeros(1)}, path)
    with pytest.raises(SpecError, match="not a transform"):
        Transform.load(path)
    sample(relu_mlp()[0]).save(path)
    with pytest.raises(SpecError, match="this transform belongs to another spec"):
        Transform.load(path, gained_linear()[0])


def test_transforms_of_different_specs_do_not_compose():
    with pytest.raises(SpecError, match="two different specs"):
        sample(relu_mlp()[0]).compose(sample(gained_linear()[0]))


def test_sampling_is_reproducible_and_independent_of_the_selection():
    spec, _, _ = grouped_attention()
    whole, part = sample(spec, seed=3).elements, sample(spec, seed=3, only=["qk"]).elements
    assert list(part) == ["qk"]
    assert torch.equal(whole["qk"].matrix, part["qk"].matrix)
    assert not torch.equal(whole["qk"].matrix, sample(spec, seed=4).elements["qk"].matrix)
    with pytest.raises(SpecError, match=r"^the spec has no space or shift 'nothing' to sample$"):
        sample(spec, only=["nothing"])
