"""Sums of products over shared axes: linear layers, matrix products, einsum, convolutions.

``x[.., k], w[n, k] -> y[.., n]``: the summed letter asks nothing of its group but that one side transforms with g and
the other with g^-T; a letter on both sides *and* the result (a batch axis, the group of a grouped convolution) keeps its
coordinates.
"""

from __future__ import annotations

from symgraph.rules.examples import Draw, Example, example
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


@rule("aten.linear", examples=lambda draw: [
    example(draw(2, 3, 5), draw(7, 5), draw(7)), example(draw(3, 5), draw(7, 5)), example(draw(5), draw(7, 5), draw(7)),
    example(draw(3, 5), draw(5)), example(draw(3, 1), draw(7, 1), bias=draw(7)),
])  # fmt: skip
def linear(call: Call) -> Law:
    """``x[.., k], w[n, k], c[n] -> y[.., n]``."""
    x, w = call.args[0], call.args[1]
    batch, outputs = lettered(x.shape[:-1]), sized(("n",)[: w.rank - 1], w.shape[:-1])
    bias = call.get(2, "bias")
    blank: list[Pattern | None] = [None] * len(call.operands)
    blank[x.index], blank[w.index] = (*batch, *sized(("k",), x.shape[-1:])), sized(("n", "k")[2 - w.rank :], w.shape)
    law = Law(tuple(blank), ((*batch, *outputs),), (term(x.index, w.index),))
    return _biased(law, bias if isinstance(bias, Operand) else None, ("n",))


def _matrix_law(call: Call, left: Operand, right: Operand) -> Law:
    """Batched ``x[.., m, k] w[.., k, n]`` with broadcast batch axes; vectors stand for one row or column."""
    shape = call.shapes[0] or ()
    rank = len(shape) + (left.rank == 1) + (right.rank == 1)
    names = [f"a{axis}" for axis in range(rank - 2)]

    def batch(operand: Operand) -> Pattern:
        count = max(0, operand.rank - 2)
        return sized(tuple(names[len(names) - count :]), operand.shape[:count])

    rows = sized(("m",), left.shape[-2:-1]) if left.rank > 1 else ()
    columns = sized(("n",), right.shape[-1:]) if right.rank > 1 else ()
    blank: list[Pattern | None] = [None] * len(call.operands)
    blank[left.index] = (*batch(left), *rows, *sized(("k",), left.shape[-1:]))
    blank[right.index] = (*batch(right), *sized(("k",), right.shape[-2:-1] if right.rank > 1 else right.shape), *columns)
    result = (*sized(tuple(names), shape[: len(names)]), *rows, *columns)
    return Law(tuple(blank), (result,), (term(left.index, right.index),))


def _products(draw: Draw) -> list[Example]:
    x = draw(3, 5)
    return [
        example(draw(3, 5), draw(5, 7)), example(draw(3, 5, 7), draw(3, 7, 11)), example(draw(3, 5), draw(5)),
        example(draw(5), draw(5)), example(draw(3, 1, 5, 7), draw(11, 7, 13)), example(draw(5), draw(3, 5, 7)),
        example(x, x.mT), example(x, draw(5, 1)),
    ]  # fmt: skip


@rule("aten.matmul", "aten.mm.default", "aten.bmm.default", "aten.mv", "aten.dot", "aten.vdot", "aten.linalg_matmul",
      examples=_products)  # fmt: skip
def matmul(call: Call) -> Law:
    """``x[.., m, k] w[.., k, n] -> y[.., m, n]``."""
    return _matrix_law(call, call.args[0], call.args[1])


def _summand(call: Call, law: Law) -> Law:
    """The law plus the first operand, broadcast to the result; with ``beta`` zero it is not read."""
    bias, result = call.args[0], law.results[0] or ()
    if call.get(3, "beta", 1) == 0:
        return law
    operands = list(law.operands)
    aligned = result[len(result) - bias.rank :]
    operands[bias.index] = tuple(() if size == 1 else axis for axis, size in zip(aligned, bias.shape, strict=True))
    return Law(tuple(operands), law.results, (*law.terms, term(bias.index)))


@rule("aten.addmm.default", "aten.baddbmm.default", "aten.addmv", examples=lambda draw: [
    example(draw(7), draw(3, 5), draw(5, 7)), example(draw(3, 7), draw(3, 5), draw(5, 7), beta=2, alpha=3),
    example(draw(3, 7), draw(3, 5), draw(5, 7), beta=0), example(draw(3, 5, 11), draw(3, 5, 7), draw(3, 7, 11)),
    example(draw(3), draw(3, 5), draw(5)), example(draw(1, 5, 1), draw(3, 5, 7), draw(3, 7, 11)),
])  # fmt: skip
def addmm(call: Call) -> Law:
    """``c[.., n] + x[.., m, k] w[.., k, n]``."""
    return _summand(call, _matrix_law(call, call.args[1], call.args[2]))


