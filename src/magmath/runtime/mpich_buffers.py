"""MPICH settings for the free space in /dev/shm.

Arrays are in anonymous files (`comm/host_memory.py`), which the size of /dev/shm does not limit.
MPICH's message buffers are in /dev/shm, and a bus error kills the process if they do not fit.
Containers often have 64 KB or 64 MB there. This module finds settings of MPICH that fit.
"""

from __future__ import annotations

import os
import resource
import warnings
from collections.abc import Mapping, Sequence
from typing import Final

from magmath.core.byte_sizes import round_up
from magmath.core.cpu import CACHE_LINE, PAGE
from magmath.errors import WorkerError
from magmath.runtime.messages import Hello

SHM_FOLDER: Final = "/dev/shm"
_AMPLE: Final = 32 << 20
_AMPLE_PER_WORKER: Final = 8 << 20
"""Free bytes that suffice for the default settings: MPICH uses about 6 MB per worker, and UCX fails
with 16 MB free even for one worker."""

_CELLS: Final = "MPIR_CVAR_CH4_SHM_POSIX_IQUEUE_NUM_CELLS"
_CELL_SIZE: Final = "MPIR_CVAR_CH4_SHM_POSIX_IQUEUE_CELL_SIZE"
_QUEUES: Final = ((64, 8192), (16, 8160), (8, 4064), (4, 2016), (2, 2016))
"""Cells of a worker's message queue, and bytes per cell: MPICH's default, then smaller ones."""
_SECOND_QUEUE: Final = "MPIR_CVAR_CH4_SHM_POSIX_TOPO_ENABLE"
"""Unless it is 0, MPICH gives each worker a second queue, for messages from other sockets."""
_CELL_HEAD: Final = 32
_QUEUE_HEAD: Final = 1024
_TRANSPORTS: Final = "UCX_TLS"
_NOT_IN_FOLDER: Final = "^posix"
"""UCX, which carries MPICH's messages between hosts, uses any transport but files in /dev/shm."""


def mpich_settings(workers: int, environment: Mapping[str, str], all_here: bool) -> dict[str, str]:
    """Return environment variables with which MPICH's buffers for `workers` fit into /dev/shm.

    Empty if the defaults fit; otherwise the function warns. Variables that `environment` has are
    unchanged. With `all_here`, all workers are on this host, and WorkerError is raised if no
    setting fits.
    """
    free = free_shm_bytes()
    ample = _AMPLE + workers * _AMPLE_PER_WORKER
    if free >= ample or _CELLS in environment:
        return {}
    fitting = [queue for queue in _QUEUES if _queue_bytes(workers, *queue) <= free]
    if all_here and not fitting:
        raise WorkerError(
            f"init: MPI needs {_queue_bytes(workers, *_QUEUES[-1]) / 1e3:.0f} kB in {SHM_FOLDER} "
            f"for {workers} workers, and {free / 1e3:.0f} kB can be written there; give the "
            f"container more (docker run --shm-size=1g), raise the limit on the size of files "
            f"(ulimit -f), or use fewer workers"
        )
    cells, size = (fitting or _QUEUES)[0 if fitting else -1]
    warnings.warn(
        f"init: {free / 1e6:.3g} MB can be written to {SHM_FOLDER}, and MPI's usual buffers for "
        f"{workers} workers want {ample / 1e6:.0f} MB: smaller ones are used, with which messages "
        f"may be slower (arrays are elsewhere); give the container more (docker run --shm-size=1g)",
        RuntimeWarning,
        stacklevel=2,
    )
    settings = {
        _CELLS: str(cells),
        _CELL_SIZE: str(size),
        _SECOND_QUEUE: "0",
        _TRANSPORTS: _NOT_IN_FOLDER,
    }
    return {name: value for name, value in settings.items() if name not in environment}


def warn_without_shared_memory(hellos: Sequence[Hello]) -> None:
    """Warn if workers of one host cannot share memory and exchange messages instead."""
    on_processor = all(hello.device == "cpu" for hello in hellos)
    if len(hellos) == 1 or not on_processor or len({hello.host for hello in hellos}) > 1:
        return
    if not all(hello.shares_memory for hello in hellos):
        warnings.warn(
            "init: the workers cannot see each other's memory (Linux memfd_create and "
            "/proc/PID/fd; a limit on the size of files prevents it too: ulimit -f): they exchange "
            "messages, which is slower",
            RuntimeWarning,
            stacklevel=2,
        )


def free_shm_bytes() -> int:
    """Return the free bytes in /dev/shm for this user; 0 if it is missing or read-only."""
    try:
        status = os.statvfs(SHM_FOLDER)
    except OSError:
        return 0
    full = status.f_files > 0 and status.f_favail < 2
    if full or status.f_flag & os.ST_RDONLY or not os.access(SHM_FOLDER, os.W_OK | os.X_OK):
        return 0
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    free = status.f_bavail * status.f_frsize
    return free if limit == resource.RLIM_INFINITY else min(free, limit)


def _queue_bytes(workers: int, cells: int, size: int) -> int:
    """Return an upper bound of the bytes of MPICH's file in /dev/shm, with one queue per worker."""
    queue = round_up(cells * round_up(size + _CELL_HEAD, CACHE_LINE), PAGE)
    return 2 * PAGE + workers * (queue + _QUEUE_HEAD)
