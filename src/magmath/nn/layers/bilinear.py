"""The bilinear layer: a product of two inputs."""

from __future__ import annotations

from typing import final

from magmath.arrays.array import Array
from magmath.core.integers import require_integer
from magmath.nn.initializers import initializer
from magmath.nn.linear import bilinear
from magmath.nn.module import Module
from magmath.nn.variables import Initial, Parameter, deferred


@final
class Bilinear(Module):
    """y[…,k] = bias[k] + Σ_i,j x1[…,i] · weight[k,i,j] · x2[…,j].

    units        the size of the output's last axis
    weight_init  a name in `nn.initializers.INITIALIZERS`, or a function of shape and element type
    bias_init    the same for the bias
    """

    def __init__(
        self,
        units: int,
        bias: bool = True,
        *,
        weight_init: Initial | str = "glorot",
        bias_init: Initial | str = "zeros",
    ) -> None:
        self.units = require_integer("Bilinear: units", units, 1)
        self.weight: Parameter = deferred(initializer(weight_init))
        self.bias: Parameter | None = deferred(initializer(bias_init)) if bias else None

    def __call__(self, x1: Array, x2: Array) -> Array:
        """(…, inputs 1), (…, inputs 2) → (…, units)."""
        self.materialize(weight=(self.units, x1.shape[-1], x2.shape[-1]), bias=(self.units,))
        return bilinear(x1, x2, self.weight, self.bias)
