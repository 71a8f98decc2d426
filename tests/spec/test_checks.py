import pytest

from symgraph.algebra.groups import Group
from symgraph.spec.checks import InconsistentSpecError, check
from symgraph.spec.model import Absorption, Approximate, Block, Scale, Shift, ShiftTerm, Space, Target, Tensor, View
from tests.spec.samples import MODELS, document, whole

POSITIVE, REAL, SIGN = (Scale(name="s", kind=kind) for kind in ("positive", "real", "sign"))


def space(name="a", size=3, group="permutation", **more):
    return Space(name=name, size=size, group=group, **more)


def tensor(*axes, name="t", shape=None, **more):
    return Tensor(name=name, shape=tuple(shape or (3,) * len(axes)), axes=axes, **more)


def problems(spaces=(), tensors=(), **sections):
    with pytest.raises(InconsistentSpecError) as error:
        check(document(spaces, tensors, **sections))
    return list(error.value.problems)


@pytest.mark.parametrize("name", MODELS)
def test_consistent_specs_pass(name):
    check(MODELS[name]()[0])


@pytest.mark.parametrize(
    ("spaces", "tensors", "message"),
    [
        ([], [tensor("a")], "tensor 't': axis 0: unknown space 'a'"),
        ([space(), space()], [], "space 'a' is typed twice"),
        ([], [tensor("3"), tensor("3")], "tensor 't' is typed twice"),
        ([], [tensor("3"), tensor("3", name="u", aliases=("t",))], "tensor 't' is typed twice"),
        ([space()], [tensor("a a")], "tensor 't': axis 0: the word 'a a' has 9 indices, but the size is 3"),
        ([], [tensor("3", "3", shape=(3,))], "tensor 't': 2 axes are typed, but the shape [3] has 1"),
        ([space()], [tensor("a (")], "tensor 't': axis 0: axis word 'a (': expected a space, found 'the end'"),
        ([space()], [tensor("a[s]")], "tensor 't': axis 0: space 'a' has no scale 's'"),
        ([space()], [tensor("3", scale="a")], "tensor 't': scale: the word 'a' has 3 indices, but the size is 1"),
        ([space(per=("b",))], [], "space 'a': depends on the unknown space 'b'"),
        ([space(per=("a",))], [], "space 'a': depends on itself"),
        ([space(group="orthogonal", name="b"), space(per=("b",))], [],
         "space 'a': depends on 'b', whose indices are mixed by a matrix group"),
        ([space(), space("b", per=("a",)), space("c", per=("b",))], [],
         "space 'c': depends on 'b', so it has to depend on 'a' too"),
        ([space(), space("b", per=("a",))], [tensor("b")],
         "tensor 't': space 'b' depends on 'a', which does not stand on the same tensor"),
        ([space(), space("b", per=("a",))], [tensor("a + b", shape=(6,))],
         "tensor 't': space 'b' depends on 'a', which does not stand on the same tensor"),
        ([space(), space("b", per=("a",))], [tensor("a", "a", "b")],
         "tensor 't': space 'b' depends on 'a', which stands on several axes of the same tensor"),
    ],
)  # fmt: skip
def test_words_and_dependence(spaces, tensors, message):
    assert problems(spaces, tensors) == [message]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scales": (POSITIVE,)}, "a permutation group has no scale of kind 'positive'"),
        ({"group": "orthogonal", "scales": (SIGN,)}, "a orthogonal group has no scale of kind 'sign'"),
        ({"group": "positive_monomial", "scales": (REAL,)}, "a positive_monomial group has no scale of kind 'real'"),
        ({"group": "signed_permutation"}, "a signed_permutation group needs a scale"),
        ({"group": "diagonal", "scales": (REAL, REAL)}, "scale 's' is typed twice"),
        ({"blocks": (Block(field="real", coordinates=((0,),)),)}, "a permutation group has no blocks"),
        ({"group": "commutant", "blocks": (Block(field="real", coordinates=((0, 1),)),)},
         "a real block needs single indices"),
        ({"group": "commutant", "blocks": (Block(field="complex", coordinates=((0,),)),)},
         "a complex block needs pairs (re, im)"),
        ({"group": "commutant", "blocks": (Block(field="complex", coordinates=((0, 1),)),
                                           Block(field="real", coordinates=((1,),)))},
         "block coordinates overlap at 1"),
        ({"group": "commutant", "blocks": (Block(field="real", coordinates=((3,),)),)},
         "block coordinates leave the range 0..2"),
        ({"group": "diagonal", "scales": (REAL,), "partition": ((0, 1), (1, 2))},
         "classes of the partition overlap at 1"),
        ({"group": "diagonal", "scales": (REAL,), "partition": ((0, 3),)},
         "classes of the partition leave the range 0..2"),
        ({"group": "diagonal", "scales": (REAL,), "partition": ((0,), ())}, "a class of the partition is empty"),
        ({"group": "monomial", "scales": (REAL,), "partition": ((0, 1), (2,))},
         "where indices are permuted, a partition has to be one class of all of them"),
    ],
)  # fmt: skip
def test_groups(options, message):
    assert problems([space(**options)]) == [f"space 'a': {message}"]


