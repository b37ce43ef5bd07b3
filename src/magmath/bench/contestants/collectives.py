"""magmath's collectives, as workers call them, in processes started by mpiexec."""

from __future__ import annotations

import torch

from magmath.bench.contestants.common import VERSIONS
from magmath.bench.peers.collective import CollectiveContestant
from magmath.bench.peers.service import Contestant
from magmath.comm.mpi import world_communicator


def collectives() -> Contestant:
    """Return the contestant of magmath's communicator, on float32 tensors in shared windows."""
    torch.set_num_threads(1)
    ranks = world_communicator()
    return CollectiveContestant(
        VERSIONS,
        ranks.rank,
        ranks.size,
        lambda count: ranks.shared_window(4 * count)[ranks.rank].view(torch.float32),
        {
            "allreduce": lambda out, array: ranks.allreduce(out),
            "allgather": ranks.allgather,
            "reduce_scatter": ranks.reduce_scatter,
            "all_to_all": ranks.all_to_all,
        },
        ranks.barrier,
    )
