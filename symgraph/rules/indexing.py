"""Reading by index. What is indexed is pinned; the other axes pass.

``embedding``: ``w[v, d], i[..] -> y[.., d]``. The indices are inputs or constants here; those that depend on float
activations are in :mod:`symgraph.rules.routing`.
"""

from __future__ import annotations

from symgraph.rules.law import Law, Pattern, Use, pin, term
from symgraph.rules.registry import Call, Operand, lettered, rule


def read(call: Call, source: Operand, indexed: set[int], first: int, width: int) -> Law:
    """Axes ``indexed`` of the source are replaced by ``width`` axes of positions, which start at ``first``."""
    pattern = list(lettered(source.shape))
    uses: list[Use] = []
    for axis in indexed:
        if pattern[axis]:
            uses += pin(f"a{axis}", "read by index")
    passing = [letter for axis, letter in enumerate(pattern) if axis not in indexed]
    positions = lettered((call.shapes[0] or ())[first : first + width], "i")
    for letter in positions:
        if isinstance(letter, str):
            uses += pin(letter, "read by index")
    result: Pattern = (*passing[:first], *positions, *passing[first:])
    blank: list[Pattern | None] = [None] * len(call.operands)
    blank[source.index] = tuple(pattern)
    return Law(tuple(blank), (result,), (term(source.index),), tuple(uses))


def known(operand: Operand) -> bool:
    return operand.value is not None


@rule("aten.embedding")
def embedding(call: Call) -> Law | None:
    """``w[v, d], i[..] -> y[.., d]``."""
    weight, index = call.args[0], call.args[1]
    return read(call, weight, {0}, 0, index.rank) if known(index) else None


@rule("aten.index_select")
def index_select(call: Call) -> Law | None:
    """``x[a, v, b], i[k] -> y[a, k, b]``."""
    axis = call.args[1] % call.args[0].rank
    return read(call, call.args[0], {axis}, axis, 1) if known(call.args[2]) else None


@rule("aten.select.int")
def select(call: Call) -> Law:
    """``x[a, v, b] -> y[a, b]`` at one fixed index."""
    axis = call.args[1] % call.operands[0].rank
    return read(call, call.operands[0], {axis}, axis, 0)
