"""The layers of the benchmarks' networks, for all frameworks.

A network is a table of layers; `forward` computes it with the operations of one framework, and
`draw_weights` draws its weights, in the order in which `forward` takes them. So all systems compute
the same network from the same numbers. NumPy only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol, final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Pair = tuple[int, int]
Activation = Literal["none", "relu", "relu6"]


@final
@dataclass(frozen=True)
class Conv:
    """A convolution with `channels` filters; `depthwise`: one for each channel of the images."""

    channels: int
    kernel: Pair
    stride: int = 1
    padding: Pair = (0, 0)
    bias: bool = True
    activation: Activation = "relu"
    depthwise: bool = False

    @property
    def groups(self) -> int:
        """The number of groups of channels that are convolved separately."""
        return self.channels if self.depthwise else 1


@final
@dataclass(frozen=True)
class Norm:
    """Batch normalization."""

    epsilon: float = 1e-5
    activation: Activation = "relu"


@final
@dataclass(frozen=True)
class Pooling:
    """Maximum or mean of windows; `ceil`: the last window may begin within and end outside. Means
    count padding as zeros."""

    kind: Literal["max", "mean"]
    kernel: int
    stride: int
    padding: int = 0
    ceil: bool = False


@final
@dataclass(frozen=True)
class LocalNorm:
    """Local response normalization over `size` channels: x / (1 + 1e-4 · mean of squares)^0.75."""

    size: int = 5


@final
@dataclass(frozen=True)
class Flatten:
    """(N, C, H, W) → (N, C·H·W)."""


@final
@dataclass(frozen=True)
class GlobalPool:
    """(N, C, H, W) → (N, C), the means."""


@final
@dataclass(frozen=True)
class Dense:
    """A matrix product with bias."""

    units: int
    activation: Activation = "none"


@final
@dataclass(frozen=True)
class Parallel:
    """Branches of the same input, joined along the channels."""

    branches: tuple[Layers, ...]


@final
@dataclass(frozen=True)
class Residual:
    """activation(body(x) + shortcut(x)); an empty shortcut is x itself."""

    body: Layers
    shortcut: Layers = ()
    activation: Activation = "relu"


Layer = Conv | Norm | Pooling | LocalNorm | Flatten | GlobalPool | Dense | Parallel | Residual
Layers = tuple[Layer, ...]


class Operations(Protocol):
    """The operations of a framework. Weights are in its own types and memory orders."""

    def conv(self, x: Any, weight: Any, bias: Any, layer: Conv) -> Any:
        """Return the convolution of x, with bias and activation."""

    def norm(self, x: Any, scale: Any, shift: Any, layer: Norm) -> Any:
        """Return x normalized by the moments of its batch, scaled, shifted and activated."""

    def pool(self, x: Any, layer: Pooling) -> Any:
        """Return the maxima or means of windows."""

    def local_norm(self, x: Any, layer: LocalNorm) -> Any:
        """Return x normalized over neighbouring channels."""

    def flatten(self, x: Any) -> Any:
        """Return (N, …) as (N, features)."""

    def global_pool(self, x: Any) -> Any:
        """Return the means of whole images."""

    def dense(self, x: Any, weight: Any, bias: Any, layer: Dense) -> Any:
        """Return the product of x and the weight, with bias and activation."""

    def join(self, xs: list[Any]) -> Any:
        """Return arrays joined along the channels."""

    def add(self, x: Any, y: Any, layer: Residual) -> Any:
        """Return the sum of two arrays, with the activation of the layer."""


def forward(layers: Layers, x: Any, weights: Iterator[Any], ops: Operations) -> Any:
    """Return the outputs of layers; takes the weights that it needs."""
    for layer in layers:
        match layer:
            case Conv():
                x = ops.conv(x, next(weights), next(weights) if layer.bias else None, layer)
            case Norm():
                x = ops.norm(x, next(weights), next(weights), layer)
            case Pooling():
                x = ops.pool(x, layer)
            case LocalNorm():
                x = ops.local_norm(x, layer)
            case Flatten():
                x = ops.flatten(x)
            case GlobalPool():
                x = ops.global_pool(x)
            case Dense():
                x = ops.dense(x, next(weights), next(weights), layer)
            case Parallel():
                x = ops.join([forward(branch, x, weights, ops) for branch in layer.branches])
            case Residual():
                body = forward(layer.body, x, weights, ops)
                x = ops.add(body, forward(layer.shortcut, x, weights, ops), layer)
    return x


@final
class _Draw:
    """Operations on shapes (C, H, W) that draw the weights, of which `forward` gets no others."""

    def __init__(self) -> None:
        self.weights: list[Floats] = []
        self._random = np.random.default_rng(2)

    def _he(self, shape: tuple[int, ...], fan_in: int) -> None:
        """Draw a weight (He et al. 2015, equation 10)."""
        scale = np.float32(np.sqrt(2 / fan_in))
        self.weights.append(self._random.standard_normal(shape, dtype=np.float32) * scale)

    def conv(self, x: Any, weight: Any, bias: Any, layer: Conv) -> Any:
        shape = (layer.channels, x[0] // layer.groups, *layer.kernel)
        self._he(shape, shape[1] * layer.kernel[0] * layer.kernel[1])
        if layer.bias:
            self.weights.append(np.zeros(layer.channels, np.float32))
        sizes = [
            (n + 2 * p - k) // layer.stride + 1
            for n, k, p in zip(x[1:], layer.kernel, layer.padding, strict=True)
        ]
        return layer.channels, *sizes

    def norm(self, x: Any, scale: Any, shift: Any, layer: Norm) -> Any:
        self.weights += [np.ones(x[0], np.float32), np.zeros(x[0], np.float32)]
        return x

    def pool(self, x: Any, layer: Pooling) -> Any:
        sizes = [n + 2 * layer.padding - layer.kernel for n in x[1:]]
        return x[0], *[
            -(-n // layer.stride) + 1 if layer.ceil else n // layer.stride + 1 for n in sizes
        ]

    def local_norm(self, x: Any, layer: LocalNorm) -> Any:
        return x

    def flatten(self, x: Any) -> Any:
        return (x[0] * x[1] * x[2],)

    def global_pool(self, x: Any) -> Any:
        return (x[0],)

    def dense(self, x: Any, weight: Any, bias: Any, layer: Dense) -> Any:
        self._he((x[0], layer.units), x[0])
        self.weights.append(np.zeros(layer.units, np.float32))
        return (layer.units,)

    def join(self, xs: list[Any]) -> Any:
        return sum(x[0] for x in xs), *xs[0][1:]

    def add(self, x: Any, y: Any, layer: Residual) -> Any:
        return x


@final
class _NoWeights(Iterator[None]):
    def __next__(self) -> None:
        return None


def draw_weights(layers: Layers, shape: tuple[int, int, int]) -> list[Floats]:
    """Return the weights for images of a shape (C, H, W), the same for every call.

    Filters are (outputs, inputs, height, width), dense weights (inputs, outputs).
    """
    drawing = _Draw()
    forward(layers, shape, _NoWeights(), drawing)
    return drawing.weights
