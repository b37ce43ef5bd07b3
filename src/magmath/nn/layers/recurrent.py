"""Recurrent layers and single steps of them: simple, gated (GRU), with long short-term memory
(LSTM)."""

from __future__ import annotations

from abc import ABC
from typing import Any, final

from magmath.api.creation import DTypeLike
from magmath.arrays.array import Array
from magmath.core.integers import require_integer
from magmath.core.keyword_hints import takes_options_of
from magmath.graph import Shape
from magmath.nn import recurrence
from magmath.nn.initializers import Uniform
from magmath.nn.layers.dropout import Dropout
from magmath.nn.module import Module
from magmath.nn.recurrence import DirectionWeights, RecurrentKind, RecurrentState
from magmath.nn.variables import Parameter, deferred


@final
class Direction(Module):
    """The parameters of one layer in one direction of time, for several gates.

    input_weight (inputs, gates · units), hidden_weight (units, gates · units), and a bias for each,
    or None.
    """

    def __init__(self, units: int, gates: int, bias: bool) -> None:
        self.units, self.gates = units, gates
        bound = units**-0.5

        def initial(shape: Shape, dtype: DTypeLike = None) -> Array:
            return Uniform(-bound, bound)(shape, dtype=dtype)

        self.input_weight: Parameter = deferred(initial)
        self.hidden_weight: Parameter = deferred(initial)
        self.input_bias: Parameter | None = deferred(initial) if bias else None
        self.hidden_bias: Parameter | None = deferred(initial) if bias else None

    def weights(self, inputs: int) -> DirectionWeights:
        """Return the parameters; make them for inputs of this extent along the last axis if they do
        not exist."""
        width = self.gates * self.units
        self.materialize(
            input_weight=(inputs, width),
            hidden_weight=(self.units, width),
            input_bias=(width,),
            hidden_bias=(width,),
        )
        if self.input_bias is None or self.hidden_bias is None:
            return self.input_weight, self.hidden_weight
        return self.input_weight, self.hidden_weight, self.input_bias, self.hidden_bias


class _Recurrent(Module, ABC):
    """A recurrent network: layers, each in one or both directions of time."""

    kind: RecurrentKind

    def __init__(
        self,
        units: int,
        *,
        layers: int = 1,
        bidirectional: bool = False,
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        name = type(self).__name__
        self.units = require_integer(f"{name}: units", units, 1)
        self.bidirectional = bidirectional
        directions = 2 if bidirectional else 1
        count = require_integer(f"{name}: layers", layers, 1)
        self.layers = [
            [Direction(units, self.kind.gates, bias) for _ in range(directions)]
            for _ in range(count)
        ]
        self.dropout = Dropout(dropout)

    def __call__(
        self, x: Array, state: Any = None, *, lengths: Any = None
    ) -> tuple[Array, RecurrentState]:
        """(N, length, inputs) → outputs (N, length, directions · units), and the last state.

        A state has for each layer and direction, in this order, values (N, units), stacked along
        axis 0: an array for each value that the network keeps. It begins with zeros by default.

        lengths: integers (N,), the number of steps of each sequence, if padding follows them. Then
        outputs are 0 in the padding, the last state is that at the end of each sequence, and the
        direction from the end begins there, as with PyTorch's `pack_padded_sequence`.
        """
        recurrence.check_sequences(x, type(self).__name__)
        outputs = len(self.layers[0]) * self.units
        weights = [
            direction.weights(outputs if i else x.shape[-1])
            for i, directions in enumerate(self.layers)
            for direction in directions
        ]
        return recurrence.sequence(
            self.kind,
            x,
            weights,
            state,
            lengths,
            bidirectional=self.bidirectional,
            dropout=self.dropout,
            training=self.training,
            name=type(self).__name__,
        )


@final
class RNN(_Recurrent):
    """A simple recurrent network: h ← activation(x · W + b + h · U + c). Source: Elman (1990).

    units          the hidden values of a layer
    layers         the number of layers, each of which reads the outputs of the one before
    bidirectional  if True, each layer also reads its inputs from the end
    dropout        the probability of dropout between the layers
    bias           whether there are the biases b and c
    activation     "tanh" or "relu"
    """

    @takes_options_of(_Recurrent.__init__)
    def __init__(self, units: int, *, activation: str = "tanh", **options: Any) -> None:
        self.activation, self.kind = activation, recurrence.simple(activation, "RNN")
        super().__init__(units, **options)


@final
class GRU(_Recurrent):
    """A gated recurrent network, with PyTorch's equations: the reset, update and new gates.

    For its arguments see `RNN`, without `activation`. Source: Cho et al. (2014).
    """

    kind = recurrence.GATED


@final
class LSTM(_Recurrent):
    """A network with long short-term memory: the input, forget, cell and output gates.

    For its arguments see `RNN`, without `activation`. Its state is a pair: hidden and
    cell values. Source: Hochreiter and Schmidhuber (1997); with PyTorch's equations.
    """

    kind = recurrence.LONG_SHORT_TERM


# single steps -----------------------------------------------------------------------------------


class _Cell(Module, ABC):
    """One step of a recurrent layer, for loops over time of the user's own."""

    kind: RecurrentKind

    def __init__(self, units: int, *, bias: bool = True) -> None:
        self.units = require_integer(f"{type(self).__name__}: units", units, 1)
        self.direction = Direction(units, self.kind.gates, bias)

    def __call__(self, x: Array, state: Any = None) -> Any:
        """(N, inputs) → the next state: an array (N, units), or a pair of them for an LSTMCell.

        The state before begins with zeros by default.
        """
        recurrence.check_one_time(self.kind, x, type(self).__name__)
        weights = self.direction.weights(x.shape[-1])
        following = recurrence.next_state(self.kind, x, weights, state, type(self).__name__)
        return following if len(following) > 1 else following[0]


@final
class RNNCell(_Cell):
    """One step of an `RNN`: (N, inputs) and hidden values (N, units) → the next ones.

    units       the number of hidden values
    bias        whether there are biases
    activation  "tanh" or "relu"
    """

    def __init__(self, units: int, *, bias: bool = True, activation: str = "tanh") -> None:
        self.activation, self.kind = activation, recurrence.simple(activation, "RNNCell")
        super().__init__(units, bias=bias)


@final
class GRUCell(_Cell):
    """One step of a `GRU`: (N, inputs) and hidden values (N, units) → the next ones.

    units  the number of hidden values
    bias   whether there are biases
    """

    kind = recurrence.GATED


@final
class LSTMCell(_Cell):
    """One step of an `LSTM`: (N, inputs), hidden and cell values (N, units) → the next ones.

    units  the number of hidden values
    bias   whether there are biases
    """

    kind = recurrence.LONG_SHORT_TERM
