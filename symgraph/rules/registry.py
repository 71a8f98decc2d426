"""The one registry of rules: operator overload to a pure function from a typed call to a :class:`~.law.Law`.

Rules are registered by family, next to their law and with example calls, on which the tests check the law; a second
registration of an operator is an error. ``COMPOSITES`` are operators that are stated as a few simpler ones (``layer_norm``
as mean, square, root and product).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from symgraph.rules.examples import Examples
from symgraph.rules.law import Law, Pattern


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
EXAMPLES: dict[Any, Examples] = {}
"""Example calls by operator overload; an overload uses those of the builder's calls that its schema accepts."""


def _overloads(name: str) -> Iterator[Any]:
    """The overload ``aten.add.Tensor``, or every overload of ``aten.add`` on tensors, where this torch has it."""
    namespace, operator, *overload = name.split(".")
    packet = getattr(getattr(torch.ops, namespace), operator, None)
    if packet is None:
        if namespace != "aten" and overload:
            yield name
        return
    usable = [each for each in packet.overloads() if _on_tensors(getattr(packet, each))]
    for each in overload or usable:
        if hasattr(packet, each):
            yield getattr(packet, each)


def _on_tensors(overload: Any) -> bool:
    """Not the variants that write to a given tensor, nor those of Python numbers and named axes, which no graph has."""
    arguments = overload._schema.arguments
    kinds = [str(argument.type) for argument in arguments]
    written = any(getattr(argument, "is_out", False) for argument in arguments)
    name = overload._overloadname
    odd = name.startswith("prim_") or name in _ODD
    return any("Tensor" in kind for kind in kinds) and not written and not odd


_ODD = frozenset({
    "Tensor_list", "Dict_Tensor", "Sequence", "sublist", "hacked_twin", "dimname", "names_dim", "t", "int", "float",
})  # fmt: skip
"""Overloads of scripts; where one of these is a plain operator its rule names it in full."""


def register(table: dict[Any, Any], names: tuple[str, ...], entry: Any, examples: Examples) -> None:
    """Enter an operator once, with its examples."""
    for name in names:
        for overload in _overloads(name):
            if overload in RULES or overload in COMPOSITES:
                raise ValueError(f"{overload} has a rule already")
            table[overload] = entry
            EXAMPLES[overload] = examples


def find_rule(target: Any) -> Rule | None:
    """The rule of an operator, if it has one."""
    return RULES.get(target) or RULES.get(str(target))


def rule(*names: str, examples: Examples) -> Callable[[Rule], Rule]:
    """Register a rule for operators, named as in ``aten.add.Tensor`` (or ``aten.add`` for every overload)."""

    def decorate(function: Rule) -> Rule:
        register(RULES, names, function, examples)
        return function

    return decorate


Definition = TypeVar("Definition", bound=Callable[..., Any])


def composite(*names: str, examples: Examples) -> Callable[[Definition], Definition]:
    """Register a definition in simpler operators; it takes the operator's own arguments."""

    def decorate(function: Definition) -> Definition:
        register(COMPOSITES, names, function, examples)
        return function

    return decorate


def lettered(shape: tuple[int, ...], prefix: str = "a") -> tuple[Any, ...]:
    """A pattern for a shape: a letter for every axis, none on an axis of size one."""
    return tuple(() if size == 1 else f"{prefix}{index}" for index, size in enumerate(shape))


def blank(call: Call, patterns: dict[int, Pattern]) -> tuple[Pattern | None, ...]:
    """Patterns of all operands, given some by index; the others carry no axis to type."""
    return tuple(patterns.get(operand.index) for operand in call.operands)
