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

State = tuple[Array, ...]
"""The hidden values (…, units), and for an LSTM its cell values."""

Step = Callable[[Array, Array, State], State]


def parts(gates: Array, count: int) -> list[Array]:
    """Return the values of each of several gates."""
    units = gates.shape[-1] // count
    return [gates[..., i * units : (i + 1) * units] for i in range(count)]


def simple_step(activation: Callable[[Array], Array]) -> Step:
    """Return the step h ← activation(added + of_hidden)."""
    return lambda added, of_hidden, state: (activation(added + of_hidden),)


def gru_step(added: Array, of_hidden: Array, state: State) -> State:
    """Return the next hidden values; the gates reset, update, and are new."""
    (hidden,) = state
    (reset, update, new), own = parts(added, 3), parts(of_hidden, 3)
    update = sigmoid(update + own[1])
    new = tanh(new + sigmoid(reset + own[0]) * own[2])
    return ((1.0 - update) * new + update * hidden,)


def lstm_step(
    added: Array, of_hidden: Array, state: State, peepholes: Sequence[Array] | None = None
) -> State:
    """Return the next hidden and cell values; the gates let in, keep, are new, and let out.

    `peepholes`: factors (units,) with which the first, the second and the last gate see the cell.
    """
    _, cell = state
    enter, keep, new, leave = parts(added + of_hidden, 4)
    if peepholes is not None:
        enter, keep = enter + peepholes[0] * cell, keep + peepholes[1] * cell
    cell = sigmoid(keep) * cell + sigmoid(enter) * tanh(new)
    if peepholes is not None:
        leave = leave + peepholes[2] * cell
    return sigmoid(leave) * tanh(cell), cell


STEPS: dict[str, Step] = {
    "tanh": simple_step(tanh),
    "relu": simple_step(relu),
    "gru": gru_step,
    "lstm": lstm_step,
}
"""The steps by the names of PyTorch's operators."""
