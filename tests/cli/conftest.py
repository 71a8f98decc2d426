"""Small checkpoints, and the command line called in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from symgraph.cli.main import main

CONFIG = {
    "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6,
    "intermediate_size": 20, "vocab_size": 31, "max_position_embeddings": 16, "tie_word_embeddings": False,
}  # fmt: skip

FACTORIES = """
import torch
def net():
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.ReLU(), torch.nn.Linear(7, 3))
    return module, {"input": torch.randn(4, 5)}
def bad():
    raise ValueError("no data\\nat all")
def linear():
    return torch.nn.Linear(5, 3), {"input": torch.randn(4, 5)}
"""


@dataclass
class Outcome:
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def symgraph(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Runs a command."""

    def run(*arguments: object) -> Outcome:
        capsys.readouterr()
        status = main([str(one) for one in arguments])
        return Outcome(status, *capsys.readouterr())

    return run


@pytest.fixture
def refused(symgraph: Callable[..., Outcome]) -> Callable[..., str]:
    """Runs a command that must end with status 2, nothing on stdout and one line on stderr, which it returns."""

    def run(*arguments: object) -> str:
        outcome = symgraph(*arguments)
        assert outcome.status == 2, outcome
        assert outcome.out == ""
        assert outcome.err.startswith("symgraph: ")
        assert outcome.err.count("\n") == 1
        return outcome.err.removeprefix("symgraph: ").strip()

    return run


def save(path: Path, seed: int = 0, **changes: Any) -> Path:
    """A checkpoint with gains that are not one, so that absorbing them changes something."""
    torch.manual_seed(seed)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**CONFIG, **changes}))
    for parameter in model.parameters():
        if parameter.dim() == 1:
            parameter.data.uniform_(0.5, 2)
    model.save_pretrained(path)
    return path


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two checkpoints of one architecture. Tests must not write into them."""
    folder = tmp_path_factory.mktemp("pair")
    return save(folder / "a", 0), save(folder / "b", 1)


@pytest.fixture(scope="session")
def tied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("tied") / "model", tie_word_embeddings=True)


@pytest.fixture(scope="session")
def factories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("factories") / "nets.py"
    path.write_text(FACTORIES, encoding="utf-8")
    return path
