import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from symgraph.errors import SpecError
from symgraph.spec import load_spec, save_spec
from symgraph.spec.codec import dumps, loads
from symgraph.spec.model import (
    Absorption,
    Approximate,
    Block,
    Dimension,
    Fact,
    Identity,
    Pin,
    Scale,
    Space,
    SymmetrySpec,
    Target,
    Tensor,
)
from tests.spec.samples import MODELS, relu_mlp


def layered(layers, experts=0, prefix="model.layers"):
    """A transformer's spec in outline, with what repeats in real ones: facts, absorptions, pins, dimensions."""
    spaces = [Space(name="residual", size=8, group="orthogonal", provenance=tuple(facts(layers, prefix)))]
    tensors = [Tensor(name="embed", shape=(9, 8), axes=("9", "residual"))]
    absorptions, pins = [], []
    planes = tuple(Block(field="complex", coordinates=((k, k + 8),)) for k in range(8))
    for i in range(layers):
        layer = f"{prefix}.{i}"
        spaces += [
            Space(name=f"{layer}.head", size=2, group="permutation"),
            Space(name=f"{layer}.qk", size=16, group="commutant", per=(f"{layer}.head",), blocks=planes),
        ]
        word = f"{layer}.head {layer}.qk"
        tensors += [
            Tensor(name=f"{layer}.norm", shape=(8,), axes=("8",)),
            Tensor(name=f"{layer}.q", shape=(32, 8), axes=(word + "'", "residual'")),
            Tensor(name=f"{layer}.k", shape=(32, 8), axes=(word, "residual'")),
        ]
        for j in range(experts):
            scales = (Scale(name="s", kind="real"),)
            spaces.append(Space(name=f"{layer}.experts.{j}", size=3, group="monomial", scales=scales))
            axes = (f"{layer}.experts.{j}[s]", "residual'")
            tensors.append(Tensor(name=f"{layer}.experts.{j}.up", shape=(3, 8), axes=axes))
        targets = tuple(Target(tensor=f"{layer}.{name}", axis=1, power=1) for name in "qk")
        absorptions.append(Absorption(source=f"{layer}.norm", direction="readers", targets=targets))
        pins.append(Pin(node=f"sort_{i}" if i else "sort", operator="aten.sort", reason="sorted {by} value"))
    by_space = {space.name: 1 for space in spaces}
    small = Approximate(name="loud", condition="eps -> s^2 eps", weights={tensor.name: 1 for tensor in tensors})
    return SymmetrySpec(
        identity=Identity(model="outline", versions={"torch": "2.9"}),
        spaces=tuple(spaces),
        tensors=tuple(tensors),
        absorptions=tuple(absorptions),
        pins=tuple(pins),
        approximate=(small,),
        dimension=Dimension(by_space=by_space, by_kind={"space": len(spaces)}, total=len(spaces)),
    )


def facts(layers, prefix):
    for i in range(layers):
        for line, part in ((71, "norm"), (93, "mlp.norm")):
            yield Fact(
                structure="inner product", operator="aten.pow", source=f"model.py:{line}", module=f"{prefix}.{i}.{part}"
            )


@pytest.mark.parametrize("name", MODELS)
def test_round_trip(name, tmp_path):
    spec = MODELS[name]()[0]
    path = tmp_path / "spec.json"
    save_spec(spec, path)
    assert load_spec(path) == spec
    assert path.read_text() == dumps(load_spec(path))
    assert list(tmp_path.iterdir()) == [path]


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 6), st.integers(0, 5), st.sampled_from(["layers", "h", "{x}.0", "stage.1.block2"]))
def test_layered_round_trip(layers, experts, prefix):
    spec = layered(layers, experts, prefix.replace("{x}", "x"))
    assert loads(dumps(spec)) == spec
    assert list(loads(dumps(spec)).dimension.by_space) == list(spec.dimension.by_space)


def test_a_deep_spec_is_as_long_as_a_shallow_one():
    assert len(dumps(layered(126))) - len(dumps(layered(4))) < 50
    assert len(dumps(layered(126))) < 5_000
    assert len(dumps(layered(60, experts=64))) < 6_000


def test_one_line_per_entry():
    lines = dumps(relu_mlp()[0]).splitlines()
    assert '    {"name": "W1", "shape": [5, 3], "axes": ["hidden[scale]", "3"]},' in lines
    assert '    {"name": "hidden", "size": 5, "group": "positive_monomial", "scales": [' in "\n".join(lines)


def edited(**changes):
    return json.dumps(json.loads(dumps(relu_mlp()[0])) | changes)


HIDDEN = {"name": "hidden", "size": 5, "group": "positive_monomial", "scales": [{"name": "scale", "kind": "positive"}]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "spec: not JSON: Expecting property name enclosed in double quotes (line 1, column 2)"),
        ("[]", "spec: expected a JSON object"),
        (edited(extra=1), "spec: extra: Extra inputs are not permitted"),
        (edited(schema_version=2), "spec: schema_version: Input should be 1"),
        (edited(spaces=[HIDDEN | {"size": "5"}]), "spec: spaces 'hidden', size: Input should be a valid integer"),
        (edited(spaces=[HIDDEN | {"size": 0}]), "spec: spaces 'hidden', size: Input should be greater than 0"),
        (edited(spaces=[HIDDEN | {"grp": "x"}]), "spec: spaces 'hidden', grp: Extra inputs are not permitted"),
        (edited(spaces=[HIDDEN | {"group": "big"}]), "spec: spaces 'hidden', group: "),
        (
            edited(spaces=[HIDDEN | {"scales": [{"name": "scale"}]}]),
            "spec: spaces 'hidden', scales.0.kind: Field required",
        ),
        (edited(dimension={"by_space": {}, "by_kind": {}, "total": float("inf")}), "spec: Infinity is not a number"),
        ('{"a": 1, "a": 2}', "spec: 'a' is written twice"),
        (edited(spaces=[{"for i in 0..1": 3}]), "spec: the loop 'for i in 0..1' has to hold a list here"),
        (edited(spaces=[]), "spec: tensor 'W1': axis 0: unknown space 'hidden' (and 2 more)"),
        ("[" * 100_000, "spec: nested too deeply"),
        ('{"schema_version": ' + "9" * 5000 + "}", "spec: "),
    ],
)
def test_errors_name_the_field_in_one_line(text, message):
    with pytest.raises(SpecError) as error:
        loads(text)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(SpecError, match=r"No such file or directory$"):
        load_spec(tmp_path / "none.json")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe")
    with pytest.raises(SpecError, match="not a text file"):
        load_spec(tmp_path / "bytes.json")
    with pytest.raises(SpecError, match=r"No such file or directory$"):
        save_spec(relu_mlp()[0], tmp_path / "none" / "spec.json")


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "spec.json"
    save_spec(relu_mlp()[0], path)
    before = path.read_bytes()
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        save_spec(layered(2), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
