"""Recurrent layers and single steps of them: simple, gated (GRU), with long short-term memory
(LSTM)."""

from __future__ import annotations

from abc import ABC
from typing import Any, ClassVar, final

import numpy as np

from magmath.api.creation import DTypeLike, zeros
from magmath.api.data_types import astype, result_type
from magmath.api.manipulation import concat, stack, swapaxes
from magmath.arrays.array import Array, as_array
from magmath.core.integers import require_integer
from magmath.errors import ShapeError
from magmath.graph import Shape
from magmath.nn.functional import linear
from magmath.nn.initializers import Uniform
from magmath.nn.layer_input import layer_input
from magmath.nn.layers.dropout import Dropout
from magmath.nn.module import Module
from magmath.nn.recurrence import STEPS, RecurrentState
from magmath.nn.variables import Parameter, deferred
from magmath.transform.loops import scan


@final
class Direction(Module):
    """The parameters of one layer in one direction of time, for several gates.

    input_weight (inputs, gates · units), hidden_weight (units, gates · units), and a bias for each.
    """

    def __init__(self, units: int, gates: int) -> None:
        self.units, self.gates = units, gates
        bound = units**-0.5

        def initial(shape: Shape, dtype: DTypeLike = None) -> Array:
            return Uniform(-bound, bound)(shape, dtype=dtype)

        self.input_weight: Parameter = deferred(initial)
        self.hidden_weight: Parameter = deferred(initial)
        self.input_bias: Parameter = deferred(initial)
        self.hidden_bias: Parameter = deferred(initial)

    def make_for(self, x: Array) -> None:
        """Make the parameters for inputs of this extent along the last axis, unless they exist."""
        width = self.gates * self.units
        self.materialize(
            input_weight=(x.shape[-1], width),
            hidden_weight=(self.units, width),
            input_bias=(width,),
            hidden_bias=(width,),
        )

    def __call__(self, x: Array) -> Array:
        """(N, length, inputs) → (N, length, gates · units): what the inputs add to the gates."""
        self.make_for(x)
        return linear(x, self.input_weight, self.input_bias)

    def of_hidden(self, hidden: Array) -> Array:
        """Return (N, gates · units): what the hidden values add to the gates."""
        return linear(hidden, self.hidden_weight, self.hidden_bias)


def _state_arrays(name: str, state: Any) -> tuple[Array, ...]:
    """Return the arrays of a state that a user gives. Raises TypeError for other objects."""
    if isinstance(state, (Array, np.ndarray)):
        return (as_array(name, state),)
    if isinstance(state, (tuple, list)):
        return tuple([as_array(name, value) for value in state])
    raise TypeError(
        f"{name}: the state is an array or a tuple of arrays, was given {state!r}; pass the one "
        f"that an earlier call has returned, or leave it out for zeros"
    )


class _Recurrent(Module, ABC):
    """A recurrent network: layers, each in one or both directions of time."""

    gates: ClassVar[int]
    states: ClassVar[int] = 1
    step_name: ClassVar[str]
    """The name of the step in `STEPS`."""

    def __init__(
        self, units: int, *, layers: int = 1, bidirectional: bool = False, dropout: float = 0.0
    ) -> None:
        name = type(self).__name__
        self.units = require_integer(f"{name}: units", units, 1)
        self.bidirectional = bidirectional
        directions = 2 if bidirectional else 1
        count = require_integer(f"{name}: layers", layers, 1)
        self.layers = [
            [Direction(units, self.gates) for _ in range(directions)] for _ in range(count)
        ]
        self.dropout = Dropout(dropout)

    def __call__(self, x: Array, state: Any = None) -> tuple[Array, RecurrentState]:
        """(N, length, inputs) → outputs (N, length, directions · units), and the last state.

        A state has for each layer and direction, in this order, values (N, units), stacked along
        axis 0: an array for each value that the network keeps. It begins with zeros by default.
        """
        if x.ndim != 3 or not x.shape[1]:
            raise ShapeError(
                f"{type(self).__name__}: takes (N, length, inputs) with a length of 1 or more, was "
                f"given {x.shape}; add the batch with mm.expand_dims(x, 0)"
            )
        first = self.layers[0][0]
        first.make_for(x)
        x = layer_input(type(self).__name__, x, first.input_weight)
        initial = self._initial_states(x, state)
        final: list[RecurrentState] = []
        for i, directions in enumerate(self.layers):
            if i:
                x = self.dropout(x)
            outputs = []
            for j, direction in enumerate(directions):
                backwards = j == 1
                hidden, last = self._scanned(direction, x, initial[len(final)], backwards=backwards)
                outputs.append(hidden)
                final.append(last)
            x = outputs[0] if len(outputs) == 1 else concat(outputs, axis=-1)
        return x, tuple(stack(list(values)) for values in zip(*final, strict=True))

    def _initial_states(self, x: Array, state: Any) -> list[RecurrentState]:
        """Return the initial state of each layer and direction. Raises ShapeError for a state of
        another network."""
        count = sum(map(len, self.layers))
        shape = (count, x.shape[0], self.units)
        if state is None:
            zero = zeros(shape[1:], dtype=x.dtype)
            return [(zero,) * self.states] * count
        values = _state_arrays(type(self).__name__, state)
        if len(values) != self.states or any(value.shape != shape for value in values):
            raise ShapeError(
                f"{type(self).__name__}: the state is {self.states} × {shape}, was given "
                f"{[value.shape for value in values]}; pass the one that an earlier call has "
                f"returned"
            )
        return [tuple(value[i] for value in values) for i in range(count)]

    def _scanned(
        self, direction: Direction, x: Array, state: RecurrentState, *, backwards: bool
    ) -> tuple[Array, RecurrentState]:
        """Return the outputs of one direction at all times, and its last state."""
        added = swapaxes(direction(x), 0, 1)
        common = result_type(added, *state)  # steps keep the type of the state
        state = tuple(astype(value, common, copy=False) for value in state)

        def step(state: RecurrentState, row: Array) -> tuple[RecurrentState, Array]:
            following = self.next_state(direction, row, state)
            return following, following[0]

        last, outputs = scan(step, state, added, reverse=backwards)
        return swapaxes(outputs, 0, 1), last

    @classmethod
    def next_state(
        cls, direction: Direction, added: Array, state: RecurrentState
    ) -> RecurrentState:
        """Return the next state, given what the inputs add to the gates (N, gates · units)."""
        return STEPS[cls.step_name](added, direction.of_hidden(state[0]), state)


