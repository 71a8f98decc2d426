"""A module with other weights, called as the module is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from symgraph.errors import MatchError

Batches: TypeAlias = Iterable[Any] | Callable[[], Iterable[Any]]
Loss: TypeAlias = Callable[[Any, Any], Tensor]


class Functional:
    """``model(...)`` runs the module with ``state`` in place of its own parameters and buffers; attributes are the module's."""

    def __init__(self, module: nn.Module, state: Mapping[str, Tensor]) -> None:
        self.module, self.state = module, dict(state)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The module's output."""
        return torch.func.functional_call(self.module, self.state, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.module, name)


class _CalledError(Exception):
    """Carries the arguments of a call."""


class _Listener:
    """Looks like the module, and is done once it is called."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise _CalledError(args, kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def call_of(module: nn.Module, loss: Loss, batch: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments that ``loss(model, batch)`` calls its model with. MatchError if it calls none."""
    try:
        loss(_Listener(module), batch)
    except _CalledError as call:
        return call.args[0], call.args[1]
    raise MatchError("loss(model, batch) does not call its model")


def fresh(batches: Batches) -> Iterable[Any]:
    """The batches from the start: a list as it is, a function called once more."""
    return batches() if callable(batches) else batches


def on_module(state: Mapping[str, Tensor], module: nn.Module) -> dict[str, Tensor]:
    """The entries of ``state`` that the module has, in its dtypes and on its devices."""
    own = {**dict(module.named_parameters(remove_duplicate=False)), **dict(module.named_buffers(remove_duplicate=False))}
    return {
        name: value.to(device=own[name].device, dtype=own[name].dtype if own[name].is_floating_point() else value.dtype)
        for name, value in state.items()
        if name in own
    }
