"""What a law claims of every letter, elements of that group, and elements of the next larger one."""

from __future__ import annotations

from itertools import product

import torch
from torch import Tensor

from symgraph.rules import Structure
from tests.rules.equivariance import Case, Element, Slot, act, close, exponents, holds, null_space, signs, slots

EXPONENTS = (-1.0, 0.0, 0.5, 1.0, 2.0)
MOST = 60
"""Exponents and signs that are tried one by one; more of them are sampled."""


def kind(found: Case, letter: str) -> str:
    """The group that the law claims along a letter."""
    structures = found.structures(letter)
    for structure, name in ((Structure.ANCHOR, "pinned"), (Structure.FIXED, "scaled"), (Structure.COORDINATES, "monomial"),
                            (Structure.OPERATOR, "commutant"), (Structure.ONES, "ones")):  # fmt: skip
        if structure in structures:
            return name
    return "linear" if variances(found, letter) else "orthogonal"


def variances(found: Case, letter: str) -> list[tuple[Slot, ...]]:
    """All ways to pair covariant with contravariant slots; each gives the contravariant ones."""
    unknown, basis = exponents(found, letter)
    ways = []
    for choice in product((1.0, -1.0), repeat=len(unknown)):
        vector = torch.tensor(choice, dtype=torch.float64)
        if float((vector - basis.T @ (basis @ vector)).abs().max()) < 1e-8:
            ways.append(tuple(slot for slot, sign in zip(unknown, choice, strict=True) if sign < 0))
    return ways


# --- samples ----------------------------------------------------------------------------------------------------------


class Sampler:
    """Elements for one case, all from one generator."""

    def __init__(self, found: Case, seed: int) -> None:
        self.found = found
        self.generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.generator, dtype=torch.float64)

    def orthogonal(self, count: int, size: int) -> Tensor:
        return torch.linalg.qr(self.normal(count, size, size))[0]

    def linear(self, count: int, size: int) -> Tensor:
        spread = torch.exp(0.4 * self.normal(count, size, 1))
        return self.orthogonal(count, size) @ (spread * self.orthogonal(count, size))

    def fixing_ones(self, count: int, size: int) -> Tensor:
        basis = torch.linalg.qr(torch.cat([torch.ones(size, 1, dtype=torch.float64), self.normal(size, size - 1)], 1))[0]
        inner = torch.eye(size, dtype=torch.float64).repeat(count, 1, 1)
        inner[:, 1:, 1:] = self.orthogonal(count, size - 1)
        return basis @ inner @ basis.T

    def commuting(self, count: int, letter: str) -> Tensor:
        matrices = next(use.operators for use in self.found.law.uses if use.letter == letter and use.operators is not None)
        size = matrices.shape[-1]
        eye = torch.eye(size, dtype=torch.float64)
        rows = torch.cat([torch.kron(each, eye) - torch.kron(eye, each.T.contiguous()) for each in matrices])
        basis = null_space(rows, size * size).reshape(-1, size, size)
        return eye + 0.3 * torch.einsum("cb,bij->cij", self.normal(count, basis.shape[0]), basis)

    def permutation(self, size: int) -> Tensor:
        while True:
            found = torch.randperm(size, generator=self.generator)
            if size < 3 or not torch.equal(found, torch.arange(size)):
                return found

    def dense(self, letter: str, matrices: Tensor) -> Element:
        """The matrices on every slot, inverse transposed where the letter is contravariant."""
        ways = variances(self.found, letter) or [()]
        below = ways[int(torch.randint(len(ways), (), generator=self.generator))]
        dual = torch.linalg.inv(matrices).mT
        return Element({slot: dual if slot in below else matrices for slot in slots(self.found, letter)})

    def monomial(self, letter: str, count: int, move: bool = True) -> Element:
        size = self.found.sizes[letter]
        unknown, basis = exponents(self.found, letter)
        logs = torch.einsum("gs,gcn->scn", basis, 0.4 * self.normal(basis.shape[0], count, size))
        _, allowed = signs(self.found, letter)
        picked = torch.randint(len(allowed), (count, size), generator=self.generator)
        sign = torch.tensor(allowed, dtype=torch.float64).reshape(len(allowed), len(unknown))[picked].movedim(-1, 0)
        orders = torch.stack([self.permutation(size) if move else torch.arange(size) for _ in range(count)])
        matrix = torch.eye(size, dtype=torch.float64)[orders]
        scaled = {slot: matrix * (logs[index].exp() * sign[index]).unsqueeze(-2) for index, slot in enumerate(unknown)}
        return Element(scaled, permutations={letter: orders[0]} if count == 1 else {})

    def element(self, letter: str, per: str | None = None) -> Element | None:
        """An element of the group along a letter, different for every index of another one; None where nothing moves."""
        name, size = kind(self.found, letter), self.found.sizes[letter]
        count = self.found.sizes[per] if per else 1
        if name == "pinned":
            return None
        if name in ("scaled", "monomial"):
            found = self.monomial(letter, count, move=name == "monomial")
        elif name == "linear":
            found = self.dense(letter, self.linear(count, size))
        elif name == "commutant":
            found = self.dense(letter, self.commuting(count, letter))
        else:
            found = self.dense(letter, (self.orthogonal if name == "orthogonal" else self.fixing_ones)(count, size))
        if per:
            found.per[letter] = per
        return found

    def whole(self) -> Element:
        """Scales and signs of whole tensors."""
        unknown, basis = exponents(self.found, "")
        logs = basis.T @ (0.4 * self.normal(basis.shape[0]))
        _, allowed = signs(self.found, "")
        sign = allowed[int(torch.randint(len(allowed), (), generator=self.generator))]
        return Element(numbers={slot: float(logs[index].exp()) * sign[index] for index, slot in enumerate(unknown)})


