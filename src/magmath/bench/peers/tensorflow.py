"""TensorFlow: Keras `fit` with its settings for speed, and a custom compiled step."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, final

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import tensorflow as tf

from magmath.bench.peers.problem import INPUTS, Problem
from magmath.bench.peers.service import Contestant, core_count
from magmath.bench.peers.training import PeerTrainer, TrainingContestant


def mlp() -> Contestant:
    """TensorFlow trains the MLP."""
    threads = core_count()
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    return TrainingContestant(
        {"tensorflow": tf.__version__, "keras": tf.keras.__version__}, Problem.of, _variants
    )


def _variants(problem: Problem) -> dict[str, Callable[[], PeerTrainer]]:
    tf.keras.backend.clear_session()
    return {
        "fit": lambda: FitTrainer(problem, xla=False, steps=1),
        "fit, jit_compile": lambda: FitTrainer(problem, xla=True, steps=1),
        "fit, steps_per_execution": lambda: FitTrainer(problem, xla=False, steps=problem.steps),
        "fit, jit_compile, steps_per_execution": lambda: FitTrainer(
            problem, xla=True, steps=problem.steps
        ),
        "tf.function, jit_compile": lambda: StepTrainer(problem),
    }


def _network(problem: Problem) -> Any:
    hidden = [tf.keras.layers.Dense(problem.width, "relu") for _ in range(problem.layers)]
    return tf.keras.Sequential([tf.keras.Input((INPUTS,)), *hidden, tf.keras.layers.Dense(10)])


def _set_weights(network: Any, problem: Problem) -> None:
    network.set_weights([array for pair in problem.weights() for array in pair])


@final
class FitTrainer(PeerTrainer):
    """Keras's own training loop."""

    def __init__(self, problem: Problem, xla: bool, steps: int) -> None:
        self.problem = problem
        self.images, self.labels = map(tf.constant, problem.data())
        self.network = _network(problem)
        self.network.compile(
            optimizer=tf.keras.optimizers.SGD(problem.learning_rate),
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            jit_compile=xla,
            steps_per_execution=steps,
        )
        self.reset()

    def reset(self) -> None:
        _set_weights(self.network, self.problem)

    def train(self, epochs: int) -> None:
        self.network.fit(
            self.images,
            self.labels,
            batch_size=self.problem.batch,
            epochs=epochs,
            shuffle=False,
            verbose=0,
        )

    def loss(self) -> float:
        return float(self.network.evaluate(self.images, self.labels, verbose=0))


@final
class StepTrainer(PeerTrainer):
    """A step compiled by XLA as a whole, called for each batch."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        images, labels = problem.data()
        self.images, self.labels = tf.constant(images), tf.constant(labels)
        shape = (problem.steps, problem.batch)
        self.batches = [
            (tf.constant(x), tf.constant(y))
            for x, y in zip(images.reshape(*shape, -1), labels.reshape(shape), strict=True)
        ]
        self.network = _network(problem)
        self.step = tf.function(self._step, jit_compile=True)
        self.reset()

    def _mean_loss(self, images: Any, labels: Any) -> Any:
        logits = self.network(images, training=True)
        return tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        )

    def _step(self, images: Any, labels: Any) -> None:
        variables = self.network.trainable_variables
        with tf.GradientTape() as tape:
            loss = self._mean_loss(images, labels)
        for variable, slope in zip(variables, tape.gradient(loss, variables), strict=True):
            variable.assign_sub(self.problem.learning_rate * slope)

    def reset(self) -> None:
        _set_weights(self.network, self.problem)

    def train(self, epochs: int) -> None:
        for _ in range(epochs):
            for images, labels in self.batches:
                self.step(images, labels)
        self.network.trainable_variables[-1].numpy()

    def loss(self) -> float:
        return float(self._mean_loss(self.images, self.labels))
