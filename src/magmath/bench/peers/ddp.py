"""PyTorch over gloo, one process per worker: DistributedDataParallel, and the bare collectives."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import final

import torch
import torch.distributed as distributed
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from magmath.bench.peers.collective import CollectiveContestant
from magmath.bench.peers.problem import Problem
from magmath.bench.peers.service import Contestant, core_count, rank
from magmath.bench.peers.torch import TorchMlp, set_weights
from magmath.bench.peers.training import PeerTrainer, TrainingContestant


def mlp() -> Contestant:
    """Return the contestant of DDP: each rank trains on its share of every batch."""
    return TrainingContestant(join(), Problem.of, _variants, _slowest)


def collectives() -> Contestant:
    """Return the contestant of gloo's collectives on float32 tensors."""
    operations: dict[str, Callable[[Tensor, Tensor], object]] = {
        "allreduce": lambda out, tensor: distributed.all_reduce(out),
        "allgather": distributed.all_gather_into_tensor,
        "reduce_scatter": distributed.reduce_scatter_tensor,
        "all_to_all": distributed.all_to_all_single,
    }
    versions = join()
    size = distributed.get_world_size()
    return CollectiveContestant(
        versions, rank(), size, torch.zeros, operations, lambda: distributed.barrier()
    )


def join() -> dict[str, str]:
    """Join the other ranks of this system; return the versions of the libraries."""
    size = int(os.environ["MAGMATH_BENCH_SIZE"])
    torch.set_num_threads(max(1, core_count() // size))
    meeting = os.environ["MAGMATH_BENCH_MEETING"]
    distributed.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank(), world_size=size
    )
    return {"torch": torch.__version__}


def _slowest(seconds: float) -> float:
    value = torch.tensor(seconds, dtype=torch.float64)
    distributed.all_reduce(value, distributed.ReduceOp.MAX)
    return float(value)


def _variants(problem: Problem) -> dict[str, Callable[[], PeerTrainer]]:
    return {
        "plain": lambda: DdpTrainer(problem, tuned=False, bucket_megabytes=25),
        "static graph, gradients as bucket views": lambda: DdpTrainer(
            problem, tuned=True, bucket_megabytes=25
        ),
        "the same, buckets of 4 MB": lambda: DdpTrainer(problem, tuned=True, bucket_megabytes=4),
    }


@final
class DdpTrainer(PeerTrainer):
    """PyTorch's tutorial loop on this rank's share of each batch, fused SGD."""

    def __init__(self, problem: Problem, tuned: bool, bucket_megabytes: int) -> None:
        self.problem = problem
        self.images, self.labels = (torch.from_numpy(part) for part in problem.data())
        self.network = TorchMlp(problem)
        self.reset()
        self.parallel = DistributedDataParallel(
            self.network,
            static_graph=tuned,
            gradient_as_bucket_view=tuned,
            bucket_cap_mb=bucket_megabytes,
        )
        self.optimizer = torch.optim.SGD(
            self.network.parameters(), lr=problem.learning_rate, fused=True
        )

    def reset(self) -> None:
        set_weights(self.network, self.problem)

    def train(self, epochs: int) -> None:
        batch = self.problem.batch
        share = batch // distributed.get_world_size()
        first = rank() * share
        for _ in range(epochs):
            for start in range(first, self.problem.images, batch):
                self.optimizer.zero_grad(set_to_none=True)
                part = slice(start, start + share)
                self.parallel(self.images[part], self.labels[part]).backward()
                self.optimizer.step()

    @torch.no_grad()
    def loss(self) -> float:
        return float(self.network(self.images, self.labels))
