"""Layers: what a network is a list of. Each says its parameters and its output, and computes it.

A layer is a small immutable description; the parameters live in the network, as variables. Image
tensors are (N, C, H, W) in meaning; `Dense` takes (N, features).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import magmath as mm
from magmath.array.array import Array
from magmath.core.integers import require_integer
from magmath.core.shapes import size_of
from magmath.errors import MagmathError, ShapeError
from magmath.graph import Shape, apply
from magmath.graph.node import Node
from magmath.ops import creation
from magmath.ops import elementwise as e
from magmath.ops.leaves import constant

ACTIVATIONS = {
    "relu": mm.relu,
    "sigmoid": mm.sigmoid,
    "tanh": mm.tanh,
    "softmax": mm.softmax,
    "linear": mm.positive,
}


def activation_function(name: str) -> Callable[[Array], Array]:
    """The function of this name; MagmathError listing the names."""
    if name not in ACTIVATIONS:
        raise MagmathError(f"activation {name!r} is not known; there are {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


@dataclass(frozen=True)
class ParameterSpec:
    """A parameter's shape and how it is first filled: uniform in ±limit, or zeros (limit 0)."""

    shape: Shape
    limit: float


@dataclass(frozen=True)
class Noise:
    """The random stream of this step, None outside of training."""

    seed: Node
    step: Node


class Layer(ABC):
    """A step of a network."""

    @abstractmethod
    def output_shape(self, shape: Shape) -> Shape:
        """The shape of one sample after the layer; ShapeError if it does not fit."""

    def parameters(self, shape: Shape) -> dict[str, ParameterSpec]:
        """The parameters for samples of this shape, by name."""
        return {}

    @abstractmethod
    def __call__(
        self, x: Array, parameters: dict[str, Array], noise: Noise | None, index: int
    ) -> Array:
        """The output for a batch; `index` is the layer's place in the network."""


@final
@dataclass(frozen=True)
class Dense(Layer):
    """y = activation(x · weight + bias), weight (inputs, units).

    The weights are first uniform in ±sqrt(6 / (inputs + units)) (Glorot and Bengio 2010), or for
    relu in ±sqrt(6 / inputs) (He et al. 2015); the bias is zero.
    """

    units: int
    activation: str = "linear"
    bias: bool = True

    def __post_init__(self) -> None:
        activation_function(self.activation)
        require_integer("Dense: units", self.units, 1)

    def output_shape(self, shape: Shape) -> Shape:
        if len(shape) != 1:
            raise ShapeError(
                f"Dense: takes samples of 1 dimension, was given {shape}; put Flatten() before it"
            )
        return (self.units,)

    def parameters(self, shape: Shape) -> dict[str, ParameterSpec]:
        fan = shape[0] if self.activation == "relu" else shape[0] + self.units
        specs = {"weight": ParameterSpec((shape[0], self.units), (6.0 / fan) ** 0.5)}
        if self.bias:
            specs["bias"] = ParameterSpec((self.units,), 0.0)
        return specs

    def __call__(
        self, x: Array, parameters: dict[str, Array], noise: Noise | None, index: int
    ) -> Array:
        y = x @ parameters["weight"]
        if self.bias:
            y = y + parameters["bias"]
        return activation_function(self.activation)(y)


@final
@dataclass(frozen=True)
class Activation(Layer):
    """An activation function by name: relu, sigmoid, tanh, softmax, linear."""

    name: str

    def __post_init__(self) -> None:
        activation_function(self.name)

    def output_shape(self, shape: Shape) -> Shape:
        return shape

    def __call__(
        self, x: Array, parameters: dict[str, Array], noise: Noise | None, index: int
    ) -> Array:
        return activation_function(self.name)(x)


@final
@dataclass(frozen=True)
class Dropout(Layer):
    """In training, each element is zeroed with probability `rate`, the rest scaled by 1/(1-rate).

    Source: Srivastava et al. (2014). The mask is drawn by global element index and step: the same
    for every number of workers.
    """

    rate: float

    def __post_init__(self) -> None:
        if not 0 <= self.rate < 1:
            raise MagmathError(f"Dropout: rate must be in [0, 1), was given {self.rate}")

    def output_shape(self, shape: Shape) -> Shape:
        return shape

    def __call__(
        self, x: Array, parameters: dict[str, Array], noise: Noise | None, index: int
    ) -> Array:
        if noise is None or self.rate == 0:
            return x
        stream = e.add(
            e.multiply(noise.step, constant(1 << 16, noise.step.dtype)),
            constant(index, noise.step.dtype),
        )
        drawn = apply(creation.UNIFORM, noise.seed, stream, shape=x.shape, dtype=x.dtype)
        kept = Array(e.call("greater_equal", drawn, constant(self.rate, x.dtype)))
        return mm.where(kept, x * (1.0 / (1.0 - self.rate)), 0.0)


@final
@dataclass(frozen=True)
class Flatten(Layer):
    """Each sample as one row."""

    def output_shape(self, shape: Shape) -> Shape:
        return (size_of(shape),)

    def __call__(
        self, x: Array, parameters: dict[str, Array], noise: Noise | None, index: int
    ) -> Array:
        return mm.reshape(x, (x.shape[0], size_of(x.shape[1:])))
