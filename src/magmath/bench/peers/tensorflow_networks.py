"""TensorFlow trains and runs the convolutional networks: compiled functions, with and without XLA.

Images are channels last, since TensorFlow computes no others on the processor.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, final

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import tensorflow as tf

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
from magmath.bench.peers.service import Contestant, core_count
from magmath.bench.peers.training import PeerTrainer, TrainingContestant

ACTIVATIONS = {"none": lambda x: x, "relu": tf.nn.relu, "relu6": tf.nn.relu6}


def compiled() -> Contestant:
    """Return the contestant of compiled functions."""
    threads = core_count()
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)

    def variants(problem: NetworkProblem) -> dict[str, Callable[[], PeerTrainer]]:
        make = TensorFlowTrainer if problem.purpose == "train" else TensorFlowInference
        return {
            "tf.function": lambda: make(problem, False),
            "tf.function, jit_compile": lambda: make(problem, True),
        }

    return TrainingContestant({"tensorflow": tf.__version__}, NetworkProblem.of, variants)


@final
class TensorFlowOperations(Operations):
    """TensorFlow's operations on images (N, H, W, C)."""

    def __init__(self, training: bool) -> None:
        self._training = training

    def conv(self, x: Any, weight: Any, bias: Any, layer: Conv) -> Any:
        height, width = layer.padding
        images = _padded(x, (height, height), (width, width))
        if layer.depthwise:  # its filters are (H, W, C, 1)
            filters, strides = tf.transpose(weight, (0, 1, 3, 2)), [1, *[layer.stride] * 2, 1]
            y = tf.nn.depthwise_conv2d(images, filters, strides, "VALID")
        else:
            y = tf.nn.conv2d(images, weight, layer.stride, "VALID")
        y = y if bias is None else tf.nn.bias_add(y, bias)
        return ACTIVATIONS[layer.activation](y)

    def norm(self, x: Any, scale: Any, shift: Any, layer: Norm) -> Any:
        if self._training:
            y, *_ = tf.compat.v1.nn.fused_batch_norm(x, scale, shift, epsilon=layer.epsilon)
        else:
            mean, variance = tf.zeros_like(scale), tf.ones_like(scale)
            y = tf.nn.batch_normalization(x, mean, variance, shift, scale, layer.epsilon)
        return ACTIVATIONS[layer.activation](y)

    def pool(self, x: Any, layer: Pooling) -> Any:
        ends = []
        for size in x.shape[1:3]:
            remainder = (size + 2 * layer.padding - layer.kernel) % layer.stride
            ends.append(
                layer.padding + (layer.stride - remainder if layer.ceil and remainder else 0)
            )
        value = x.dtype.min if layer.kind == "max" else 0.0
        images = _padded(x, (layer.padding, ends[0]), (layer.padding, ends[1]), value)
        pool = tf.nn.max_pool2d if layer.kind == "max" else tf.nn.avg_pool2d
        return pool(images, layer.kernel, layer.stride, "VALID")

    def local_norm(self, x: Any, layer: LocalNorm) -> Any:
        alpha = 1e-4 / layer.size
        return tf.nn.local_response_normalization(x, layer.size // 2, 1.0, alpha, 0.75)

    def flatten(self, x: Any) -> Any:
        return tf.reshape(tf.transpose(x, (0, 3, 1, 2)), (x.shape[0], -1))

    def global_pool(self, x: Any) -> Any:
        return tf.reduce_mean(x, (1, 2))

    def dense(self, x: Any, weight: Any, bias: Any, layer: Dense) -> Any:
        y = tf.nn.bias_add(tf.matmul(x, weight), bias)
        return ACTIVATIONS[layer.activation](y)

    def join(self, xs: list[Any]) -> Any:
        return tf.concat(xs, 3)

    def add(self, x: Any, y: Any, layer: Residual) -> Any:
        return ACTIVATIONS[layer.activation](x + y)


def _padded(x: Any, rows: tuple[int, int], columns: tuple[int, int], value: float = 0.0) -> Any:
    if not any((*rows, *columns)):
        return x
    return tf.pad(x, ((0, 0), rows, columns, (0, 0)), constant_values=value)


class _Network(PeerTrainer, ABC):
    """The weights, the batch and the loss of a problem."""

    training: bool

    def __init__(self, problem: NetworkProblem, xla: bool) -> None:
        self.problem = problem
        images, labels = problem.data()
        self.images = tf.constant(images.transpose(0, 2, 3, 1))
        self.labels = tf.constant(labels)
        self.weights = list(map(tf.Variable, self._drawn()))
        self.ops = TensorFlowOperations(self.training)
        self.call = tf.function(self._call, autograph=False, jit_compile=xla)

    def _outputs(self) -> Any:
        return forward(self.problem.layers, self.images, iter(self.weights), self.ops)

    def _mean_loss(self) -> Any:
        return tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels=self.labels, logits=self._outputs()
            )
        )

    @abstractmethod
    def _call(self) -> Any:
        """Do the work of one repetition; return a tensor that is computed after all of it."""

    def reset(self) -> None:
        for weight, array in zip(self.weights, self._drawn(), strict=True):
            weight.assign(array)

    def _drawn(self) -> Iterator[Any]:
        """Return the initial weights, filters as (H, W, inputs, outputs)."""
        for array in self.problem.weights():
            yield array.transpose(2, 3, 1, 0) if array.ndim == 4 else array

    def train(self, epochs: int) -> None:
        for _ in range(epochs):
            result = self.call()
        result.numpy()

    def loss(self) -> float:
        return float(self._mean_loss())


@final
class TensorFlowTrainer(_Network):
    """Steps of SGD on the batch."""

    training = True

    def _call(self) -> Any:
        with tf.GradientTape() as tape:
            loss = self._mean_loss()
        for weight, slope in zip(self.weights, tape.gradient(loss, self.weights), strict=True):
            weight.assign_sub(self.problem.learning_rate * slope)
        return self.weights[-1].read_value()


@final
class TensorFlowInference(_Network):
    """Outputs of the batch."""

    training = False

    def _call(self) -> Any:
        return self._outputs()
