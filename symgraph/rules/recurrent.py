"""Recurrent layers, written out step by step.

    i, f, g, o = x[t] w_ih^T + h w_hh^T + b        c' = s(f) c + s(i) tanh(g)        h' = s(o) tanh(c')

The hidden units keep their permutations, and the signs that the odd functions let through: nothing has to be said of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from symgraph.rules.examples import Draw, Example, example
from symgraph.rules.registry import composite

State = tuple[Tensor, ...]
Cell = Callable[[Tensor, State, Sequence[Tensor]], State]


def _gates(x: Tensor, h: Tensor, weights: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """What the input and what the state add to all gates."""
    first, second, *biases = weights
    b1, b2 = biases if biases else (None, None)
    return torch.nn.functional.linear(x, first, b1), torch.nn.functional.linear(h, second, b2)


def _lstm_cell(x: Tensor, state: State, weights: Sequence[Tensor]) -> State:
    h, c = state
    projection = weights[-1] if len(weights) in (3, 5) else None
    first, second = _gates(x, h, weights[: len(weights) // 2 * 2])
    i, f, g, o = (first + second).chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    h = torch.sigmoid(o) * torch.tanh(c)
    return (h if projection is None else torch.nn.functional.linear(h, projection)), c


def _gru_cell(x: Tensor, state: State, weights: Sequence[Tensor]) -> State:
    first, second = _gates(x, state[0], weights)
    r1, z1, n1 = first.chunk(3, -1)
    r2, z2, n2 = second.chunk(3, -1)
    r, z = torch.sigmoid(r1 + r2), torch.sigmoid(z1 + z2)
    n = torch.tanh(n1 + r * n2)
    return ((1 - z) * n + z * state[0],)


def _simple_cell(function: Callable[[Tensor], Tensor]) -> Cell:
    def cell(x: Tensor, state: State, weights: Sequence[Tensor]) -> State:
        first, second = _gates(x, state[0], weights)
        return (function(first + second),)

    return cell


def _run(
    cell: Cell, x: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor], layers: int, dropout: float, train: bool,
    bidirectional: bool, batch_first: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """All layers and directions over all steps: outputs [t, b, h] and the last states, one for every layer and direction."""
    steps = x.transpose(0, 1) if batch_first else x
    directions = 2 if bidirectional else 1
    each = len(weights) // (layers * directions)
    last: list[State] = []
    for layer in range(layers):
        outputs = []
        for direction in range(directions):
            position = layer * directions + direction
            state: State = tuple(value[position] for value in states)
            own = weights[position * each : (position + 1) * each]
            order = range(steps.shape[0]) if direction == 0 else reversed(range(steps.shape[0]))
            found: dict[int, Tensor] = {}
            for step in order:
                state = cell(steps[step], state, own)
                found[step] = state[0]
            outputs.append(torch.stack([found[step] for step in sorted(found)]))
            last.append(state)
        steps = torch.cat(outputs, -1) if directions == 2 else outputs[0]
        if dropout and train and layer + 1 < layers:
            steps = torch.dropout(steps, dropout, True)
    result = steps.transpose(0, 1) if batch_first else steps
    return (result, *(torch.stack([state[index] for state in last]) for index in range(len(states))))


def _weights(draw: Draw, gates: int, inputs: int, hidden: int, layers: int, directions: int) -> list[Tensor]:
    found = []
    for layer in range(layers):
        width = inputs if layer == 0 else hidden * directions
        for _ in range(directions):
            found += [draw(gates * hidden, width), draw(gates * hidden, hidden), draw(gates * hidden), draw(gates * hidden)]
    return found


def _calls(gates: int, states: int) -> Callable[[Draw], list[Example]]:
    def examples(draw: Draw) -> list[Example]:
        calls = []
        for layers, directions, batch_first in ((1, 1, False), (2, 2, True)):
            x = draw(3, 2, 5) if not batch_first else draw(2, 3, 5)
            state = [draw(layers * directions, 2, 7) for _ in range(states)]
            weights = _weights(draw, gates, 5, 7, layers, directions)
            given = state if states == 2 else state[0]
            calls.append(example(x, given, weights, True, layers, 0.0, False, directions == 2, batch_first))
        return calls

    return examples


@composite("aten.lstm.input", examples=_calls(4, 2))
def lstm(
    x: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor], has_biases: bool, layers: int, dropout: float, train: bool,
    bidirectional: bool, batch_first: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Outputs, and the last hidden and cell states."""
    return _run(_lstm_cell, x, states, weights, layers, dropout, train, bidirectional, batch_first)


@composite("aten.gru.input", examples=_calls(3, 1))
def gru(
    x: Tensor, state: Tensor, weights: Sequence[Tensor], has_biases: bool, layers: int, dropout: float, train: bool,
    bidirectional: bool, batch_first: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Outputs, and the last hidden state."""
    return _run(_gru_cell, x, [state], weights, layers, dropout, train, bidirectional, batch_first)


@composite("aten.rnn_tanh.input", examples=_calls(1, 1))
def rnn_tanh(
    x: Tensor, state: Tensor, weights: Sequence[Tensor], has_biases: bool, layers: int, dropout: float, train: bool,
    bidirectional: bool, batch_first: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """The same with one gate and tanh."""
    return _run(_simple_cell(torch.tanh), x, [state], weights, layers, dropout, train, bidirectional, batch_first)


@composite("aten.rnn_relu.input", examples=_calls(1, 1))
def rnn_relu(
    x: Tensor, state: Tensor, weights: Sequence[Tensor], has_biases: bool, layers: int, dropout: float, train: bool,
    bidirectional: bool, batch_first: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """The same with one gate and relu."""
    return _run(_simple_cell(torch.relu), x, [state], weights, layers, dropout, train, bidirectional, batch_first)


def _one_step(gates: int, states: int) -> Callable[[Draw], list[Example]]:
    def examples(draw: Draw) -> list[Example]:
        given = [draw(2, 7) for _ in range(states)]
        weights = _weights(draw, gates, 5, 7, 1, 1)
        return [example(draw(2, 5), given if states == 2 else given[0], *weights[: 2 + biases]) for biases in (0, 2)]

    return examples


def _given(*weights: Tensor | None) -> list[Tensor]:
    return [each for each in weights if each is not None]


@composite("aten.lstm_cell.default", examples=_one_step(4, 2))
def lstm_cell(
    x: Tensor, states: Sequence[Tensor], w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> State:
    """One step: the next hidden and cell states."""
    return _lstm_cell(x, tuple(states), _given(w_ih, w_hh, b_ih, b_hh))


@composite("aten.gru_cell.default", examples=_one_step(3, 1))
def gru_cell(
    x: Tensor, state: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> Tensor:
    """One step: the next hidden state."""
    return _gru_cell(x, (state,), _given(w_ih, w_hh, b_ih, b_hh))[0]


@composite("aten.rnn_tanh_cell.default", examples=_one_step(1, 1))
def rnn_tanh_cell(
    x: Tensor, state: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> Tensor:
    """One step with one gate and tanh."""
    return _simple_cell(torch.tanh)(x, (state,), _given(w_ih, w_hh, b_ih, b_hh))[0]


@composite("aten.rnn_relu_cell.default", examples=_one_step(1, 1))
def rnn_relu_cell(
    x: Tensor, state: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> Tensor:
    """The same with relu."""
    return _simple_cell(torch.relu)(x, (state,), _given(w_ih, w_hh, b_ih, b_hh))[0]
