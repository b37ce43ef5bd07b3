"""One step of recurrent networks: the next state from what the inputs and the hidden values add to
the gates, each (…, gates · units).

Sources: Elman (1990); Cho et al. (2014) and Hochreiter and Schmidhuber (1997), both with PyTorch's
equations and order of the gates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from magmath.api.activations import relu, sigmoid
from magmath.api.elementwise import tanh
from magmath.arrays.array import Array

RecurrentState = tuple[Array, ...]
"""The hidden values (…, units), and for an LSTM its cell values."""

RecurrentStep = Callable[[Array, Array, RecurrentState], RecurrentState]


def parts(gates: Array, count: int) -> list[Array]:
    """Return the values of each of several gates."""
    units = gates.shape[-1] // count
    return [gates[..., i * units : (i + 1) * units] for i in range(count)]


def simple_step(activation: Callable[[Array], Array]) -> RecurrentStep:
    """Return the step h ← activation(added + of_hidden)."""
    return lambda added, of_hidden, state: (activation(added + of_hidden),)


def gru_step(added: Array, of_hidden: Array, state: RecurrentState) -> RecurrentState:
    """Return the next hidden values; the gates are reset, update and new."""
    (hidden,) = state
    reset, update, new = parts(added, 3)
    hidden_reset, hidden_update, hidden_new = parts(of_hidden, 3)
    update = sigmoid(update + hidden_update)
    new = tanh(new + sigmoid(reset + hidden_reset) * hidden_new)
    return ((1.0 - update) * new + update * hidden,)


def lstm_step(
    added: Array, of_hidden: Array, state: RecurrentState, peepholes: Sequence[Array] | None = None
) -> RecurrentState:
    """Return the next hidden and cell values; the gates are input, forget, cell and output.

    `peepholes`: factors (units,) with which the input, forget and output gates see the cell.
    """
    _, cell = state
    enter, forget, new, leave = parts(added + of_hidden, 4)
    if peepholes is not None:
        enter, forget = enter + peepholes[0] * cell, forget + peepholes[1] * cell
    cell = sigmoid(forget) * cell + sigmoid(enter) * tanh(new)
    if peepholes is not None:
        leave = leave + peepholes[2] * cell
    return sigmoid(leave) * tanh(cell), cell


STEPS: dict[str, RecurrentStep] = {
    "tanh": simple_step(tanh),
    "relu": simple_step(relu),
    "gru": gru_step,
    "lstm": lstm_step,
}
"""The steps by the names of PyTorch's operators."""
