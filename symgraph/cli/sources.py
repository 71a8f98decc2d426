"""What the arguments of commands stand for: MODEL and SPEC references to loaded models, graphs, specs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from symgraph.cli.console import working
from symgraph.errors import ModelError

if TYPE_CHECKING:
    from torch import Tensor

    from symgraph.frontend.graph import Graph
    from symgraph.frontend.models import LoadedModel
    from symgraph.spec.model import SymmetrySpec

LARGEST_LOADED = 2 * 2**30
"""Checkpoints up to this many bytes are loaded where the structure would do: the graph is then checked with them."""


@dataclass
class Source:
    """A resolved MODEL: its module, its graph and its spec, each made when first asked for."""

    reference: str
    loaded: LoadedModel

    @cached_property
    def graph(self) -> Graph:
        """The traced graph."""
        from symgraph.frontend.trace import trace

        with working("tracing"):
            return trace(self.loaded.module, (), self.loaded.kwargs)

    def spec(self, untie: bool = False, strict: bool = False) -> SymmetrySpec:
        """The discovered spec."""
        from symgraph.infer.discover import discover

        graph = self.graph
        with working("discovering symmetries"):
            return discover(graph, untie=untie, strict=strict)

    def state(self) -> dict[str, Tensor]:
        """The state dict, with one tensor under all names of a tie; ModelError where the reference has no weights."""
        if not self.loaded.has_weights:
            raise ModelError(f"{self.reference} has no weights: give a checkpoint directory or a factory that has them")
        state = {name: value.detach() for name, value in self.loaded.module.state_dict().items()}
        for first, others in self.graph.aliases.items():
            state.update({name: state[first] for name in others if name in state and first in state})
        return state


def resolve(reference: str, weights: bool | None = None) -> Source:
    """Load a MODEL; ``weights=None`` loads those of a checkpoint only where they are few."""
    from symgraph.frontend.models import load_model

    if weights is None:
        weights = not Path(reference).is_dir() or _bytes(Path(reference)) <= LARGEST_LOADED
    with working(f"loading {reference}"):
        return Source(reference, load_model(reference, weights))


def spec_of(reference: str) -> SymmetrySpec:
    """The spec in a file, or of a MODEL."""
    from symgraph.spec.codec import load_spec

    if is_spec(Path(reference)):
        return load_spec(reference)
    return resolve(reference).spec()


def is_spec(path: Path) -> bool:
    """Whether a file is meant to be a spec: every existing file that is not the config.json of a model."""
    if not path.is_file():
        return False
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return True  # the loader of specs says what is wrong with it
    return not (isinstance(document, dict) and "model_type" in document)


def _bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.glob("*.safetensors"))
