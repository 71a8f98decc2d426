"""Reading by index. What is indexed is pinned; the other axes pass.

``embedding``: ``w[v, d], i[..] -> y[.., d]``. The indices are inputs or constants here; positions that depend on float
activations have no law yet and pin what they touch.
"""

from __future__ import annotations

from symgraph.rules.law import Law, Pattern, Use, pin, term
from symgraph.rules.registry import Call, Operand, lettered, rule


def _read(call: Call, source: Operand, indexed: set[int], first: int, width: int) -> Law:
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


def _known(operand: Operand) -> bool:
    return operand.value is not None


@rule("aten.embedding")
def embedding(call: Call) -> Law | None:
    """``w[v, d], i[..] -> y[.., d]``."""
    weight, index = call.args[0], call.args[1]
    return _read(call, weight, {0}, 0, index.rank) if _known(index) else None


@rule("aten.index_select")
def index_select(call: Call) -> Law | None:
    """``x[a, v, b], i[k] -> y[a, k, b]``."""
    axis = call.args[1] % call.args[0].rank
    return _read(call, call.args[0], {axis}, axis, 1) if _known(call.args[2]) else None


@rule("aten.select.int")
def select(call: Call) -> Law:
    """``x[a, v, b] -> y[a, b]`` at one fixed index."""
    axis = call.args[1] % call.operands[0].rank
    return _read(call, call.operands[0], {axis}, axis, 0)


@rule("aten.index.Tensor")
def index(call: Call) -> Law | None:
    """``x[a, v, b]`` at integer tensors on some axes; they are broadcast together."""
    source, indices = call.args[0], call.args[1]
    axes = [axis for axis, each in enumerate(indices) if each is not None]
    used = [indices[axis] for axis in axes]
    if any(not _known(each) or each.dtype.is_floating_point for each in used) or axes != list(
        range(axes[0], axes[0] + len(axes))
    ):
        return None
    if any(str(each.dtype) == "torch.bool" for each in used):
        return None
    width = max(each.rank for each in used)
    return _read(call, source, set(axes), axes[0], width)
