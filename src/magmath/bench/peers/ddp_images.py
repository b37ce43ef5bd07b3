"""PyTorch's DistributedDataParallel over gloo on a data set, from given weights and batches.

`magmath reproduce shm-cifar10` compares the losses of its own training with it, epoch by epoch.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, fields
from typing import Any, final

import numpy as np
import torch
import torch.distributed as distributed
import torch.nn.functional as F
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from magmath.bench.peers.ddp import join
from magmath.bench.peers.network_layers import Conv, Dense, Flatten, Layers, Pooling, forward
from magmath.bench.peers.networks import NETWORKS
from magmath.bench.peers.service import Contestant, rank
from magmath.bench.peers.torch_networks import TorchOperations

WARM_UP = 3

LAYERS: dict[str, Layers] = {
    "alexnet_cifar": NETWORKS["alexnet_cifar"],
    "lenet5": (
        Conv(6, (5, 5), 1, (2, 2)), Pooling("max", 2, 2), Conv(16, (5, 5)), Pooling("max", 2, 2),
        Flatten(), Dense(120, "relu"), Dense(84, "relu"), Dense(10),
    ),
    "mlp": (Flatten(), Dense(128, "relu"), Dense(128, "relu"), Dense(10)),
}  # fmt: skip
"""The networks of `mm.nn.zoo` by name, for ten classes."""


@final
@dataclass(frozen=True)
class ImageProblem:
    """A network, the batch of all processes in total, and the learning rate.

    `file` is an .npz file: `train_images`, `train_labels`, `test_images`, `test_labels`, `order`
    (epochs, training images), and the initial weights `weight_0`, `weight_1` … in the order of
    `network_layers.forward`.
    """

    network: str
    file: str
    batch: int
    learning_rate: float

    @classmethod
    def of(cls, case: dict[str, Any]) -> ImageProblem:
        """Return the problem of a case's parameters."""
        return cls(**{field.name: case[field.name] for field in fields(cls)})


def train() -> Contestant:
    """Return the contestant whose rounds are epochs."""
    versions = join()
    torch.set_num_threads(1)
    return DdpImages(versions)


@final
class DdpImages(Contestant):
    """Trains this rank's share of every batch; a round is an epoch, without the test."""

    def __init__(self, versions: dict[str, str]) -> None:
        self._versions = versions
        self._problem: ImageProblem
        self._arrays: dict[str, Tensor]
        self._network: _Network
        self._parallel: DistributedDataParallel
        self._optimizer: torch.optim.Optimizer
        self._losses: list[float] = []
        self._accuracies: list[float] = []

    def versions(self) -> dict[str, str]:
        return self._versions

    def prepare(self, case: dict[str, Any]) -> dict[str, Any]:
        self._problem = problem = ImageProblem.of(case)
        with np.load(problem.file) as file:
            self._arrays = {name: torch.from_numpy(file[name]) for name in file.files}
        self._network = _Network(LAYERS[problem.network], _weights(self._arrays))
        self._parallel = DistributedDataParallel(
            self._network, static_graph=True, gradient_as_bucket_view=True
        )
        self._optimizer = torch.optim.SGD(
            self._network.parameters(), lr=problem.learning_rate, fused=True
        )
        for part in torch.split(self._arrays["order"][0], problem.batch)[:WARM_UP]:
            self._step(part)
        self._network.reset(_weights(self._arrays))
        distributed.barrier()
        return {"variant": "static graph, gradients as bucket views"}

    def round(self) -> float:
        order = self._arrays["order"][len(self._losses)]
        total = torch.zeros((), dtype=torch.float64)
        distributed.barrier()
        start = time.perf_counter()
        for part in torch.split(order, self._problem.batch):
            total += self._step(part)
        seconds = time.perf_counter() - start
        distributed.all_reduce(total)
        self._losses.append(float(total) / len(order))
        self._accuracies.append(self._accuracy())
        return seconds

    def finish(self) -> dict[str, Any]:
        return {"losses": self._losses, "accuracies": self._accuracies}

    def _step(self, batch: Tensor) -> float:
        """Train on a batch; return the sum of the losses of this rank's samples.

        DDP averages over ranks, whose shares of the last batch may differ.
        """
        own_samples, ranks = _share(batch), distributed.get_world_size()
        images, labels = (
            self._arrays["train_images"][own_samples],
            self._arrays["train_labels"][own_samples],
        )
        self._optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(self._parallel(images), labels, reduction="sum")
        (loss * (ranks / len(batch))).backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        return float(loss.detach())

    @torch.no_grad()
    def _accuracy(self) -> float:
        images, labels = self._arrays["test_images"], self._arrays["test_labels"]
        own_samples = _share(torch.arange(len(labels)))
        correct = torch.zeros((), dtype=torch.int64)
        for part in torch.split(own_samples, 1000):
            correct += (self._network(images[part]).argmax(1) == labels[part]).sum()
        distributed.all_reduce(correct)
        return float(correct) / len(labels)


def _share(samples: Tensor) -> Tensor:
    """Return this rank's part of the samples; the first parts may be one longer."""
    return samples.tensor_split(distributed.get_world_size())[rank()]


def _weights(arrays: dict[str, Tensor]) -> list[Tensor]:
    """Return the initial weights; those of dense layers as PyTorch stores them."""
    count = sum(name.startswith("weight_") for name in arrays)
    weights = [arrays[f"weight_{i}"] for i in range(count)]
    return [w.T.contiguous() if w.ndim == 2 else w.clone() for w in weights]


@final
class _Network(torch.nn.Module):
    """A table of layers with its weights."""

    def __init__(self, layers: Layers, weights: list[Tensor]) -> None:
        super().__init__()
        self._layers = layers
        self.weights = torch.nn.ParameterList([torch.nn.Parameter(w) for w in weights])

    def forward(self, images: Tensor) -> Tensor:
        operations = TorchOperations(training=True, statistics={})
        scores: Tensor = forward(self._layers, images, iter(self.weights), operations)
        return scores

    @torch.no_grad()
    def reset(self, weights: list[Tensor]) -> None:
        """Set all weights."""
        for parameter, weight in zip(self.weights, weights, strict=True):
            parameter.copy_(weight)
