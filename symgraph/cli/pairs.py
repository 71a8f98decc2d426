"""Two checkpoints of one model: how ``match`` and ``barrier`` read them, and the module that they are judged in."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from symgraph.cli.sources import Source, resolve
from symgraph.cli.structure import require_same
from symgraph.errors import CheckpointError
from symgraph.frontend.checkpoint import compare_states, read_state

State = dict[str, Tensor]


@dataclass(frozen=True)
class Pair:
    """Sources of both endpoints (the same one twice where weights files go with a factory) and their state dicts."""

    sources: tuple[Source, Source]
    states: tuple[State, State]
    names: tuple[str, str]

    @property
    def source(self) -> Source:
        """The model of the first endpoint."""
        return self.sources[0]

    def wide(self) -> tuple[State, State]:
        """The states with at least float32: half precision has too few bits to compute in."""
        return _widened(self.states[0]), _widened(self.states[1])

    def module(self, untied: bool = False) -> nn.Module:
        """The module in at least float32 and, if so asked, with tied parameters apart."""
        module = copy.deepcopy(self.source.loaded.module)
        if any(value.dtype in (torch.float16, torch.bfloat16) for value in module.parameters()):
            module = module.float()
        for names in self.source.graph.aliases.values() if untied else ():
            for name in names:
                _set_apart(module, name)
        return module.eval()


def load_pair(a: str, b: str, model: str | None) -> Pair:
    """Both endpoints; an error names the first difference between their structures."""
    if model is not None:
        source = resolve(model, weights=True)
        first, second = (_weights(Path(path), source) for path in (a, b))
        return Pair((source, source), (first, second), (a, b))
    sources = resolve(a, weights=True), resolve(b, weights=True)
    states = sources[0].state(), sources[1].state()
    compare_states(*states, (a, b))
    require_same(sources[0].graph, sources[1].graph, (a, b))
    return Pair(sources, states, (a, b))


def _weights(path: Path, source: Source) -> State:
    """A weights file for a factory's module; buffers that the file does not hold are the module's own."""
    lazy = read_state(path)
    try:
        own = {name: value.detach() for name, value in source.loaded.module.state_dict().items()}
        parameters = {name for name, _ in source.loaded.module.named_parameters(remove_duplicate=False)}
        state = {name: lazy.get(name, value) for name, value in own.items()}
        missing = [name for name in own if name in parameters and not _held(name, lazy, source)]
    finally:
        lazy.close()
    if missing:
        raise CheckpointError(f"{path}: tensor {missing[0]!r} is missing, and {source.reference} needs it")
    compare_states(own, state, (source.reference, str(path)))
    for name, value in state.items():
        if value.is_floating_point() and name in parameters and not bool(torch.isfinite(value).all()):
            raise CheckpointError(f"{path}: tensor {name!r} has entries that are not finite")
    return _tied(state, lazy, source)


def _held(name: str, lazy: object, source: Source) -> bool:
    """Whether the file has the tensor under this name or another of the same storage."""
    return any(one in lazy for one in _names(name, source))  # type: ignore[operator]


def _names(name: str, source: Source) -> tuple[str, ...]:
    groups = [(first, *others) for first, others in source.graph.aliases.items()]
    return next((group for group in groups if name in group), (name,))


def _tied(state: State, lazy: object, source: Source) -> State:
    """Names of one storage get the one value that the file holds."""
    result = dict(state)
    for name in state:
        held = next((one for one in _names(name, source) if one in lazy), name)  # type: ignore[operator]
        result[name] = state[held]
    return result


def _widened(state: State) -> State:
    """Half precision as float32; tied names keep sharing one tensor."""
    halves = {id(value): value for value in state.values() if value.dtype in (torch.float16, torch.bfloat16)}
    wide = {key: value.float() for key, value in halves.items()}
    return {name: wide.get(id(value), value) for name, value in state.items()}


def _set_apart(module: nn.Module, name: str) -> None:
    path, _, leaf = name.rpartition(".")
    parent = module.get_submodule(path)
    parent.register_parameter(leaf, nn.Parameter(getattr(parent, leaf).detach().clone()))
