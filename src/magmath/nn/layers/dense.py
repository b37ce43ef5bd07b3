"""The dense (fully connected) layer."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import final

from magmath.arrays.array import Array
from magmath.core.integers import is_integer, require_integer
from magmath.errors import OptionError, ShapeError
from magmath.nn.activation_functions import activation_function
from magmath.nn.initializers import initializer
from magmath.nn.linear import linear
from magmath.nn.module import Module
from magmath.nn.variables import Initial, Parameter, deferred


@final
class Dense(Module):
    """y = activation(x · weight + bias): x (…, inputs), weight (inputs, units), bias (units,).

    units        the size of the output's last axis
    activation   a name, see `nn.Activation`, or a function
    weight_init  a name in `nn.initializers.INITIALIZERS`, a number, or a function of shape and
                 element type that returns the initial weights; by default "glorot", or "he" for
                 relu
    bias_init    the same for the bias
    """

    def __init__(
        self,
        units: int,
        activation: str | Callable[[Array], Array] = "linear",
        bias: bool = True,
        *,
        weight_init: Initial | str | float | None = None,
        bias_init: Initial | str = "zeros",
    ) -> None:
        self.units = require_integer("Dense: units", units, 1)
        if is_integer(activation):
            raise OptionError(
                f"Dense: takes the number of outputs, then an activation, was given {units} and "
                f"{activation}; the number of inputs follows from the first call: write "
                f"Dense({activation})"
            )
        self.activation = activation
        self._function = activation_function(activation)
        first = weight_init
        if first is None:
            first = "he" if activation == "relu" else "glorot"
        self.weight: Parameter = deferred(initializer(first))
        self.bias: Parameter | None = deferred(initializer(bias_init)) if bias else None

    def __call__(self, x: Array) -> Array:
        """(…, inputs) → (…, units)."""
        self._check(x)
        self.materialize(weight=(x.shape[-1], self.units), bias=(self.units,))
        return self._function(linear(x, self.weight, self.bias))

    def _check(self, x: Array) -> None:
        """Raise ShapeError for an input that the weight does not fit; the error says what would."""
        if x.ndim == 0:
            raise ShapeError(
                "Dense: takes (…, inputs), was given a 0-d array"
                "; add a dimension with mm.reshape(x, (1,))"
            )
        weight = self.weight
        if isinstance(weight, Parameter) and x.shape[-1] != weight.shape[0]:
            features = weight.shape[0]
            remedy = (
                "put Flatten() before it"
                if x.ndim > 2 and prod(x.shape[1:]) == features
                else f"give {features} features in the last axis, or make a new layer, whose "
                f"inputs follow from its first call"
            )
            raise ShapeError(
                f"Dense: {weight.name} {weight.shape} takes {features} inputs, was given "
                f"{x.shape}; {remedy}"
            )
