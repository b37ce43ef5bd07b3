"""PyTorch's DistributedDataParallel next to the scaling experiment of SHM-Learn-Dist.

The processes train the same network from the same initial weights on the same batches, so the
losses can be compared epoch by epoch. They end with this process, also after Ctrl-C.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, final

import numpy as np

import magmath as mm
from magmath.bench.case import Case, System
from magmath.bench.peer_processes import SystemProcesses

if TYPE_CHECKING:
    from magmath.data import Dataset

STOP_SECONDS = 1.0


@final
@dataclass(frozen=True)
class DdpRun:
    """Training by DDP: seconds, losses and accuracies after every epoch."""

    seconds: list[float]
    losses: list[float]
    accuracies: list[float]


def train_by_ddp(
    network: mm.nn.NeuralNetwork,
    name: str,
    data: Dataset,
    *,
    workers: int,
    batch: int,
    epochs: int,
    rate: float,
    python: str,
) -> DdpRun:
    """Train a network of `mm.nn.zoo` by DDP over gloo, on `workers` processes with one thread each.

    `network` has the initial weights. The batches of `batch` samples are those of its `fit`.
    Raises PeerNotInstalled if this Python has no PyTorch, SystemFailed if a process fails.
    """
    system = System(
        "PyTorch DDP", "magmath.bench.peers.ddp_images:train", peer="torch", processes=workers
    )
    with TemporaryDirectory(prefix="magmath-ddp-") as folder:
        file = Path(folder, "problem.npz")
        _write(file, network, data, epochs)
        case = Case(
            name,
            {"network": name, "file": str(file), "batch": batch, "learning_rate": rate},
            float(epochs), "images/s", name, float(workers),
        )  # fmt: skip
        processes = SystemProcesses(system, python)
        try:
            processes.prepare(case)
            seconds = [processes.round() for _ in range(epochs)]
            results = processes.finish()
        finally:
            processes.stop(STOP_SECONDS)
    return DdpRun(list(accumulate(seconds)), results["losses"], results["accuracies"])


def _write(file: Path, network: mm.nn.NeuralNetwork, data: Dataset, epochs: int) -> None:
    """Write the data, the orders of the samples and the initial weights for the processes."""
    network.build((1, *data.train_images.shape[1:]))
    count, seed = len(data.train_labels), network.seed or 0
    orders = [np.asarray(mm.train.sample_order(count, epoch=i, seed=seed)) for i in range(epochs)]
    weights = [np.asarray(parameter) for parameter in network.parameters.values()]
    arrays: dict[str, Any] = {f"weight_{i}": weight for i, weight in enumerate(weights)}
    np.savez(
        file,
        train_images=np.asarray(data.train_images, np.float32),
        train_labels=np.asarray(data.train_labels, np.int64),
        test_images=np.asarray(data.test_images, np.float32),
        test_labels=np.asarray(data.test_labels, np.int64),
        order=np.stack(orders),
        **arrays,
    )
