"""Sums of products over shared axes: linear layers, matrix products, einsum, convolutions.

``x[.., k], w[n, k] -> y[.., n]``: the summed letter asks nothing of its group but that one side transforms with g and
the other with g^-T; a letter on both sides *and* the result (a batch axis, the group of a grouped convolution) keeps its
coordinates.
"""

from __future__ import annotations

from typing import Any

from symgraph.rules.law import Law, Pattern, Use, pin, term
from symgraph.rules.registry import Call, Operand, lettered, rule


def sized(pattern: tuple[str, ...], shape: tuple[int, ...]) -> Pattern:
    """The pattern without the letters of axes of size one."""
    return tuple(() if size == 1 else letter for letter, size in zip(pattern, shape, strict=True))


def _biased(law: Law, bias: Operand | None, pattern: tuple[str, ...]) -> Law:
    """The law plus a bias that stands on the named letters of the result."""
    if bias is None:
        return law
    operands = list(law.operands)
    operands[bias.index] = sized(pattern, bias.shape)
    return Law(tuple(operands), law.results, (*law.terms, term(bias.index)), law.uses, law.mixes, law.sizes)


@rule("aten.linear")
def linear(call: Call) -> Law:
    """``x[.., k], w[n, k], c[n] -> y[.., n]``."""
    x, w = call.args[0], call.args[1]
    batch = lettered(x.shape[:-1])
    bias = call.get(2, "bias")
    blank: list[Pattern | None] = [None] * len(call.operands)
    blank[x.index], blank[w.index] = (*batch, *sized(("k",), x.shape[-1:])), sized(("n", "k")[2 - w.rank :], w.shape)
    result = (*batch, *sized(("n",), w.shape[:-1]))
    law = Law(tuple(blank), (result,), (term(x.index, w.index),))
    return _biased(law, bias if isinstance(bias, Operand) else None, ("n",))


def _matrix_law(call: Call, left: Operand, right: Operand) -> Law:
    """Batched ``x[.., m, k] w[.., k, n]`` with broadcast batch axes; vectors stand for one row or column."""
    shape = call.shapes[0] or ()
    rank = len(shape) + (left.rank == 1) + (right.rank == 1)
    names = [f"a{axis}" for axis in range(rank - 2)]

    def batch(operand: Operand) -> Pattern:
        count = max(0, operand.rank - 2)
        return sized(tuple(names[len(names) - count :]), operand.shape[:count])

    rows = sized(("m",), left.shape[-2:-1])
    columns = sized(("n",), right.shape[-1:]) if right.rank > 1 else ()
    blank: list[Pattern | None] = [None] * len(call.operands)
    blank[left.index] = (*batch(left), *rows, *sized(("k",), left.shape[-1:]))
    blank[right.index] = (*batch(right), *sized(("k",), right.shape[-2:-1] if right.rank > 1 else right.shape), *columns)
    result = (*sized(tuple(names), shape[: len(names)]), *rows, *columns)
    return Law(tuple(blank), (result,), (term(left.index, right.index),))


@rule("aten.matmul", "aten.mm", "aten.bmm", "aten.mv", "aten.dot")
def matmul(call: Call) -> Law:
    """``x[.., m, k] w[.., k, n] -> y[.., m, n]``."""
    return _matrix_law(call, call.args[0], call.args[1])


@rule("aten.addmm", "aten.baddbmm", "aten.addmv", "aten.addbmm")
def addmm(call: Call) -> Law | None:
    """``c[.., n] + x[.., m, k] w[.., k, n]``."""
    if "addbmm" in str(call.target) and "baddbmm" not in str(call.target):
        return None
    bias, left, right = call.args[:3]
    law = _matrix_law(call, left, right)
    if call.kwargs.get("beta", 1) == 0:
        return law
    result = law.results[0] or ()
    operands = list(law.operands)
    aligned = result[len(result) - bias.rank :]
    operands[bias.index] = tuple(() if size == 1 else axis for axis, size in zip(aligned, bias.shape, strict=True))
    return Law(tuple(operands), law.results, (*law.terms, term(bias.index)))


