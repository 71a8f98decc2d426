import pytest
import torch

from symgraph.errors import CheckpointError
from symgraph.spec import canonicalize, dimension_of, tangents
from symgraph.spec.model import Absorption, Space, Target, Tensor
from tests.spec.samples import MODELS, document, experts, gained_linear, grouped_attention, weights


def jacobian(spec, run, canon, shape):
    """d outputs / d parameters at ``canon``, for more outputs than parameters; columns in the order of the spec."""
    names = [tensor.name for tensor in spec.tensors]
    sizes = [canon[name].numel() for name in names]
    x = torch.randn((60, *shape[1:]), generator=torch.Generator().manual_seed(5), dtype=torch.float64)

    def outputs(flat):
        parts = dict(zip(names, flat.split(sizes), strict=True))
        values = {name: part.reshape(canon[name].shape) for name, part in parts.items()}
        aliases = {alias: values[tensor.name] for tensor in spec.tensors for alias in tensor.aliases}
        return run(values | aliases, x).reshape(-1)

    return torch.func.jacrev(outputs)(torch.cat([canon[name].reshape(-1) for name in names]))


@pytest.mark.parametrize("name", MODELS)
def test_tangents_span_the_null_space_of_the_jacobian(name):
    spec, run, shape = MODELS[name]()
    canon = canonicalize(spec, weights(spec))
    directions = tangents(spec, canon)
    j = jacobian(spec, run, canon, shape)
    assert (j @ directions).abs().max() < 1e-10 * (1 + j.abs().max())
    nullity = j.shape[1] - torch.linalg.matrix_rank(j, rtol=1e-9)
    assert torch.linalg.matrix_rank(directions) == nullity
    absorbed = sum(canon[one.source].numel() for one in spec.absorptions)
    expected = sum(dimension_of(space, spec) for space in spec.spaces) + sum(one.dimension for one in spec.shifts)
    assert directions.shape == (j.shape[1], expected + absorbed)


def test_rows_follow_the_given_order():
    spec, _, _ = gained_linear()
    canon = canonicalize(spec, weights(spec))
    natural = tangents(spec, canon)
    starts, start = {}, 0
    for tensor in spec.tensors:
        starts[tensor.name], start = start, start + tensor.numel
    order = ["b2", "head.W2", "g"]
    rows = [starts[name] + k for name, size in (("b2", 4), ("W2", 8), ("g", 3)) for k in range(size)]
    assert torch.equal(tangents(spec, canon, order), natural[rows])


def test_a_parameter_without_a_type_has_zero_rows():
    spec, _, _ = gained_linear()
    canon = canonicalize(spec, weights(spec)) | {"free": torch.ones(3)}
    assert not tangents(spec, canon, ["free"]).any()


def test_buffers_have_no_rows():
    spec, _, _ = gained_linear()
    tensors = [t.model_copy(update={"kind": "buffer"}) if t.name == "b2" else t for t in spec.tensors]
    spec = spec.model_copy(update={"tensors": tuple(tensors)})
    assert len(tangents(spec, canonicalize(spec, weights(spec)))) == sum(t.numel for t in tensors) - 4


def test_a_shift_with_fewer_dimensions_gives_fewer_columns():
    spec, _, _ = gained_linear()
    shift = spec.shifts[0].model_copy(update={"dimension": 1})
    canon = canonicalize(spec, weights(spec))
    fewer = tangents(spec.model_copy(update={"shifts": (shift,)}), canon)
    assert fewer.shape[1] == tangents(spec, canon).shape[1] - 1


def test_dimension_counts_every_index_of_the_outer_spaces():
    spec, _, _ = grouped_attention()
    assert {space.name: dimension_of(space, spec) for space in spec.spaces} == {"kv": 0, "query": 0, "qk": 18, "ov": 8}
    spec, _, _ = experts()
    assert dimension_of(spec.space("hidden"), spec) == 12


