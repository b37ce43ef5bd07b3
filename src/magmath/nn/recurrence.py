"""Recurrent networks as functions: whole sequences, and single steps.

A step computes the next state from what the inputs and the hidden values add to the gates, each
(…, gates · units).

Sources: Elman (1990); Cho et al. (2014) and Hochreiter and Schmidhuber (1997), both with PyTorch's
equations and order of the gates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, final

import numpy as np

from magmath.api.activations import relu, sigmoid
from magmath.api.creation import arange, zeros
from magmath.api.data_types import astype
from magmath.api.elementwise import tanh
from magmath.api.manipulation import concat, stack, swapaxes
from magmath.api.searching import where
from magmath.arrays.array import Array, as_array
from magmath.arrays.indexing.index_checks import known_values
from magmath.core.dtypes import int64
from magmath.core.keyword_hints import keyword_hints
from magmath.errors import DTypeError, OptionError, RangeError, ShapeError
from magmath.graph import Shape
from magmath.nn.dropout import dropout as random_dropout
from magmath.nn.layer_input import layer_input
from magmath.nn.linear import linear
from magmath.transform.loops import scan

RecurrentState = tuple[Array, ...]
"""The hidden values (…, units), and for an LSTM its cell values."""

DirectionWeights = Sequence[Array]
"""Of one layer in one direction of time: the weights of the inputs (inputs, gates · units) and of
the hidden values (units, gates · units), and then no biases or both, (gates · units,)."""

LayerDropout = float | Callable[[Array], Array]
"""The probability of dropout between layers, or a function of the outputs of a layer."""

RecurrentStep = Callable[[Array, Array, RecurrentState], RecurrentState]


def _split_gates(gates: Array, count: int) -> list[Array]:
    """Return the values of each of `count` gates, which `gates` has side by side."""
    units = gates.shape[-1] // count
    return [gates[..., i * units : (i + 1) * units] for i in range(count)]


def simple_step(activation: Callable[[Array], Array]) -> RecurrentStep:
    """Return the step h ← activation(added + of_hidden)."""
    return lambda added, of_hidden, state: (activation(added + of_hidden),)


def gru_step(added: Array, of_hidden: Array, state: RecurrentState) -> RecurrentState:
    """Return the next hidden values; the gates are reset, update and new."""
    (hidden,) = state
    reset, update, new = _split_gates(added, 3)
    hidden_reset, hidden_update, hidden_new = _split_gates(of_hidden, 3)
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
    enter, forget, new, leave = _split_gates(added + of_hidden, 4)
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


@final
@dataclass(frozen=True)
class RecurrentKind:
    """A kind of recurrent network.

    gates   the number of its gates
    states  the number of values of its state
    step    the name of its step in `STEPS`
    layer   the layer of whole sequences
    """

    gates: int
    states: int
    step: str
    layer: str

    def next_state(
        self, added: Array, weights: DirectionWeights, state: RecurrentState
    ) -> RecurrentState:
        """Return the next state, given what the inputs add to the gates (N, gates · units)."""
        return STEPS[self.step](added, linear(state[0], weights[1], *weights[3:]), state)


SIMPLE = RecurrentKind(1, 1, "tanh", "mm.nn.RNN")
GATED = RecurrentKind(3, 1, "gru", "mm.nn.GRU")
LONG_SHORT_TERM = RecurrentKind(4, 2, "lstm", "mm.nn.LSTM")


def simple(activation: str, name: str) -> RecurrentKind:
    """Return the simple kind with an activation, "tanh" or "relu"; `name` names the caller in
    errors. Raises OptionError for another one."""
    if activation not in ("tanh", "relu"):
        raise OptionError(f"{name}: activation is 'tanh' or 'relu', was given {activation!r}")
    return replace(SIMPLE, step=activation)


@keyword_hints
def rnn(
    x: Array,
    weights: Sequence[DirectionWeights],
    state: Any = None,
    *,
    lengths: Any = None,
    activation: str = "tanh",
    bidirectional: bool = False,
    dropout: LayerDropout = 0.0,
    training: bool = False,
    name: str = "rnn",
) -> tuple[Array, RecurrentState]:
    """Return the outputs of a simple recurrent network at all times, and its last state:
    h ← activation(x · W + b + h · U + c).

    x (N, length, inputs) → outputs (N, length, directions · units), and a tuple of states.

    weights        for each layer and direction, in this order, (W, U) or (W, U, b, c): W (inputs,
                   gates · units), U (units, gates · units), b and c (gates · units,). An `rnn` has
                   one gate. Later layers read the outputs of the one before.
    state          for each layer and direction values (N, units), stacked along axis 0; a tuple of
                   such arrays, one for each value that the network keeps. By default zeros
    lengths        integers (N,), from 1 to length: the number of steps of each sequence, whose
                   padding follows. Outputs are 0 there, the last state is that at the end of each
                   sequence, and the other direction begins there. By default all are valid
    activation     "tanh" or "relu"
    bidirectional  if True, each layer has two directions, and also reads its inputs from the end
    dropout        the probability of dropout between layers in training, or a function of the
                   outputs of a layer

    Raises ShapeError if x, weights, state or lengths do not fit, DTypeError for lengths that are no
    integers, and RangeError for lengths out of range, if this process knows their values. Source:
    Elman (1990).
    """
    kind = simple(activation, name)
    return sequence(kind, x, weights, state, lengths, bidirectional, dropout, training, name)


@keyword_hints
def gru(
    x: Array,
    weights: Sequence[DirectionWeights],
    state: Any = None,
    *,
    lengths: Any = None,
    bidirectional: bool = False,
    dropout: LayerDropout = 0.0,
    training: bool = False,
    name: str = "gru",
) -> tuple[Array, RecurrentState]:
    """Return the outputs of a gated recurrent network at all times, and its last state.

    For arguments, shapes and errors see `rnn`; the three gates are reset, update and new, with
    PyTorch's equations. Source: Cho et al. (2014).
    """
    return sequence(GATED, x, weights, state, lengths, bidirectional, dropout, training, name)


@keyword_hints
def lstm(
    x: Array,
    weights: Sequence[DirectionWeights],
    state: Any = None,
    *,
    lengths: Any = None,
    bidirectional: bool = False,
    dropout: LayerDropout = 0.0,
    training: bool = False,
    name: str = "lstm",
) -> tuple[Array, RecurrentState]:
    """Return the outputs of a network with long short-term memory at all times, and its last state,
    a pair: hidden and cell values.

    For arguments, shapes and errors see `rnn`; the four gates are input, forget, cell and output,
    with PyTorch's equations. Source: Hochreiter and Schmidhuber (1997).
    """
    return sequence(
        LONG_SHORT_TERM, x, weights, state, lengths, bidirectional, dropout, training, name
    )


@keyword_hints
def rnn_cell(
    x: Array,
    weights: DirectionWeights,
    state: Any = None,
    *,
    activation: str = "tanh",
    name: str = "rnn_cell",
) -> Array:
    """Return the next hidden values of a simple recurrent network, (N, units).

    x (N, inputs); weights (W, U) or (W, U, b, c) and activation as in `rnn`; state (N, units), by
    default zeros. Raises ShapeError if they do not fit.
    """
    return next_state(simple(activation, name), x, weights, state, name)[0]


@keyword_hints
def gru_cell(
    x: Array, weights: DirectionWeights, state: Any = None, *, name: str = "gru_cell"
) -> Array:
    """Return the next hidden values of a gated recurrent network, (N, units).

    x (N, inputs); weights as in `gru`; state (N, units), by default zeros. Raises ShapeError if
    they do not fit.
    """
    return next_state(GATED, x, weights, state, name)[0]


@keyword_hints
def lstm_cell(
    x: Array, weights: DirectionWeights, state: Any = None, *, name: str = "lstm_cell"
) -> RecurrentState:
    """Return the next hidden and cell values of a network with long short-term memory, each (N,
    units).

    x (N, inputs); weights as in `lstm`; state a pair of (N, units), by default zeros. Raises
    ShapeError if they do not fit.
    """
    return next_state(LONG_SHORT_TERM, x, weights, state, name)


def check_sequences(x: Array, name: str) -> None:
    """Raise ShapeError unless x is (N, length, inputs), and not empty in time."""
    if x.ndim != 3 or not x.shape[1]:
        raise ShapeError(
            f"{name}: takes (N, length, inputs) with a length of 1 or more, was given {x.shape}; "
            f"add the batch with mm.expand_dims(x, 0)"
        )


def check_one_time(kind: RecurrentKind, x: Array, name: str) -> None:
    """Raise ShapeError unless x is (N, inputs)."""
    if x.ndim != 2:
        raise ShapeError(
            f"{name}: takes (N, inputs), was given {x.shape}; take one time of a sequence, as in "
            f"x[:, t], or use {kind.layer}"
        )


def next_state(
    kind: RecurrentKind, x: Array, weights: DirectionWeights, state: Any, name: str
) -> RecurrentState:
    """Return the state after one step."""
    check_one_time(kind, x, name)
    _check_weights(kind, [weights], 1, name)
    x = layer_input(name, x, weights[0])
    shape = (x.shape[0], weights[1].shape[0])
    if state is None:
        state = (zeros(shape, dtype=x.dtype),) * kind.states
    added = linear(x, weights[0], *weights[2:3])
    return kind.next_state(
        added, weights, _in_type(_checked_state(kind, state, shape, name), added)
    )


def sequence(
    kind: RecurrentKind,
    x: Array,
    weights: Sequence[DirectionWeights],
    state: Any,
    lengths: Any,
    bidirectional: bool,
    dropout: LayerDropout,
    training: bool,
    name: str,
) -> tuple[Array, RecurrentState]:
    """Return the outputs at all times, and the last state."""
    check_sequences(x, name)
    directions = 2 if bidirectional else 1
    _check_weights(kind, weights, directions, name)
    drop = (
        dropout if callable(dropout) else partial(random_dropout, rate=dropout, training=training)
    )
    x = layer_input(name, x, weights[0][0])
    initial = _initial_states(kind, x, weights, state, name)
    valid = None if lengths is None else _valid_steps(lengths, x.shape, name)
    if valid is not None:
        x = where(valid, x, 0.0)  # gradients do not depend on the padding, even if it is NaN
    last_states: list[RecurrentState] = []
    for first in range(0, len(weights), directions):
        if first:
            x = drop(x)
        outputs = []
        for i in range(first, first + directions):
            hidden, last = _outputs_of_direction(
                kind, x, weights[i], initial[i], valid, backwards=i > first
            )
            outputs.append(hidden)
            last_states.append(last)
        x = outputs[0] if len(outputs) == 1 else concat(outputs, axis=-1)
    return x, tuple(stack(list(values)) for values in zip(*last_states, strict=True))


def _outputs_of_direction(
    kind: RecurrentKind,
    x: Array,
    weights: DirectionWeights,
    state: RecurrentState,
    valid: Array | None,
    *,
    backwards: bool,
) -> tuple[Array, RecurrentState]:
    """Return the outputs of one direction at all times, and its last state.

    Steps of padding leave the state as it is, so that the direction from the end has its initial
    state at the end of each sequence.
    """
    added = swapaxes(linear(x, weights[0], *weights[2:3]), 0, 1)
    state = _in_type(state, added)

    def step(state: RecurrentState, row: Array) -> tuple[RecurrentState, Array]:
        following = kind.next_state(row, weights, state)
        return following, following[0]

    def valid_step(
        state: RecurrentState, rows: tuple[Array, Array]
    ) -> tuple[RecurrentState, Array]:
        row, is_valid = rows
        following, _ = step(state, row)
        following = tuple(
            [where(is_valid, *values) for values in zip(following, state, strict=True)]
        )
        return following, following[0]

    if valid is None:
        last, outputs = scan(step, state, added, reverse=backwards)
        return swapaxes(outputs, 0, 1), last
    last, outputs = scan(valid_step, state, (added, swapaxes(valid, 0, 1)), reverse=backwards)
    return where(valid, swapaxes(outputs, 0, 1), 0.0), last


def _valid_steps(lengths: Any, shape: Shape, name: str) -> Array:
    """Return booleans (N, length, 1), true for the steps of sequences of these lengths; for errors
    see `rnn`."""
    samples, length, _ = shape
    lengths = as_array(name, lengths)
    if not lengths.dtype.is_integer:
        raise DTypeError(
            f"{name}: lengths are integers, was given {lengths.dtype}; convert them with "
            f"mm.astype(lengths, mm.int64)"
        )
    if lengths.shape != (samples,):
        raise ShapeError(
            f"{name}: needs a length for each of {samples} sequences, was given lengths of shape "
            f"{lengths.shape}; the mask (N, length) of the valid steps has mm.sum(mask, axis=1)"
        )
    values = known_values(lengths.node)
    if values is not None and values.size and not 1 <= values.min() <= values.max() <= length:
        raise RangeError(
            f"{name}: lengths must be from 1 to {length}, the length of x, was given "
            f"{values.min()} to {values.max()}; leave out empty sequences"
        )
    return arange(length)[:, None] < astype(lengths, int64)[:, None, None]


def _in_type(state: RecurrentState, added: Array) -> RecurrentState:
    """Return a state in the type of the products of the inputs: zeros of NumPy, which are float64,
    do not widen a network, and a state of float32 does not end half types."""
    return tuple([astype(value, added.dtype, copy=False) for value in state])


def _check_weights(
    kind: RecurrentKind, weights: Sequence[DirectionWeights], directions: int, name: str
) -> None:
    """Raise ShapeError unless there are weights for each direction of each layer, of this kind."""
    if not weights or len(weights) % directions:
        raise ShapeError(
            f"{name}: needs weights for each of {directions} directions of each layer, was given "
            f"{len(weights)}; give a tuple (W, U, b, c) for each"
        )
    for direction_weights in weights:
        if not isinstance(direction_weights, (tuple, list)):
            raise TypeError(
                f"{name}: weights are a list with a tuple (W, U) or (W, U, b, c) for each layer "
                f"and direction, was given {type(direction_weights).__name__} in the list; write "
                f"[(W, U, b, c)]"
            )
        shapes = [x.shape for x in direction_weights]
        fits = len(direction_weights) in (2, 4) and len(shapes[0]) == len(shapes[1]) == 2
        width = kind.gates * shapes[1][0] if fits else 0
        if not fits or any(shape[-1:] != (width,) for shape in shapes):
            raise ShapeError(
                f"{name}: needs weights (inputs, {kind.gates} · units) and (units, {kind.gates} · "
                f"units), and no biases or two of ({kind.gates} · units,), was given {shapes}; "
                f"transpose those of PyTorch"
            )


def _initial_states(
    kind: RecurrentKind, x: Array, weights: Sequence[DirectionWeights], state: Any, name: str
) -> list[RecurrentState]:
    """Return the initial state of each layer and direction. Raises ShapeError for a state of
    another network."""
    shape = (len(weights), x.shape[0], weights[0][1].shape[0])
    if state is None:
        zero = zeros(shape[1:], dtype=x.dtype)
        return [(zero,) * kind.states] * len(weights)
    values = _checked_state(kind, state, shape, name)
    return [tuple(value[i] for value in values) for i in range(len(weights))]


def _checked_state(kind: RecurrentKind, state: Any, shape: Shape, name: str) -> RecurrentState:
    """Return the arrays of a state that a user gives. Raises TypeError for other objects,
    ShapeError for another number or shape of arrays."""
    if isinstance(state, (Array, np.ndarray)):
        values: RecurrentState = (as_array(name, state),)
    elif isinstance(state, (tuple, list)):
        values = tuple([as_array(name, value) for value in state])
    else:
        raise TypeError(
            f"{name}: the state is an array or a tuple of arrays, was given {state!r}; pass the "
            f"one that an earlier call has returned, or leave it out for zeros"
        )
    if len(values) != kind.states or any(value.shape != shape for value in values):
        raise ShapeError(
            f"{name}: the state is {kind.states} × {shape}, was given "
            f"{[value.shape for value in values]}; pass the one that an earlier call has returned"
        )
    return values
