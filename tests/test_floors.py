"""The floors of the package: each imports only from below; and nothing in it knows a model, a class or a parameter."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "symgraph"
MODULES = sorted(PACKAGE.rglob("*.py"))

# What each part may import, besides itself.
BELOW = {
    "errors": set(),
    "algebra": {"errors"},
    "spec": {"errors", "algebra"},
    "frontend": {"errors", "algebra"},
    "rules": {"errors", "algebra"},
    "infer": {"errors", "algebra", "spec", "frontend", "rules"},
    "verify": {"errors", "algebra", "spec", "frontend", "rules", "infer"},
    "match": {"errors", "algebra", "spec", "frontend", "rules", "infer"},
    "cli": {"errors", "algebra", "spec", "frontend", "rules", "infer", "verify", "match"},
}

# Names of parameters and of the modules that hold them, as transformers and others write them.
PARAMETERS = re.compile(
    r"\b([qkvo]_proj|qkv_proj|(gate|up|down|in|out|c|fc)_proj|gate_up_proj|c_attn|c_fc|fc\d|lm_head|embed_tokens|"
    r"query_key_value|dense_h_to_4h|dense_4h_to_h|self_attn|input_layernorm|post_attention_layernorm|ln_f|ln_\d|wte|wpe|"
    r"token_embd|embed_in|embed_out|final_layer_norm|q_lin|k_lin|v_lin|w1|w2|w3|attn_norm|patch_embed|pos_embed|"
    r"cls_token|layer_scale|lambda1|relative_attention_bias)\b"
)

# Families whose names are words of English or of programming.
WORDS = {
    "align", "clip", "bit", "git", "led", "opt",
    "oneformer", "dab", "sam", "mask", "moshi", "funnel", "pop", "time", "dac", "dia",
    "flava", "data", "afmoe", "aria", "bark", "blip", "mimi", "mixer", "encoder-decoder", "vision-encoder-decoder",
    "speech-encoder-decoder", "vision-text-dual-encoder", "timm_wrapper", "timm_backbone", "rag", "fast_vlm", "layoutlm",
}  # fmt: skip


def part(path: Path) -> str:
    relative = path.relative_to(PACKAGE)
    return relative.parts[0].removesuffix(".py") if len(relative.parts) > 1 or relative.name != "__init__.py" else ""


def imports(path: Path) -> set[str]:
    """The parts of the package that a file imports anywhere, also inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            names = [f"{node.module}.{alias.name}" if node.module == "symgraph" else node.module or "" for alias in node.names]
        else:
            continue
        for name in names:
            head, _, rest = name.partition(".")
            if head == "symgraph":
                first = rest.split(".")[0]
                found.add(first if first in BELOW else "")
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_file_imports_only_from_its_floor_and_below(path: Path) -> None:
    own = part(path)
    if own == "":
        return  # the package itself hands out the names of all floors, on demand
    assert imports(path) - {own, ""} <= BELOW[own]
    used = {node.attr for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if is_of_package(node)}
    assert used <= {"__version__"} or own == "cli"


def is_of_package(node: ast.AST) -> bool:
    """``symgraph.name``, which could be of any floor."""
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "symgraph"


def test_every_part_has_a_floor() -> None:
    assert {part(path) for path in MODULES} - {""} <= BELOW.keys()


def test_the_spec_knows_nothing_of_graphs() -> None:
    for path in (PACKAGE / "spec").rglob("*.py"):
        assert "torch.fx" not in path.read_text(encoding="utf-8"), path


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_file_names_a_model_or_a_parameter(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not PARAMETERS.findall(text)
    assert not families() & set(re.findall(r"[a-z][a-z0-9_-]+", text.lower()))
    assert not classes() & set(re.findall(r"[A-Z]\w+", text))


def families() -> set[str]:
    from transformers import CONFIG_MAPPING

    return {name for name in CONFIG_MAPPING if len(name) > 2} - WORDS


def classes() -> set[str]:
    """Classes of models by all auto mappings."""
    from transformers.models.auto import modeling_auto

    tables = [value for name, value in vars(modeling_auto).items() if name.endswith("_MAPPING_NAMES")]
    values = [value for table in tables for value in table.values()]
    return {name for value in values for name in ((value,) if isinstance(value, str) else value)}


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = "import sys, symgraph; print(sorted({'torch', 'transformers', 'pydantic', 'scipy'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_functions_keep_their_names_beside_subpackages_of_the_same_name() -> None:
    import symgraph
    import symgraph.match
    import symgraph.verify

    assert callable(symgraph.match)
    assert callable(symgraph.verify)


def test_every_public_name_exists() -> None:
    import symgraph

    for name in symgraph.__all__:
        assert getattr(symgraph, name) is not None
    with pytest.raises(AttributeError, match="module 'symgraph' has no attribute 'nothing'"):
        _ = symgraph.nothing