def gain(power=1, **options):
    target = Target(tensor="W", axis=1, power=power, **options)
    tensors = [Tensor(name="g", shape=(2,), axes=("2",)), Tensor(name="W", shape=(3, 12), axes=("3", "12"))]
    return document([], tensors, absorptions=(Absorption(source="g", direction="readers", targets=(target,)),))


def test_a_gain_is_tiled_and_repeated():
    state = {"g": torch.tensor([2.0, 3.0]), "W": torch.ones(3, 12)}
    canon = canonicalize(gain(outer=2, inner=2, start=1), state)
    assert canon["W"][0].tolist() == [1, 2, 2, 3, 3, 2, 2, 3, 3, 1, 1, 1]
    assert canon["g"].tolist() == [1, 1]
    assert state["g"].tolist() == [2, 3]


def test_multiplier_and_offset_set_the_neutral_value():
    spec = gain()
    absorption = spec.absorptions[0].model_copy(update={"multiplier": 0.5, "offset": 2.0})
    canon = canonicalize(
        spec.model_copy(update={"absorptions": (absorption,)}),
        {"g": torch.tensor([2.0, 4.0]), "W": torch.ones(3, 12, dtype=torch.bfloat16)},
    )
    assert canon["g"].tolist() == [-2, -2]
    assert canon["W"][0, :3].tolist() == [3, 4, 1]
    assert canon["W"].dtype is torch.bfloat16


def test_division_by_a_gain_of_zero():
    state = {"g": torch.tensor([2.0, 0.0]), "W": torch.ones(3, 12)}
    with pytest.raises(CheckpointError, match=r"^tensor 'W' at \[0, 1\] would be divided by a gain that is zero$"):
        canonicalize(gain(power=-1), state)
    state["W"][:, 1] = 0
    canon = canonicalize(gain(power=-1), state)
    assert canon["W"][0, :3].tolist() == [0.5, 0, 1]


def test_chains_of_absorptions():
    """A gain that goes into a gain that goes into a matrix."""
    spec = gain()
    tensors = (*spec.tensors, Tensor(name="h", shape=(2,), axes=("2",)))
    into = Absorption(source="h", direction="readers", targets=(Target(tensor="g", axis=0, power=1),))
    spec = spec.model_copy(update={"tensors": tensors, "absorptions": (into, *spec.absorptions)})
    state = {"h": torch.tensor([5.0, 7.0]), "g": torch.tensor([2.0, 3.0]), "W": torch.ones(3, 12)}
    canon = canonicalize(spec, state)
    assert canon["W"][0, :3].tolist() == [10, 21, 1]
    assert canon["g"].tolist() == canon["h"].tolist() == [1, 1]


def test_canonical_form_keeps_all_names():
    spec, _, _ = gained_linear()
    state = weights(spec) | {"other": torch.ones(1)}
    canon = canonicalize(spec, state)
    assert canon.keys() == state.keys()
    assert canon["other"] is state["other"]
    again = canonicalize(spec, canon)
    assert all(torch.equal(again[name], canon[name]) for name in canon)


def test_a_buffer_that_nothing_moves_may_be_missing():
    spec, _, _ = gained_linear()
    table = Tensor(name="table", shape=(3,), axes=("3",), kind="buffer")
    moved = Tensor(name="moved", shape=(2,), axes=("mid",), kind="buffer")
    state = weights(spec)
    canonicalize(spec.model_copy(update={"tensors": (*spec.tensors, table)}), state)
    with pytest.raises(CheckpointError, match="'moved' of the spec is missing"):
        canonicalize(spec.model_copy(update={"tensors": (*spec.tensors, moved)}), state)


def test_commutant_and_orthogonal_directions():
    spaces = [
        Space(name="residual", size=3, group="orthogonal"),
        Space(name="mean", size=3, group="orthogonal_fixing_ones"),
    ]
    spec = document(spaces, [Tensor(name="a", shape=(3, 3), axes=("residual", "mean"))])
    canon = weights(spec)
    directions = tangents(spec, canon)
    assert directions.shape == (9, 4)
    norm = (directions * canon["a"].reshape(-1, 1)).sum(0)
    assert norm.abs().max() < 1e-12
