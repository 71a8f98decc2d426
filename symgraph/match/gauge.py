"""A representative of every class of shifts: what a shift can set to zero, is zero.

A shift adds ``T v`` to its first target with a fixed map T (it reads no weights), and something that depends on v to the
others. The representative has ``T^T target = 0``: nothing left of the target that the shift could remove. The condition
is kept by all linear groups, so two checkpoints that are the same up to symmetry still are after it, without shifts.

A projective shift, by the maps ``I + v 1^T``, brings the vector that it divides to a multiple of the ones with norm one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from symgraph.spec import shifts
from symgraph.spec.model import Shift, ShiftTerm, SymmetrySpec
from symgraph.spec.stages import Stage
from symgraph.spec.state import State, held, names
from symgraph.spec.transform import Transform

ROUNDS = 4  # shifts that feed each other settle in as many rounds as their chain is long against the order
TINY = 1e-14  # a value this small against what it is added to is rounding
DENSE = 5 * 10**7  # entries of the largest dense least-squares problem

Current = dict[str, Tensor]


def gauge(spec: SymmetrySpec, state: State) -> Transform:
    """The transform, of shifts alone, that brings a canonical state to its representative."""
    if not spec.shifts:
        return Transform(spec)
    current: Current = {}
    for tensor in held(spec, state):
        value = state[names(tensor, state)[0]]
        if value.is_floating_point():
            current.update(dict.fromkeys((tensor.name, *tensor.aliases), value.detach().double()))
    done: list[tuple[str, Tensor]] = []
    for _ in range(ROUNDS):
        moved = False
        for shift in sorted(spec.shifts, key=lambda one: one.projective):
            for value in _projective(shift, current) if shift.projective else _plain(shift, current):
                changed = _add(shift, value, current)
                if changed:
                    done.append((shift.name, value))
                    moved = True
        if not moved:
            break
    return Transform(spec, (Stage({}, tuple(done)),) if done else ())


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


def _plain(shift: Shift, current: Current) -> list[Tensor]:
    """The value that removes from the first fixed target what it can."""
    term = next((one for one in shift.terms if not one.reads and not one.target.reciprocal), None)
    if term is None:
        return []
    window = shifts.window_of(term.target, current[term.target.tensor])
    size = float(window.abs().max())
    pull = torch.func.vjp(lambda v: _window(term, v, current), torch.zeros(shift.shape, dtype=torch.float64))[1]
    spread = pull(_window(term, torch.ones(shift.shape, dtype=torch.float64), current))[0]
    value = -pull(window)[0] / spread
    return [value] if float(value.abs().max()) > TINY * max(size, 1e-300) else []


def _window(term: ShiftTerm, value: Tensor, current: Current) -> Tensor:
    """What the term adds inside of its target's window."""
    amount: Tensor = torch.einsum(term.equation, value) * term.coefficient
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
    total = float(window.sum())  # is divided by 1 + sum(v): becomes sqrt(n), the sum of a vector of ones with norm one
    return [found, ones * (total / found.numel() ** 0.5 - 1.0)]


def _least_squares(shift: Shift, terms: list[ShiftTerm], current: Current) -> Tensor | None:
    """The value with sum zero that makes the targets of ``terms`` least, to first order (exact for sum zero)."""
    count = int(torch.tensor(shift.shape).prod())
    if not terms or sum(current[term.target.tensor].numel() for term in terms) * count > DENSE:
        return None
    columns = shifts.columns(shift.model_copy(update={"terms": tuple(terms)}), current)
    matrix = torch.cat([values for _, values in columns])
    target = torch.cat([current[name].reshape(-1) for name, _ in columns])
    centred = matrix - matrix.mean(1, keepdim=True)  # the same map on the part of v that sums to zero
    value: Tensor = -torch.linalg.lstsq(centred, target, driver="gelsd").solution
    return (value - value.mean()).reshape(shift.shape)
