"""``discover``, ``explain``, ``diff`` and ``rules``."""

from __future__ import annotations

import json

import pytest

import symgraph as sg


def test_discover_prints_a_table_and_writes_the_spec(symgraph, pair, tmp_path):
    outcome = symgraph("discover", pair[0], "-o", tmp_path / "spec.json")
    assert (outcome.status, outcome.err) == (0, "")
    assert max(len(line) for line in outcome.out.splitlines()) <= 100
    assert "O(12)" in outcome.out
    assert "dimension" in outcome.out
    spec = sg.load_spec(tmp_path / "spec.json")
    assert spec.space("residual").size == 12


def test_discover_as_json_is_the_document_itself(symgraph, pair, tmp_path):
    outcome = symgraph("discover", pair[0], "-o", tmp_path / "spec.json", "--json")
    assert outcome.out == (tmp_path / "spec.json").read_text(encoding="utf-8")


@pytest.mark.parametrize("reference", ["config.json", "no weights"])
def test_the_structure_alone_gives_the_same_spec(symgraph, pair, reference):
    whole = symgraph("discover", pair[0], "--json")
    arguments = (pair[0] / "config.json",) if reference == "config.json" else (pair[0], "--no-weights")
    assert symgraph("discover", *arguments, "--json").out == whole.out


def test_a_factory(symgraph, factories):
    outcome = symgraph("discover", f"{factories}:net")
    assert outcome.status == 0
    assert "S_7" in outcome.out


def test_untie_describes_the_model_with_its_embeddings_apart(symgraph, tied):
    together, apart = (symgraph("discover", tied, "--json", *more).json for more in ((), ("--untie",)))
    groups = [next(one["group"] for one in spec["spaces"] if one["name"] == "residual") for spec in (together, apart)]
    assert groups == ["signed_permutation", "orthogonal"]
    assert apart["identity"]["untied"] is True


def test_explain_names_the_operator_and_its_line(symgraph, pair, tmp_path):
    symgraph("discover", pair[0], "-o", tmp_path / "spec.json")
    outcome = symgraph("explain", tmp_path / "spec.json", "residual")
    assert outcome.status == 0
    assert "residual: O(12), size 12" in outcome.out
    assert "inner product" in outcome.out
    assert ".py:" in outcome.out
    assert symgraph("explain", pair[0], "residual").out == outcome.out
    assert symgraph("explain", tmp_path / "spec.json", "residual", "--json").json["space"]["group"] == "orthogonal"


def test_explain_without_a_space_lists_them(symgraph, pair):
    outcome = symgraph("explain", pair[0])
    assert outcome.status == 0
    assert "residual" in outcome.out
    assert "residual" in symgraph("explain", pair[0], "--json").json


def test_explain_suggests_a_space(refused, pair):
    assert refused("explain", pair[0], "residul") == "the spec has no space 'residul': did you mean 'residual'?"


def test_diff_says_what_changed_in_words(symgraph, tied, tmp_path):
    for name, more in (("a", ()), ("b", ("--untie",))):
        symgraph("discover", tied, "-o", tmp_path / name, *more)
    outcome = symgraph("diff", tmp_path / "a", tmp_path / "b")
    assert outcome.status == 0
    assert "tied parameters: together -> apart" in outcome.out
    assert "space residual: S_12, sign {±1} -> O(12)" in outcome.out
    assert "tensor lm_head.weight is new" in outcome.out
    assert symgraph("diff", tmp_path / "a", tmp_path / "b", "--exit-code").status == 1
    assert symgraph("diff", tmp_path / "a", tmp_path / "b", "--json").json["same"] is False


def test_diff_of_a_spec_with_itself(symgraph, pair, tmp_path):
    symgraph("discover", pair[0], "-o", tmp_path / "spec.json")
    outcome = symgraph("diff", tmp_path / "spec.json", pair[1], "--exit-code")
    assert (outcome.status, outcome.out) == (0, "The specs describe the same symmetries.\n")


def test_rules_lists_laws_and_shows_one(symgraph):
    assert "aten.linear" in symgraph("rules").out
    assert "x[.., k], w[n, k], c[n] -> y[.., n]" in symgraph("rules", "aten.linear").out
    assert "f(c x) = c f(x) for c > 0" in symgraph("rules", "relu").out
    assert symgraph("rules", "layer_norm", "--json").json[0]["kind"] == "defined by other operators"
    assert all(entry["law"] for entry in symgraph("rules", "--json").json)


def test_an_operator_without_a_rule(refused):
    assert refused("rules", "reluu") == (
        "no rule for operator 'reluu', so it pins what it touches: did you mean aten.relu or aten.rrelu?"
    )


def test_strict_names_the_operator(refused, tmp_path):
    (tmp_path / "odd.py").write_text(
        "import torch\n"
        "class Odd(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.a, self.b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)\n"
        "    def forward(self, x):\n"
        "        return self.b(torch.linalg.matrix_exp(self.a(x)))\n"
        "def net(): return Odd(), {'x': torch.randn(4, 4)}\n",
        encoding="utf-8",
    )
    assert "matrix_exp" in refused("discover", f"{tmp_path / 'odd.py'}:net", "--strict")


def test_json_of_every_command_is_one_document(symgraph, pair):
    for arguments in (("discover", pair[0]), ("explain", pair[0]), ("diff", pair[0], pair[0]), ("rules",)):
        json.loads(symgraph(*arguments, "--json").out)
