"""Tracing a module that has no weights.

``torch.export`` wants one device. A module on the meta device whose small buffers are real would mix two, and operators
that create tensors would create them on a third. So meta tensors are replaced for the time of the trace by *fake* CPU
tensors: they have a shape, a dtype and the device ``cpu``, and no memory. The graph is the one of a real CPU module.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree


@contextmanager
def as_fake(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Put fake CPU tensors in the place of the module's and the example's, if any of the module's is on meta."""
    if not any(value.is_meta for value in (*module.parameters(), *module.buffers())):
        yield args, kwargs
        return
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    made: dict[int, Tensor] = {}

    def fake(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if id(value) not in made:
            made[id(value)] = _fake_tensor(mode, value)
        return made[id(value)]

    replaced = _replace_state(module, fake)
    try:
        yield pytree.tree_map(fake, args), pytree.tree_map(fake, kwargs)
    finally:
        for table, name, value in replaced:
            table[name] = value


@contextmanager
def untied(module: nn.Module) -> Iterator[None]:
    """Give every place that holds a tied parameter an object of its own, of the same storage.

    Export lists one placeholder per name but lets all uses of one object read the last of them. Then nobody could say
    which use belongs to which name, or describe the model with its weights untied.
    """
    seen: set[int] = set()
    replaced: list[tuple[dict[str, Any], str, nn.Parameter]] = []
    for part in module.modules():
        for name, value in part._parameters.items():
            if value is not None and id(value) in seen:
                replaced.append((part._parameters, name, value))
            seen.add(id(value))
    try:
        for table, name, value in replaced:
            table[name] = nn.Parameter(value.detach(), requires_grad=False)
        yield
    finally:
        for table, name, value in replaced:
            table[name] = value


def _fake_tensor(mode: FakeTensorMode, value: Tensor) -> Tensor:
    if not value.is_meta:
        return mode.from_tensor(value, static_shapes=True)
    with mode:
        made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="cpu")
        return nn.Parameter(made, requires_grad=False) if isinstance(value, nn.Parameter) else made


def _replace_state(module: nn.Module, fake: Any) -> list[tuple[dict[str, Any], str, Tensor]]:
    """Replace parameters, buffers and meta tensors that are plain attributes; return what stood there."""
    replaced = []
    for part in module.modules():
        for table in (part._parameters, part._buffers, part.__dict__):
            for name, value in list(table.items()):
                if isinstance(value, Tensor) and (value.is_meta or table is not part.__dict__):
                    replaced.append((table, name, value))
                    table[name] = fake(value)
    return replaced