@final
class RNN(_Recurrent):
    """A simple recurrent network: h ← tanh(x · W + b + h · U + c). Source: Elman (1990).

    units          the hidden values of a layer
    layers         the number of layers, each of which reads the outputs of the one before
    bidirectional  if True, each layer also reads its inputs from the end
    dropout        the probability of dropout between the layers
    """

    gates = 1
    step_name = "tanh"


@final
class GRU(_Recurrent):
    """A gated recurrent network, with PyTorch's equations: the reset, update and new gates.

    For its arguments see `RNN`. Source: Cho et al. (2014).
    """

    gates = 3
    step_name = "gru"


@final
class LSTM(_Recurrent):
    """A network with long short-term memory: the input, forget, cell and output gates.

    For its arguments see `RNN`. Its state is a pair: hidden and cell values. Source: Hochreiter
    and Schmidhuber (1997); with PyTorch's equations.
    """

    gates = 4
    states = 2
    step_name = "lstm"


# single steps -----------------------------------------------------------------------------------


class _Cell(Module, ABC):
    """One step of a recurrent layer, for loops over time of the user's own."""

    network: ClassVar[type[_Recurrent]]

    def __init__(self, units: int) -> None:
        self.units = require_integer(f"{type(self).__name__}: units", units, 1)
        self.direction = Direction(units, self.network.gates)

    def __call__(self, x: Array, state: Any = None) -> Any:
        """(N, inputs) → the next state: an array (N, units), or a pair of them for an LSTMCell.

        The state before begins with zeros by default.
        """
        name, count = type(self).__name__, self.network.states
        if x.ndim != 2:
            raise ShapeError(
                f"{name}: takes (N, inputs), was given {x.shape}; take one time of a sequence, as "
                f"in x[:, t], or use mm.nn.{self.network.__name__}"
            )
        self.direction.make_for(x)
        x = layer_input(name, x, self.direction.input_weight)
        shape = (x.shape[0], self.units)
        if state is None:
            state = (zeros(shape, dtype=x.dtype),) * count
        values = _state_arrays(name, state)
        if len(values) != count or any(value.shape != shape for value in values):
            raise ShapeError(
                f"{name}: the state is {count} × {shape}, was given "
                f"{[value.shape for value in values]}; pass what an earlier call has returned"
            )
        following = self.network.next_state(self.direction, self.direction(x), values)
        return following if count > 1 else following[0]


@final
class RNNCell(_Cell):
    """One step of an `RNN`: (N, inputs) and hidden values (N, units) → the next ones.

    units  the number of hidden values
    """

    network = RNN


@final
class GRUCell(_Cell):
    """One step of a `GRU`: (N, inputs) and hidden values (N, units) → the next ones.

    units  the number of hidden values
    """

    network = GRU


@final
class LSTMCell(_Cell):
    """One step of an `LSTM`: (N, inputs), hidden and cell values (N, units) → the next ones.

    units  the number of hidden values
    """

    network = LSTM