def join(*elements: Element | None) -> Element:
    """Elements along different letters, as one."""
    found = Element()
    for each in elements:
        if each is not None:
            found.matrices.update(each.matrices)
            found.numbers.update(each.numbers)
            found.per.update(each.per)
            found.permutations.update(each.permutations)
    return found


def may_depend(found: Case) -> list[tuple[str, str]]:
    """Pairs (letter, other): what moves along the letter may differ for every index of the other.

    Not for spaces that integers point to: whether the integers can follow is a question of the whole program.
    """
    near: dict[str, set[str]] = {}
    shown = [(found.places[place], pattern) for place, pattern in zip(found.operand_place, found.patterns, strict=True)]
    results = found.places[len(set(found.operand_place)) :]
    shown += [(place, pattern or ()) for place, pattern in zip(results, found.law.results, strict=False)]
    twice = set()
    for place, pattern in shown:
        for block in found.blocks(place, pattern) if not place.known else ():
            flat = [each for group in block.letters for each in group]
            spaces = [found.same.get(each, each) for each in flat]
            twice |= {each for each in flat if spaces.count(found.same.get(each, each)) > 1}
            for letter in flat:
                near[letter] = near.get(letter, set(flat)) & set(flat) - {letter}
    pointed = {place.pointed for place in found.places if place.pointed}
    pairs = {(letter, other) for letter, others in near.items() for other in others - set(found.law.mixes) - twice}
    merged = {(found.same.get(letter, letter), found.same.get(other, other))
              for letter, other in pairs if letter not in pointed}  # fmt: skip
    return sorted(pair for pair in merged if _everywhere(found, *pair, pairs))


def _everywhere(found: Case, letter: str, other: str, pairs: set[tuple[str, str]]) -> bool:
    """Whether all letters of the space may depend on the other."""
    members = [each for each, leader in found.same.items() if leader == letter]
    return all(any((each, outer) in pairs for outer in (other, *(o for o, leader in found.same.items() if leader == other)))
               for each in (letter, *members))  # fmt: skip


# --- checks -----------------------------------------------------------------------------------------------------------


def unsound(found: Case, seed: int = 0) -> list[str]:
    """Claims of the law that are wrong, in words."""
    sampler, wrong = Sampler(found, seed), []
    letters = found.letters()
    for letter in letters:
        element = sampler.element(letter)
        if element is not None and not holds(found, element):
            wrong.append(f"{letter}: {kind(found, letter)}")
    if not holds(found, sampler.whole()):
        wrong.append("scales of whole tensors")
    if not wrong and not holds(found, join(*(sampler.element(letter) for letter in letters), sampler.whole())):
        wrong.append("all letters at once")
    for letter, other in may_depend(found):
        element = sampler.element(letter, other)
        outer = _outer(sampler, other)
        if element is not None and not holds(found, join(element, outer)):
            wrong.append(f"{letter} for every index of {other}")
    wrong += [f"operand {index} has no pattern and is read" for index in _ignored(found) if not _unread(found, index, sampler)]
    return wrong


