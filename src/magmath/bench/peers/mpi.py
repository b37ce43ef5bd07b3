"""Plain MPI: the collectives of the library that mpi4py finds, on NumPy arrays."""

from __future__ import annotations

import mpi4py
import numpy as np
from mpi4py import MPI

from magmath.bench.peers.collective import CollectiveContestant
from magmath.bench.peers.service import Contestant


def collectives() -> Contestant:
    """MPI's own collectives, the upper-case methods that send buffers as they are."""
    world = MPI.COMM_WORLD
    library = " ".join(MPI.Get_library_version().split("\n")[0].split())
    return CollectiveContestant(
        {"mpi4py": mpi4py.__version__, "MPI": library},
        world.rank,
        world.size,
        lambda count: np.zeros(count, np.float32),
        {
            "allreduce": lambda out, array: world.Allreduce(MPI.IN_PLACE, out),
            "allgather": lambda out, array: world.Allgather(array, out),
            "reduce_scatter": lambda out, array: world.Reduce_scatter_block(array, out),
            "all_to_all": lambda out, array: world.Alltoall(array, out),
        },
        world.Barrier,
    )
