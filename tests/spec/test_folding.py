import pytest
from hypothesis import given
from hypothesis import strategies as st

from symgraph.errors import SpecError
from symgraph.spec.folding import fold, unfold

names = st.text(alphabet='ab.12{}#i+ for-"\\é\n', max_size=12)
leaves = st.none() | st.booleans() | st.integers(-3, 300) | st.floats(allow_nan=False, allow_infinity=False) | names
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=12) | st.dictionaries(names, inner, max_size=12), max_leaves=60
)


@given(values)
def test_unfold_inverts_fold(value):
    assert unfold(fold(value)) == value


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 3), st.integers(1, 4), st.integers(0, 9))
def test_nested_repetition_is_exact(layers, experts, shift, stride, first):
    items = [
        {"name": f"layers.{first + stride * i}.experts.{j}.w{k}", "next": f"norm.{i + shift}", "size": 7}
        for i in range(layers)
        for j in range(experts)
        for k in "ab"
    ]
    assert unfold(fold(items)) == items
    assert list(map(str, unfold(fold({str(item): 1 for item in items})))) == list(map(str, items))


def test_layers_are_written_once():
    items = [{"name": f"layers.{i}.{part}", "reads": f"norm.{i + 1}"} for i in range(126) for part in ("q", "k")]
    body = [{"name": "layers.{i}.q", "reads": "norm.{i+1}"}, {"name": "layers.{i}.k", "reads": "norm.{i+1}"}]
    assert fold(items) == [{"for i in 0..125": body}]


def test_experts_within_layers_are_loops_within_loops():
    items = [{"name": f"layers.{i}.experts.{j}"} for i in range(4) for j in range(8)]
    assert fold(items) == [{"for j in 0..3": [{"for i in 0..7": [{"name": "layers.{j}.experts.{i}"}]}]}]


def test_alternating_layers():
    items = [{"name": f"layers.{i}", "window": "all" if i % 2 else "near"} for i in range(8)]
    body = [{"name": "layers.{2i}", "window": "near"}, {"name": "layers.{2i+1}", "window": "all"}]
    assert fold(items) == [{"for i in 0..3": body}]


def test_numbers_fold_where_no_string_varies():
    items = [{"field": "complex", "coordinates": [[k, k + 64]]} for k in range(64)]
    assert fold(items) == [{"for i in 0..63": [{"field": "complex", "coordinates": [["{#i}", "{#i+64}"]]}]}]
    assert unfold(fold(items)) == items


def test_two_loops_over_the_same_range_in_one_object():
    entries = {f"{kind}.{i}": 1 for kind in "ab" for i in range(3)}
    assert fold(entries) == {"for i in 0..2": {"a.{i}": 1}, "for i in 0..2 (2)": {"b.{i}": 1}}
    assert list(unfold(fold(entries))) == list(entries)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([{"for i in 0..x": []}], "'for i in 0..x' is not a loop: expected 'for i in 0..7', with an index of its own"),
        ([{"for i in 0..2": 3}], "the loop 'for i in 0..2' has to hold a list here"),
        ({"for i in 0..2": 3}, "the loop 'for i in 0..2' has to hold an object here"),
        ([{"for i in 0..2": ["{j}"]}], "'{j}' stands outside of a loop over j"),
        (["{what}"], "'{what}' has a brace that is neither an index nor doubled"),
        ({"for i in 0..2": {"a": 1}}, "'a' is written twice"),
        ([{"for i in 0..9999999": ["a"]}], "the loops make more than 1000000 items"),
    ],
)
def test_malformed_loops_are_refused(value, message):
    with pytest.raises(SpecError) as error:
        unfold(value)
    assert str(error.value) == message