def _outer(sampler: Sampler, letter: str) -> Element | None:
    """A permutation of what another letter depends on, where it may be permuted at all."""
    if kind(sampler.found, letter) in ("pinned", "scaled", "commutant"):
        return None
    return _moving(sampler, letter)


def _ignored(found: Case) -> list[int]:
    return [operand.index for operand in found.call.operands
            if found.law.operands[operand.index] is None and operand.value is None]  # fmt: skip


def _unread(found: Case, index: int, sampler: Sampler) -> bool:
    tensors = list(found.tensors)
    if not tensors[index].is_floating_point():
        return True
    other = sampler.normal(*tensors[index].shape).to(tensors[index].dtype)
    tensors[index] = other
    return all(torch.equal(first, second) for first, second in zip(found.run(tensors), found.run(found.tensors), strict=True))


def too_small(found: Case, seed: int = 0) -> list[str]:
    """Letters along which a larger group would hold as well, in words."""
    sampler, larger = Sampler(found, seed + 1), []
    for letter in found.letters():
        name, size = kind(found, letter), found.sizes[letter]
        if size < 3:
            continue
        if name in ("pinned", "scaled"):
            if all(holds(found, _moving(sampler, letter)) for _ in range(6)):
                larger.append(f"{letter}: permutations ({name})")
        elif name in ("monomial", "ones", "commutant"):
            integers = any(not found.places[slot[0]].real for slot in slots(found, letter))
            if not integers and holds(found, sampler.dense(letter, sampler.orthogonal(1, size))):
                larger.append(f"{letter}: rotations ({name})")
        elif name == "orthogonal" and holds(found, sampler.dense(letter, sampler.linear(1, size))):
            larger.append(f"{letter}: all linear maps ({name})")
        if name == "monomial":
            larger += [f"{letter}: {what}" for what in _more_scales(found, letter, sampler)]
    larger += [f"whole tensors: {what}" for what in _more_scales(found, "", sampler)]
    return larger


def _moving(sampler: Sampler, letter: str) -> Element:
    size = sampler.found.sizes[letter]
    order = sampler.permutation(size)
    matrix = torch.eye(size, dtype=torch.float64)[order].unsqueeze(0)
    return Element(dict.fromkeys(slots(sampler.found, letter), matrix), permutations={letter: order})


def _more_scales(found: Case, letter: str, sampler: Sampler) -> list[str]:
    """Exponents and signs that hold at every single index and are not claimed."""
    unknown, basis = exponents(found, letter)
    free = [index for index, slot in enumerate(unknown) if found.places[slot[0]].real and not found.places[slot[0]].known]
    more: list[str] = []
    for candidate in _candidates(EXPONENTS, len(free), sampler.generator):
        vector = torch.zeros(len(unknown), dtype=torch.float64)
        vector[free] = torch.tensor(candidate, dtype=torch.float64)
        claimed = float((vector - basis.T @ (basis @ vector)).abs().max()) < 1e-8
        if not claimed and _anywhere(found, letter, unknown, [1.7 ** float(each) for each in vector]):
            more.append(f"exponents {[float(each) for each in vector]}")
    _, allowed = signs(found, letter)
    for chosen in _candidates((1, -1), len(free), sampler.generator):
        sign = [1.0] * len(unknown)
        for index, each in zip(free, chosen, strict=True):
            sign[index] = each
        if tuple(int(each) for each in sign) not in allowed and _anywhere(found, letter, unknown, sign):
            more.append(f"signs {sign}")
    return more


def _candidates(values: tuple[float, ...], count: int, generator: torch.Generator) -> list[tuple[float, ...]]:
    if len(values) ** count <= 4 * MOST:
        return list(product(values, repeat=count))
    picks = torch.randint(len(values), (MOST, count), generator=generator).tolist()
    return [tuple(values[index] for index in row) for row in picks]


def _anywhere(found: Case, letter: str, unknown: list[Slot], factors: list[float]) -> bool:
    """Whether the factors may be applied at any one index."""
    if not letter:
        return holds(found, Element(numbers=dict(zip(unknown, factors, strict=True))))
    size = found.sizes[letter]

    def at(index: int) -> Element:
        matrices = {}
        for slot, factor in zip(unknown, factors, strict=True):
            diagonal = torch.ones(size, dtype=torch.float64)
            diagonal[index] = factor
            matrices[slot] = torch.diag(diagonal).unsqueeze(0)
        return Element(matrices)

    return all(holds(found, at(index)) for index in range(size))


__all__ = ["act", "close", "kind", "may_depend", "too_small", "unsound"]