def _expand_ellipsis(part: str, rank: int, width: int) -> list[str]:
    """Letters of one einsum operand; ``...`` becomes the last of ``width`` shared batch letters."""
    if "..." not in part:
        return list(part)
    before, after = part.split("...")
    count = rank - len(before) - len(after)
    return [*before, *(f"e{axis}" for axis in range(width - count, width)), *after]


@rule("aten.einsum")
def einsum(call: Call) -> Law | None:
    """``einsum("bhd,hdo->bo", x, w)``: the equation is the law. A letter twice on one operand has none here."""
    equation, tensors = call.args[0].replace(" ", ""), call.args[1]
    left, _, right = equation.partition("->")
    parts = left.split(",")
    ranks = [tensor.rank - len(part.replace("...", "")) for part, tensor in zip(parts, tensors, strict=True)]
    width = max((rank for part, rank in zip(parts, ranks, strict=True) if "..." in part), default=0)
    names = [_expand_ellipsis(part, tensor.rank, width) for part, tensor in zip(parts, tensors, strict=True)]
    if any(len(set(each)) != len(each) for each in names):
        return None
    if "->" not in equation:
        everything = [letter for each in names for letter in each]
        right = "".join(sorted({letter for letter in everything if everything.count(letter) == 1}))
    shape = call.shapes[0] or ()
    blank: list[Pattern | None] = [None] * len(call.operands)
    for each, tensor in zip(names, tensors, strict=True):
        blank[tensor.index] = sized(tuple(each), tensor.shape)
    result = sized(tuple(_expand_ellipsis(right, len(shape), width)), shape)
    return Law(tuple(blank), (result,), (term(*(tensor.index for tensor in tensors)),))


def _factors(*sizes: tuple[str, int]) -> tuple[str, ...]:
    """A product axis of letters with their sizes, less those of size one."""
    return tuple(letter for letter, size in sizes if size != 1)


def _convolution(call: Call, groups: int, transposed: bool) -> Law:
    x, w = call.args[0], call.args[1]
    space = x.rank - 2
    shape = call.shapes[0] or ()
    inputs, outputs = x.shape[1] // groups, shape[1] // groups
    g, c, o = ("g", groups), ("c", inputs), ("o", outputs)
    first, second = ((g, c), (o,)) if transposed else ((g, o), (c,))
    kernel = tuple(f"k{axis}" for axis in range(space))
    blank: list[Pattern | None] = [None] * len(call.operands)
    blank[x.index] = (
        *sized(("b",), x.shape[:1]), _factors(g, c), *sized(tuple(f"s{axis}" for axis in range(space)), x.shape[2:])
    )  # fmt: skip
    blank[w.index] = (_factors(*first), _factors(*second), *sized(kernel, w.shape[2:]))
    result = (
        *sized(("b",), shape[:1]), _factors(g, o), *sized(tuple(f"t{axis}" for axis in range(space)), shape[2:])
    )  # fmt: skip
    terms = [term(x.index, w.index)]
    bias = call.get(2, "bias")
    if isinstance(bias, Operand):
        blank[bias.index] = (_factors(g, o),)
        terms.append(term(bias.index))
    present = {axis for pattern in (*blank, result) if pattern for axis in pattern if isinstance(axis, str)}
    uses: list[Use] = []
    for letter in sorted(present - {"b"}):
        uses += pin(letter, "position of a convolution")
    return Law(tuple(blank), (result,), tuple(terms), tuple(uses), sizes=(g, c, o))


@rule("aten.conv1d", "aten.conv2d", "aten.conv3d")
def convolution(call: Call) -> Law:
    """``x[b, (g c), s..], w[(g o), c, k..], bias[(g o)] -> y[b, (g o), t..]``; positions are pinned."""
    return _convolution(call, call.get(6, "groups", 1), transposed=False)


@rule("aten.conv_transpose1d", "aten.conv_transpose2d.input", "aten.conv_transpose3d.input")
def transposed_convolution(call: Call) -> Law:
    """``x[b, (g c), s..], w[(g c), o, k..], bias[(g o)] -> y[b, (g o), t..]``."""
    return _convolution(call, call.get(6, "groups", 1), transposed=True)


@rule("aten.convolution")
def general_convolution(call: Call) -> Law:
    """Either of the two, with its flag."""
    return _convolution(call, call.args[8], transposed=call.args[6])


