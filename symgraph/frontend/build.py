"""Building a module of any size without memory for its weights.

Inside ``build_meta()`` every ``nn.Parameter`` is made on the meta device, and so is whatever a factory function would
make with more than ``LARGEST_REAL`` elements. Small tensors that are no parameters (frequencies, position ids, masks)
keep their values: the trace needs them. Initialisation then runs on meta tensors, where it costs nothing.

>>> with build_meta():
...     layer = torch.nn.Linear(10**5, 10**5)
>>> layer.weight.device.type
'meta'
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

# The largest tensor, in elements, that is made for real.
LARGEST_REAL = 2**22

# Factory functions whose shape is given by sizes: f(2, 3), f((2, 3)) or f(size=(2, 3)).
SIZED = frozenset({torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn, torch.randint})


class _LargeOnMeta(TorchFunctionMode):
    """Sends large factory calls to the meta device."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func in SIZED and _elements(args, kwargs) > LARGEST_REAL:
            kwargs["device"] = "meta"
        return func(*args, **kwargs)


def _elements(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """The largest product of sizes that the arguments can mean."""
    groups = [value for value in (*args, kwargs.get("size")) if isinstance(value, (list, tuple))]
    groups.append([value for value in args if isinstance(value, int)])
    return max(prod(group) if all(isinstance(size, int) for size in group) else 0 for group in groups)


@contextmanager
def build_meta() -> Iterator[None]:
    """A context in which modules are built without memory for their parameters."""
    original = nn.Parameter.__new__

    def on_meta(cls: type[nn.Parameter], data: Tensor | None = None, requires_grad: bool = True) -> Any:
        return original(cls, data if data is None else data.detach().to("meta"), requires_grad)

    nn.Parameter.__new__ = on_meta  # type: ignore[method-assign, assignment]
    try:
        with _LargeOnMeta():
            yield
    finally:
        nn.Parameter.__new__ = original  # type: ignore[method-assign]
