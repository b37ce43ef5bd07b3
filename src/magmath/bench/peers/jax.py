"""JAX: the jitted step with donated parameters, and a whole epoch in one `lax.scan`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, final

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp

from magmath.bench.peers.problem import Problem
from magmath.bench.peers.service import Contestant
from magmath.bench.peers.training import PeerTrainer, TrainingContestant

Weights = Any


def mlp() -> Contestant:
    """JAX trains the MLP."""
    return TrainingContestant({"jax": jax.__version__}, Problem.of, _variants)


def _variants(problem: Problem) -> dict[str, Callable[[], PeerTrainer]]:
    jax.clear_caches()
    return {
        "jit per step": lambda: JaxTrainer(problem, unroll=0),
        "jit per epoch (scan)": lambda: JaxTrainer(problem, unroll=1),
        "jit per epoch (scan, unroll 4)": lambda: JaxTrainer(problem, unroll=4),
    }


def mean_loss(weights: Weights, images: Any, labels: Any) -> Any:
    """Return the mean cross entropy of an MLP with these weights."""
    x = images
    for matrix, bias in weights[:-1]:
        x = jax.nn.relu(x @ matrix + bias)
    matrix, bias = weights[-1]
    logits = jax.nn.log_softmax(x @ matrix + bias)
    return -jnp.mean(jnp.take_along_axis(logits, labels[:, None], 1))


@final
class JaxTrainer(PeerTrainer):
    """`unroll=0` calls a compiled step for each batch, otherwise a compiled epoch."""

    def __init__(self, problem: Problem, unroll: int) -> None:
        self.problem = problem
        images, labels = problem.data()
        shape = (problem.steps, problem.batch)
        self.images = jnp.asarray(images).reshape(*shape, -1)
        self.labels = jnp.asarray(labels).reshape(shape)
        self.batches = list(zip(self.images, self.labels, strict=True))
        self.unroll = unroll
        self.step = jax.jit(self._step, donate_argnums=0)
        self.epoch = jax.jit(self._epoch, donate_argnums=0)
        self.weights: Weights
        self.reset()

    def _step(self, weights: Weights, images: Any, labels: Any) -> Weights:
        gradients = jax.grad(mean_loss)(weights, images, labels)
        rate = self.problem.learning_rate
        return jax.tree.map(lambda weight, slope: weight - rate * slope, weights, gradients)

    def _epoch(self, weights: Weights, images: Any, labels: Any) -> Weights:
        def body(weights: Weights, batch: Any) -> tuple[Weights, None]:
            return self._step(weights, *batch), None

        return jax.lax.scan(body, weights, (images, labels), unroll=self.unroll)[0]

    def reset(self) -> None:
        self.weights = jax.tree.map(jnp.array, self.problem.weights())

    def train(self, epochs: int) -> None:
        for _ in range(epochs):
            if self.unroll:
                self.weights = self.epoch(self.weights, self.images, self.labels)
                continue
            for images, labels in self.batches:
                self.weights = self.step(self.weights, images, labels)
        jax.block_until_ready(self.weights)

    def loss(self) -> float:
        flat = self.images.reshape(self.problem.images, -1)
        return float(mean_loss(self.weights, flat, self.labels.reshape(-1)))
