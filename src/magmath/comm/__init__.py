"""Communication between workers: one interface over threads, shared memory and MPI.

`Communicator` is the interface; `LocalGroup` makes ranks that are threads of this process, and
`LocalHosts` such ranks on simulated hosts. The MPI communicator is in `magmath.comm.mpi`, the only
module that imports mpi4py.
"""

from __future__ import annotations

from magmath.comm.communicator import Communicator
from magmath.comm.local_group import LocalGroup
from magmath.comm.local_hosts import LocalHosts

__all__ = ["Communicator", "LocalGroup", "LocalHosts"]
