"""A representative of every class of shifts: what a shift can set to zero, is zero.

A shift adds ``T v`` to its first target, and something that depends on v to the others. Together the shifts with the same
first target span a subspace; the representative is orthogonal to it. The condition is kept by all linear groups, so two
checkpoints that are the same up to symmetry still are after it, without shifts.

A projective shift, by the maps ``I + v 1^T``, brings the vector that it divides to a constant vector of norm one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod

import torch
from torch import Tensor

from symgraph.spec import shifts
from symgraph.spec.model import Shift, ShiftTerm, SymmetrySpec, View
from symgraph.spec.stages import Stage
from symgraph.spec.state import State, held, names
from symgraph.spec.transform import Transform

ROUNDS = 4  # shifts that feed each other settle in as many rounds as their chain is long against the order
TINY = 1e-14  # a value this small against what it is added to is rounding
RANK = 1e-11  # eigenvalues of a Gram matrix below this, relative to the largest, are zero
DENSE = 5 * 10**7  # entries of the largest dense least-squares problem

Current = dict[str, Tensor]


def gauge(spec: SymmetrySpec, state: State, chosen: Collection[str] | None = None) -> Transform:
    """The transform, of shifts alone (those named in ``chosen``), that brings a canonical state to its representative."""
    found = [shift for shift in spec.shifts if chosen is None or shift.name in chosen]
    if not found:
        return Transform(spec)
    current: Current = {}
    for tensor in held(spec, state):
        value = state[names(tensor, state)[0]]
        if value.is_floating_point():
            current.update(dict.fromkeys((tensor.name, *tensor.aliases), value.detach().double()))
    done: list[tuple[str, Tensor]] = []
    for _ in range(ROUNDS):
        before = len(done)
        for group in _by_target(found):
            for shift, value in _joint(group, current):
                if _add(shift, value, current):
                    done.append((shift.name, value))
        for shift in found:
            for value in _projective(shift, current) if shift.projective else []:
                if _add(shift, value, current):
                    done.append((shift.name, value))
        if len(done) == before:
            break
    return Transform(spec, (Stage({}, tuple(done)),) if done else ())


def _by_target(found: Sequence[Shift]) -> list[list[Shift]]:
    """Plain shifts whose first targets overlap, together; in the order of the spec."""
    groups: list[list[Shift]] = []
    for shift in found:
        first = shift.terms[0]
        if shift.projective or first.target.tensor in {view.tensor for view in first.reads}:
            continue
        met = [group for group in groups if any(_overlap(first.target, one.terms[0].target) for one in group)]
        groups = [group for group in groups if group not in met] + [[one for group in met for one in group] + [shift]]
    return groups


def _overlap(one: View, other: View) -> bool:
    """Whether two windows share entries; windows of different shapes of one tensor are taken to."""
    if one.tensor != other.tensor or one.shape != other.shape:
        return one.tensor == other.tensor
    return all(max(a[0], b[0]) < min(a[1], b[1]) for a, b in zip(one.window, other.window, strict=True))


def _add(shift: Shift, value: Tensor, current: Current) -> bool:
    """Add the shift to the current weights; whether it was more than rounding."""
    changed = False
    for target, amount in shifts.amounts(shift, value, current):
        size = float(current[target].abs().max())
        changed |= float(amount.abs().max()) > TINY * max(size, float(value.abs().max()))
        moved = current[target] + amount
        for name, tensor in list(current.items()):
            if tensor is current[target] and name != target:
                current[name] = moved
        current[target] = moved
    return changed


def _joint(group: Sequence[Shift], current: Current) -> list[tuple[Shift, Tensor]]:
    """Values for all shifts of a group: what they can remove from their common first target."""
    target = current[group[0].terms[0].target.tensor]
    counts = [prod(shift.shape) for shift in group]
    if len(group) == 1 or sum(counts) * target.numel() > DENSE:
        alone = [_alone(shift, current) for shift in group]
        if len(group) > 1 or alone[0] is not None:
            return [(shift, value) for shift, value in zip(group, alone, strict=True) if value is not None]
    if sum(counts) * target.numel() > DENSE:
        return []
    firsts = [shift.model_copy(update={"terms": shift.terms[:1]}) for shift in group]
    matrix = torch.cat([shifts.columns(shift, current)[0][1] for shift in firsts], 1)
    gram = torch.linalg.pinv(matrix.mT @ matrix, hermitian=True, rtol=RANK)
    found: Tensor = -gram @ (matrix.mT @ target.reshape(-1))
    return [(shift, part.reshape(shift.shape)) for shift, part in zip(group, torch.split(found, counts), strict=True)]


def _alone(shift: Shift, current: Current) -> Tensor | None:
    """The value for one shift whose ``T^T T`` is diagonal; None if it is not."""
    term = shift.terms[0]
    window = shifts.window_of(term.target, current[term.target.tensor])
    zero = torch.zeros(shift.shape, dtype=torch.float64)

    def add(value: Tensor) -> Tensor:
        return _window(term, value, current)

    pull = torch.func.vjp(add, zero)[1]
    gram = pull(add(zero + 1))[0]
    probe = torch.linspace(0.5, 1.5, zero.numel(), dtype=torch.float64).reshape(shift.shape)
    if not torch.allclose(pull(add(probe))[0], gram * probe, rtol=1e-9):
        return None
    value: Tensor = -pull(window)[0] / torch.where(gram > 0, gram, 1.0)
    return value


def _window(term: ShiftTerm, value: Tensor, current: Current) -> Tensor:
    """What the term adds inside of its target's window."""
    reads = [shifts.window_of(view, current[view.tensor]) for view in term.reads]
    amount: Tensor = torch.einsum(term.equation, value, *reads) * term.coefficient
    return amount.expand([stop - start for start, stop in term.target.window])


def _projective(shift: Shift, current: Current) -> list[Tensor]:
    """First along the vectors that sum to zero, where the group is plain addition; then along the ones, a scaling."""
    divided = [term for term in shift.terms if term.divided]
    others = [term for term in shift.terms if not term.divided]
    if len(divided) != 1:
        return []
    window = shifts.window_of(divided[0].target, current[divided[0].target.tensor])
    seen = abs(float(window.sum())) > 1e-10 * max(float(window.norm()), 1e-300)
    terms = divided if seen else others
    found = _least_squares(shift, terms, current)
    if found is None:
        return []
    ones = torch.ones(shift.shape, dtype=torch.float64) / found.numel()
    if not seen:
        return [found]
    total = abs(float(window.sum()))  # is divided by 1 + sum(v): becomes sqrt(n), as in a constant vector of norm one
    return [found, ones * (total / found.numel() ** 0.5 - 1.0)]


def _least_squares(shift: Shift, terms: list[ShiftTerm], current: Current) -> Tensor | None:
    """The value with sum zero that makes the targets of ``terms`` least, to first order (exact for sum zero)."""
    count = prod(shift.shape)
    if not terms or sum(current[term.target.tensor].numel() for term in terms) * count > DENSE:
        return None
    columns = shifts.columns(shift.model_copy(update={"terms": tuple(terms)}), current)
    matrix = torch.cat([values for _, values in columns])
    target = torch.cat([current[name].reshape(-1) for name, _ in columns])
    centred = matrix - matrix.mean(1, keepdim=True)  # the same map on the part of v that sums to zero
    value: Tensor = -torch.linalg.pinv(centred.mT @ centred, hermitian=True, rtol=RANK) @ (centred.mT @ target)
    return (value - value.mean()).reshape(shift.shape)
