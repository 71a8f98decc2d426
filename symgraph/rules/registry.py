"""The one registry of rules: operator overload to a pure function from a typed call to a :class:`~.law.Law`.

Rules are registered by family, next to their law; a second registration of an operator is an error. ``COMPOSITES`` are
operators that are stated as a few simpler ones (``layer_norm`` as mean, square, root and product).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from symgraph.rules.law import Law


@dataclass(frozen=True, eq=False)
class Operand:
    """A tensor argument: its position among the call's tensors, its shape, and its value where it is a constant.

    ``points`` says what integers mean that were computed from activations: ``index`` (they are indices of a space, which
    has the letter :attr:`pointed`), ``counts`` or ``ends`` (how many entries have each index of the space, summed up).
    """

    index: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    value: torch.Tensor | None = None
    points: str = ""

    @property
    def pointed(self) -> str:
        """The letter of the space that the entries point to."""
        return f"p{self.index}"

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)


@dataclass(frozen=True, eq=False)
class Call:
    """One operator call as a rule sees it: arguments with operands in the place of tensors, and the results' shapes."""

    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    operands: tuple[Operand, ...]
    shapes: tuple[tuple[int, ...] | None, ...]
    dtypes: tuple[torch.dtype, ...] = ()

    def get(self, position: int, name: str, default: Any = None) -> Any:
        """The argument at a position or, failing that, of a name."""
        if position < len(self.args):
            return self.args[position]
        return self.kwargs.get(name, default)


Rule = Callable[[Call], "Law | None"]
RULES: dict[Any, Rule] = {}
"""Rules by operator overload; those of operators that a library registers later by the overload's name."""
COMPOSITES: dict[Any, Callable[..., Any]] = {}


def _overloads(name: str) -> Iterator[Any]:
    """The overload ``aten.add.Tensor``, or every overload of ``aten.add``, where this torch has it."""
    namespace, operator, *overload = name.split(".")
    packet = getattr(getattr(torch.ops, namespace), operator, None)
    if packet is None:
        if namespace != "aten" and overload:
            yield name
        return
    for each in overload or packet.overloads():
        if hasattr(packet, each):
            yield getattr(packet, each)


def _register(table: dict[Any, Any], names: tuple[str, ...], entry: Any) -> None:
    for name in names:
        for overload in _overloads(name):
            if overload in RULES or overload in COMPOSITES:
                raise ValueError(f"{overload} has a rule already")
            table[overload] = entry


def find_rule(target: Any) -> Rule | None:
    """The rule of an operator, if it has one."""
    return RULES.get(target) or RULES.get(str(target))


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for operators, named as in ``aten.add.Tensor`` (or ``aten.add`` for every overload)."""

    def decorate(function: Rule) -> Rule:
        _register(RULES, names, function)
        return function

    return decorate


def composite(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a definition in simpler operators; it takes the operator's own arguments."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        _register(COMPOSITES, names, function)
        return function

    return decorate


def axis_letters(rank: int, prefix: str = "a") -> tuple[str, ...]:
    """Distinct letters for the axes of a tensor."""
    return tuple(f"{prefix}{index}" for index in range(rank))


def lettered(shape: tuple[int, ...], prefix: str = "a") -> tuple[Any, ...]:
    """A pattern for a shape: a letter for every axis, none on an axis of size one."""
    return tuple(() if size == 1 else f"{prefix}{index}" for index, size in enumerate(shape))