@pytest.mark.parametrize("group", list(Group))
def test_every_group_has_a_consistent_space(group):
    kinds = {"diagonal": REAL, "signed_permutation": SIGN, "positive_monomial": POSITIVE, "monomial": REAL}
    check(document([space(group=group.value, scales=(kinds[group.value],) if group.value in kinds else ())], []))


def absorb(source="g", multiplier=1.0, **target):
    options = {"tensor": "w", "axis": 0, "power": 1} | target
    return Absorption(source=source, direction="readers", multiplier=multiplier, targets=(Target(**options),))


@pytest.mark.parametrize(
    ("absorption", "message"),
    [
        (absorb(source="x"), "absorption of 'x': the source is not a typed tensor"),
        (absorb(tensor="x"), "absorption of 'g': no tensor 'x'"),
        (absorb(axis=2), "absorption of 'g': tensor 'w' of shape [3, 5] has no axis 2"),
        (absorb(outer=2), "absorption of 'g': the gain stands on indices 0..5 of axis 0 of 'w', which has 3"),
        (absorb(axis=1, start=3), "absorption of 'g': the gain stands on indices 3..5 of axis 1 of 'w', which has 5"),
        (absorb(multiplier=0.0), "absorption of 'g': the gain 0.0 * source + 0.0 cannot be made one"),
    ],
)
def test_absorptions(absorption, message):
    assert problems(
        [], [tensor("3", name="g"), tensor("3", "5", name="w", shape=(3, 5))], absorptions=(absorption,)
    ) == [message]


def shift(target=None, equation="i->i", reads=(), shape=(3,), dimension=3):
    term = ShiftTerm(target=target or whole("g", 3), equation=equation, reads=reads)
    return Shift(name="u", shape=shape, terms=(term,), kind="bias", dimension=dimension)


@pytest.mark.parametrize(
    ("one", "message"),
    [
        (shift(whole("x", 3)), "shift 'u': no tensor 'x'"),
        (shift(whole("g", 4)), "shift 'u': tensor 'g' cannot be viewed as [4]"),
        (shift(View(tensor="g", shape=(3,), window=((0, 4),))), "shift 'u': the window [[0, 4]] leaves [3]"),
        (shift(equation="ij->i"), "shift 'u': the equation 'ij->i' does not fit its operands"),
        (shift(equation="i->"), "shift 'u': the equation 'i->' gives [], the target is [3]"),
        (shift(shape=(2,), dimension=2), "shift 'u': the equation 'i->i' gives [2], the target is [3]"),
        (shift(dimension=4), "shift 'u': dimension 4 of a value with 3 entries"),
        (shift(equation="i,i->i", reads=(whole("g", 3),)), "shift 'u': tensor 'g' is both read and changed"),
    ],
)
def test_shifts(one, message):
    assert problems([], [tensor("3", name="g")], shifts=(one,)) == [message]


def test_approximate_names_tensors():
    one = Approximate(name="loud", condition="eps = 0", weights={"x": 1})
    assert problems(approximate=(one,)) == ["approximate 'loud': no tensor 'x'"]


def test_all_problems_are_reported_together():
    with pytest.raises(InconsistentSpecError) as error:
        check(document([space(per=("b",))], [tensor("c"), tensor("4", name="u")]))
    assert str(error.value) == "space 'a': depends on the unknown space 'b' (and 2 more)"
    assert len(error.value.problems) == 3
