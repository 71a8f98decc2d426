import io

import pytest
from rich.console import Console

from symgraph.errors import SpecError
from symgraph.spec.model import Block, Fact, Scale, Space, Tensor
from symgraph.spec.render import explain_text, group_text, spaces_table
from tests.spec.samples import document, experts, gained_linear, grouped_attention
from tests.spec.test_codec import layered


def shown(spec):
    console = Console(file=io.StringIO(), width=100)
    console.print(spaces_table(spec))
    return console.file.getvalue()


def test_layers_are_one_row_and_all_fits():
    text = shown(layered(126, experts=64))
    assert [line.strip() for line in text.splitlines() if line.strip()] == [
        "outline",
        "space                                   group                   per    size        dim    tensors",
        "─────────────────────────────────────────────────────────────────────────────────────────────────",
        "residual                                O(8)                              8         28       8317",
        "model.layers.{0..125}.head              S_2                               2          0    126 x 2",
        "model.layers.{0..125}.qk                (GL(1, C)^8)^2 wr S_2   head     16   126 x 32    126 x 2",
        "model.layers.{0..125}.experts.{0..63}   S_3, s R*                         3   8064 x 3   8064 x 1",
        "dimension 8,317, 126 absorptions, 126 pins",
    ]
    assert max(map(len, text.splitlines())) <= 100


SCALES = {kind: Scale(name=kind[0], kind=kind) for kind in ("positive", "real", "sign")}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"group": "orthogonal"}, "O(6)"),
        ({"group": "orthogonal_fixing_ones"}, "O(5) fixing 1"),
        ({"group": "general_linear"}, "GL(6)"),
        ({"group": "general_linear", "per": ("kv",)}, "GL(6)^2 wr S_2"),
        ({"group": "general_linear", "per": ("fixed",)}, "GL(6)^3"),
        ({"group": "general_linear", "per": ("kv", "query")}, "GL(6)^8 wr S_4 wr S_2"),
        ({"group": "trivial"}, "1"),
        ({"group": "permutation"}, "S_6"),
        ({"group": "monomial", "scales": (SCALES["positive"], SCALES["real"])}, "S_6, p R+, r R*"),
        ({"group": "signed_permutation", "scales": (SCALES["sign"],)}, "S_6, s {±1}"),
        ({"group": "diagonal", "scales": (SCALES["real"],)}, "r R*^6"),
        ({"group": "diagonal", "scales": (SCALES["real"],), "partition": ((0, 1), (2, 3, 4, 5))}, "r R*^2"),
        ({"group": "commutant", "blocks": (Block(field="complex", coordinates=((0, 1), (2, 3))),
                                           Block(field="real", coordinates=((4,), (5,))))}, "GL(2, C) x GL(2, R)"),
        ({"group": "orthogonal_commutant", "blocks": tuple(
            Block(field="complex", coordinates=((k, k + 3),)) for k in range(3))}, "U(1)^3"),
    ],
)  # fmt: skip
def test_groups_in_mathematical_form(options, text):
    outer = [
        Space(name="kv", size=2, group="permutation"),
        Space(name="fixed", size=3, group="trivial"),
        Space(name="query", size=4, group="permutation", per=("kv",)),
    ]
    space = Space(name="a", size=6, **options)
    assert group_text(space, {one.name: one for one in (*outer, space)}) == text


def test_the_story_of_a_space():
    assert explain_text(layered(32), "residual").splitlines() == [
        "residual: O(8), size 8, 28 continuous dimensions",
        "No larger group, because of:",
        "  inner product: aten.pow at model.py:71, in model.layers.{0..31}.norm",
        "  inner product: aten.pow at model.py:93, in model.layers.{0..31}.mlp.norm",
        "It holds after these gains are absorbed:",
        "  model.layers.{0..31}.norm",
        "Carried by:",
        "  embed [9, residual]",
        "  model.layers.{0..31}.q [model.layers.{0..31}.head model.layers.{0..31}.qk', residual']",
        "  model.layers.{0..31}.k [model.layers.{0..31}.head model.layers.{0..31}.qk, residual']",
    ]


def test_stories_of_dependent_and_free_spaces():
    assert explain_text(experts()[0], "hidden").splitlines() == [
        "hidden: (S_4, s R+)^3 wr S_3, size 4, 12 continuous dimensions",
        "It is another element for every index of expert.",
        "Carried by:",
        "  W1 [expert, hidden[s], 2]",
        "  W2 [2, expert hidden[s^-1]]",
    ]
    assert "Its index decides about query, qk, ov" in explain_text(grouped_attention()[0], "kv")
    assert "Only contractions use it, and they forbid nothing: no group is larger." in explain_text(
        gained_linear()[0], "mid"
    )


def test_reasons_and_braces_are_shown_as_they_are():
    fact = Fact(structure="fixed", operator="aten.sort", reason="top {k} {{values}}")
    scale = Scale(name="s", kind="real")
    space = Space(name="loud", size=1, group="diagonal", scales=(scale,), provenance=(fact,), role="all of it")
    spec = document([space], [Tensor(name="a{b}", shape=(2,), axes=("2",), scale="loud[s^2]")])
    assert explain_text(spec, "loud").splitlines() == [
        "loud (all of it): s R*, size 1, 1 continuous dimensions",
        "No larger group, because of:",
        "  fixed: aten.sort (top {k} {{values}})",
        "Carried by:",
        "  a{b} as a whole, by loud[s^2]",
    ]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("resid", "the spec has no space 'resid': did you mean 'residual'?"),
        ("head", "the spec has no space 'head': did you mean 'model.layers.0.head' or 'model.layers.1.head'?"),
    ],
)
def test_unknown_spaces(name, message):
    with pytest.raises(SpecError) as error:
        explain_text(layered(2), name)
    assert str(error.value) == message