@rule("aten.addbmm", examples=lambda draw: [example(draw(5, 11), draw(3, 5, 7), draw(3, 7, 11))])
def addbmm(call: Call) -> Law:
    """``c[m, n] + x[b, m, k] w[b, k, n]``, summed over b as well."""
    left, right = call.args[1], call.args[2]
    patterns = (None, sized(("b", "m", "k"), left.shape), sized(("b", "k", "n"), right.shape))
    return _summand(call, Law(patterns, (sized(("m", "n"), call.shapes[0] or ()),), (term(1, 2),)))


@rule("aten.addr", "aten.outer", "aten.ger", examples=lambda draw: [
    example(draw(3, 5), draw(3), draw(5)), example(draw(3), draw(5)),
])  # fmt: skip
def outer(call: Call) -> Law:
    """``x[m] w[n] -> y[m, n]``, with or without a summand."""
    patterns = (*(None,) * (len(call.operands) - 2), *(sized((name,), each.shape) for name, each in
                                                       zip("mn", call.operands[-2:], strict=True)))  # fmt: skip
    last = len(call.operands)
    law = Law(patterns, (sized(("m", "n"), call.shapes[0] or ()),), (term(last - 2, last - 1),))
    return _summand(call, law) if last == 3 else law


def _expand_ellipsis(part: str, rank: int, width: int) -> list[str]:
    """Letters of one einsum operand; ``...`` becomes the last of ``width`` shared batch letters."""
    if "..." not in part:
        return list(part)
    before, after = part.split("...")
    count = rank - len(before) - len(after)
    return [*before, *(f"e{axis}" for axis in range(width - count, width)), *after]


def _equations(draw: Draw) -> list[Example]:
    x = draw(3, 5, 7)
    return [
        example("bhd,hdo->bo", [draw(3, 5, 7), draw(5, 7, 11)]), example("...k,nk->...n", [draw(3, 5, 7), draw(11, 7)]),
        example("abc,abc->ab", [x, x]), example("bik,bjk->bij", [x, x]), example("ab->b", [draw(3, 5)]),
        example("ab,ac,ad->bcd", [draw(3, 5), draw(3, 7), draw(3, 11)]), example("i,j", [draw(3), draw(5)]),
        example("...ik,kj", [draw(3, 5, 7), draw(7, 11)]), example("bs,bs->bs", [draw(3, 5), draw(1, 5)]),
        example("ii->i", [draw(5, 5)]),
    ]  # fmt: skip


@rule("aten.einsum", examples=_equations)
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
        right = "..." * ("..." in left)
        right += "".join(sorted({letter for letter in everything if len(letter) == 1 and everything.count(letter) == 1}))
    shape = call.shapes[0] or ()
    blank: list[Pattern | None] = [None] * len(call.operands)
    for each, tensor in zip(names, tensors, strict=True):
        blank[tensor.index] = sized(tuple(each), tensor.shape)
    result = sized(tuple(_expand_ellipsis(right, len(shape), width)), shape)
    return Law(tuple(blank), (result,), (term(*(tensor.index for tensor in tensors)),))


def _factors(*sizes: tuple[str, int]) -> tuple[str, ...]:
    """A product axis of letters with their sizes, less those of size one."""
    return tuple(letter for letter, size in sizes if size != 1)


def _convolution(call: Call, groups: int, transposed: bool, padding: object) -> Law:
    x, w = call.args[0], call.args[1]
    shape = call.shapes[0] or ()
    first = x.rank - (w.rank - 2) - 1
    inputs, outputs = x.shape[first] // groups, shape[first] // groups
    g, c, o = ("g", groups), ("c", inputs), ("o", outputs)
    rows, columns = ((g, c), (o,)) if transposed else ((g, o), (c,))
    batch = lettered(x.shape[:first], "b")
    blank: list[Pattern | None] = [None] * len(call.operands)
    blank[x.index] = (*batch, _factors(g, c), *lettered(x.shape[first + 1 :], "s"))
    blank[w.index] = (_factors(*rows), _factors(*columns), *lettered(w.shape[2:], "k"))
    result = (*batch, _factors(g, o), *lettered(shape[first + 1 :], "t"))
    terms = [term(x.index, w.index)]
    bias = call.get(2, "bias")
    if isinstance(bias, Operand):
        blank[bias.index] = (_factors(g, o),)
        terms.append(term(bias.index))
    present = {axis for pattern in (*blank, result) if pattern for axis in pattern if isinstance(axis, str)}
    uses: list[Use] = []
    for letter in sorted(present - set(batch)):
        uses += pin(letter, "position of a convolution")
    uniform = not transposed and padding in (0, "valid", [0] * (w.rank - 2), [0], (0,) * (w.rank - 2))
    return Law(tuple(blank), (result,), tuple(terms), tuple(uses), sizes=(g, c, o), uniform=uniform)


