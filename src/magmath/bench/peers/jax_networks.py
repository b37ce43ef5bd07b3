"""JAX trains and runs the convolutional networks: the jitted step with donated parameters, in both
memory orders of images."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, final

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
from jax import lax

from magmath.bench.peers.network_layers import (
    Conv,
    Dense,
    LocalNorm,
    Norm,
    Operations,
    Pooling,
    Residual,
    forward,
)
from magmath.bench.peers.network_problem import NetworkProblem
from magmath.bench.peers.service import Contestant
from magmath.bench.peers.training import PeerTrainer, TrainingContestant

ACTIVATIONS = {"none": lambda x: x, "relu": jax.nn.relu, "relu6": jax.nn.relu6}


def compiled() -> Contestant:
    """Return the contestant of jitted functions."""

    def variants(problem: NetworkProblem) -> dict[str, Callable[[], PeerTrainer]]:
        jax.clear_caches()
        make = JaxNetworkTrainer if problem.purpose == "train" else JaxInference
        return {
            "jit, channels first": lambda: make(problem, "NCHW"),
            "jit, channels last": lambda: make(problem, "NHWC"),
        }

    return TrainingContestant({"jax": jax.__version__}, NetworkProblem.of, variants)


@final
class JaxOperations(Operations):
    """JAX's operations, with images in the memory order `order`."""

    def __init__(self, training: bool, order: str) -> None:
        self._training = training
        self._order = order
        self._channels = order.index("C")
        self._space = (order.index("H"), order.index("W"))

    def _per_channel(self, values: Any) -> Any:
        return values[:, None, None] if self._channels == 1 else values

    def _window(self, size: int, other: int = 1) -> tuple[int, ...]:
        return tuple(size if axis in self._space else other for axis in range(4))

    def conv(self, x: Any, weight: Any, bias: Any, layer: Conv) -> Any:
        padding = [(p, p) for p in layer.padding]
        strides = (layer.stride, layer.stride)
        numbers = (self._order, "OIHW", self._order)
        y = lax.conv_general_dilated(
            x, weight, strides, padding, dimension_numbers=numbers,
            feature_group_count=layer.groups,
        )  # fmt: skip
        if bias is not None:
            y = y + self._per_channel(bias)
        return ACTIVATIONS[layer.activation](y)

    def norm(self, x: Any, scale: Any, shift: Any, layer: Norm) -> Any:
        mean, variance = jnp.zeros_like(scale), jnp.ones_like(scale)
        if self._training:
            axes = (0, *self._space)
            mean, variance = jnp.mean(x, axes), jnp.var(x, axes)
        factor = scale * lax.rsqrt(variance + layer.epsilon)
        y = x * self._per_channel(factor) + self._per_channel(shift - mean * factor)
        return ACTIVATIONS[layer.activation](y)

    def pool(self, x: Any, layer: Pooling) -> Any:
        padding = [(0, 0)] * 4
        for axis in self._space:
            remainder = (x.shape[axis] + 2 * layer.padding - layer.kernel) % layer.stride
            more = layer.stride - remainder if layer.ceil and remainder else 0
            padding[axis] = (layer.padding, layer.padding + more)
        window, strides = self._window(layer.kernel), self._window(layer.stride)
        if layer.kind == "max":
            return lax.reduce_window(x, -jnp.inf, lax.max, window, strides, padding)
        return lax.reduce_window(x, 0.0, lax.add, window, strides, padding) / layer.kernel**2

    def local_norm(self, x: Any, layer: LocalNorm) -> Any:
        window = tuple(layer.size if axis == self._channels else 1 for axis in range(4))
        padding = [
            (layer.size // 2, layer.size // 2) if axis == self._channels else (0, 0)
            for axis in range(4)
        ]
        squares = lax.reduce_window(x * x, 0.0, lax.add, window, (1,) * 4, padding)
        return x / (1 + 1e-4 / layer.size * squares) ** 0.75

    def flatten(self, x: Any) -> Any:
        images = x if self._channels == 1 else x.transpose(0, 3, 1, 2)
        return images.reshape(len(x), -1)

    def global_pool(self, x: Any) -> Any:
        return jnp.mean(x, self._space)

    def dense(self, x: Any, weight: Any, bias: Any, layer: Dense) -> Any:
        y = x @ weight + bias
        return ACTIVATIONS[layer.activation](y)

    def join(self, xs: list[Any]) -> Any:
        return jnp.concatenate(xs, self._channels)

    def add(self, x: Any, y: Any, layer: Residual) -> Any:
        return ACTIVATIONS[layer.activation](x + y)


class _Network(PeerTrainer):
    """The weights, the batch and the loss of a problem."""

    training: bool

    def __init__(self, problem: NetworkProblem, order: str) -> None:
        self.problem = problem
        images, labels = problem.data()
        self.images = jnp.asarray(images if order == "NCHW" else images.transpose(0, 2, 3, 1))
        self.labels = jnp.asarray(labels)
        self.ops = JaxOperations(self.training, order)
        self.weights: Any = None
        self.reset()

    def reset(self) -> None:
        self.weights = list(map(jnp.array, self.problem.weights()))

    def _outputs(self, weights: Any, images: Any) -> Any:
        return forward(self.problem.layers, images, iter(weights), self.ops)

    def _mean_loss(self, weights: Any, images: Any, labels: Any) -> Any:
        logits = jax.nn.log_softmax(self._outputs(weights, images))
        return -jnp.mean(jnp.take_along_axis(logits, labels[:, None], 1))

    def loss(self) -> float:
        return float(self._mean_loss(self.weights, self.images, self.labels))


@final
class JaxNetworkTrainer(_Network):
    """Steps of SGD on the batch."""

    training = True

    def __init__(self, problem: NetworkProblem, order: str) -> None:
        super().__init__(problem, order)
        self.step = jax.jit(self._step, donate_argnums=0)

    def _step(self, weights: Any, images: Any, labels: Any) -> Any:
        gradients = jax.grad(self._mean_loss)(weights, images, labels)
        rate = self.problem.learning_rate
        return jax.tree.map(lambda weight, slope: weight - rate * slope, weights, gradients)

    def train(self, epochs: int) -> None:
        for _ in range(epochs):
            self.weights = self.step(self.weights, self.images, self.labels)
        jax.block_until_ready(self.weights)


@final
class JaxInference(_Network):
    """Outputs of the batch."""

    training = False

    def __init__(self, problem: NetworkProblem, order: str) -> None:
        super().__init__(problem, order)
        self.outputs = jax.jit(self._outputs)

    def train(self, epochs: int) -> None:
        for _ in range(epochs):
            result = self.outputs(self.weights, self.images)
        jax.block_until_ready(result)
