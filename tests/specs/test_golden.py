"""The golden specs are what the compiler makes of their configurations, byte for byte."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import symgraph as sg
from examples import make_specs
from symgraph.spec.codec import dumps

NAMES = sorted(path.stem for path in make_specs.CONFIGS.glob("*.json"))
REMADE = ("gpt2", "llama-3.2-1b", "olmo-2-7b", "vit-base-patch16-224")
LARGEST = {"llama-3.1-405b": 20_000, "bert-base": 32_000}  # bytes


def portable(text: str) -> str:
    """Without what another release of a library changes: versions, digest of the configuration, source lines."""
    return re.sub(r'"(versions|config_digest|source)": (\{[^}]*\}|"[^"]*")', "", text)


def document(name: str) -> Path:
    return make_specs.SPECS / f"{name}.json"


@pytest.mark.parametrize("name", REMADE)
def test_a_spec_made_anew_is_the_same(name):
    spec, written = make_specs.compile_spec(name), document(name).read_text(encoding="utf-8")
    same = spec.identity.versions == sg.load_spec(document(name)).identity.versions
    assert dumps(spec) == written if same else portable(dumps(spec)) == portable(written)


def test_only_names_of_places_are_portable():
    written = document("gpt2").read_text(encoding="utf-8")
    assert '"versions"' in written
    assert "modeling_" in written
    assert not re.search('"versions"|"config_digest"|modeling_', portable(written))
    assert portable(written).count('"group": ') == written.count('"group": ') > 0


@pytest.mark.parametrize("name", NAMES)
def test_a_spec_loads_and_is_written_as_it_stands(name):
    assert dumps(sg.load_spec(document(name))) == document(name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_a_spec_is_short(name):
    assert document(name).stat().st_size <= LARGEST.get(name, 24_000)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_pinned_for_want_of_a_rule(name):
    assert not sg.load_spec(document(name)).pins


def test_the_index_is_current():
    assert (make_specs.SPECS / "README.md").read_text(encoding="utf-8") == make_specs.index()


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        ("gpt2", {"signed_permutation", "permutation"}),
        ("llama-3.2-1b", {"signed_permutation"}),
        ("llama-3.1-405b", {"orthogonal"}),
        ("mistral-7b-v0.3", {"orthogonal"}),
        ("pythia-6.9b", {"orthogonal_fixing_ones"}),
        ("olmo-7b", {"orthogonal_fixing_ones"}),
        ("olmo-2-7b", {"signed_permutation"}),
        ("gemma-2-9b", {"signed_permutation"}),
        ("vit-base-patch16-224", {"orthogonal_fixing_ones"}),
        ("mixtral-8x7b", {"orthogonal"}),
    ],
)
def test_the_group_of_the_residual_stream(name, groups):
    assert sg.load_spec(document(name)).space("residual").group.value in groups