def _convolutions(draw: Draw) -> list[Example]:
    return [
        example(draw(3, 5, 11), draw(7, 5, 3), draw(7)), example(draw(2, 15, 7), draw(21, 5, 3), draw(21), [1], [1], [1], 3),
        example(draw(3, 5, 7, 11), draw(7, 5, 3, 1), None, [1, 2], [1, 0]), example(draw(5, 7, 11), draw(3, 5, 3, 3), draw(3)),
        example(draw(3, 5, 7, 11), draw(5, 1, 3, 3), draw(5), [1, 1], "same", [1, 1], 5), example(draw(3, 5, 7), draw(7, 5, 1)),
        example(draw(2, 3, 5, 5, 5), draw(7, 3, 3, 3, 3), draw(7)), example(draw(3, 5, 7), draw(7, 5, 3), None, [1], "same"),
        example(draw(2, 3, 5, 5, 5), draw(7, 3, 3, 3, 3), draw(7), [1, 1, 1], "valid"),
    ]  # fmt: skip


@rule("aten.conv1d", "aten.conv2d", "aten.conv3d", examples=_convolutions)
def convolution(call: Call) -> Law:
    """``x[b, (g c), s..], w[(g o), c, k..], bias[(g o)] -> y[b, (g o), t..]``; positions are pinned."""
    return _convolution(call, call.get(6, "groups", 1), transposed=False, padding=call.get(4, "padding", 0))


@rule("aten.conv_transpose1d", "aten.conv_transpose2d.input", "aten.conv_transpose3d.input", examples=lambda draw: [
    example(draw(3, 5, 11), draw(5, 7, 3), draw(7)), example(draw(2, 15, 7), draw(15, 7, 3), draw(21), [2], [1], [1], 3),
    example(draw(3, 5, 7, 11), draw(5, 7, 3, 3), draw(7), [2, 1]), example(draw(2, 3, 5, 5, 5), draw(3, 7, 3, 3, 3)),
])  # fmt: skip
def transposed_convolution(call: Call) -> Law:
    """``x[b, (g c), s..], w[(g c), o, k..], bias[(g o)] -> y[b, (g o), t..]``."""
    return _convolution(call, call.get(6, "groups", 1), transposed=True, padding=call.get(4, "padding", 0))


@rule("aten.convolution", "aten._convolution.deprecated", examples=lambda draw: [
    example(draw(3, 5, 11), draw(7, 5, 3), draw(7), [2], [1], [1], False, [0], 1),
    example(draw(3, 5, 7, 11), draw(5, 7, 3, 3), draw(7), [2, 2], [0, 0], [1, 1], True, [0, 0], 1),
    example(draw(2, 15, 7), draw(21, 5, 3), None, [1], [1], [1], False, [0], 3),
    example(draw(3, 5, 11), draw(7, 5, 3), None, [2], [0], [1], False, [0], 1),
    example(draw(3, 5, 11), draw(7, 5, 3), draw(7), [2], [1], [1], False, [0], 1, False, False, False),
])  # fmt: skip
def general_convolution(call: Call) -> Law:
    """Either of the two, with its flag."""
    return _convolution(call, call.args[8], transposed=call.args[6], padding=call.args[4])


@rule("aten.bilinear", examples=lambda draw: [example(draw(3, 5), draw(3, 7), draw(11, 5, 7), draw(11))])
def bilinear(call: Call) -> Law:
    """``x[.., i], z[.., j], w[n, i, j], c[n] -> y[.., n]``."""
    x, z, w = call.args[:3]
    batch = lettered(x.shape[:-1])
    patterns = [(*batch, *sized(("i",), x.shape[-1:])), (*batch, *sized(("j",), z.shape[-1:])), sized(("n", "i", "j"), w.shape)]
    bias = call.get(3, "bias")
    law = Law((*patterns, None) if isinstance(bias, Operand) else tuple(patterns), ((*batch, *sized(("n",), w.shape[:1])),),
              (term(0, 1, 2),))  # fmt: skip
    return _biased(law, bias if isinstance(bias, Operand) else None, ("n",))
