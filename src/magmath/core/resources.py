"""The processors and the memory that this process may use.

Affinity masks, quotas and limits of control groups, and `ulimit -v` restrict a process to a part of
the machine, and the workers of a host share that part. All code that starts threads or allocates
arrays uses these functions.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Final

from magmath.core import cgroup
from magmath.core.cgroup import ROOT

RESERVED_SHARE: Final = 8
"""1 / RESERVED_SHARE of the memory is reserved for the kernel, its caches, and workspaces."""
RESERVED_PROCESS_BYTES: Final = 256 << 20
"""Memory of Python and the libraries in the controller and in each worker."""
MIN_ARRAY_SHARE: Final = 4
"""Arrays may use at least 1 / MIN_ARRAY_SHARE of the memory."""


def processor_count(root: Path = ROOT) -> int:
    """Return the number of threads that this process can run at once without being throttled.

    This is the size of the affinity mask, or the CPU quota of the control groups, rounded down and
    at least 1, if that is less. It is rounded down because threads that synchronize after each
    operation all wait for the thread that is throttled.
    """
    return limit_to_quota(len(os.sched_getaffinity(0)), root)


def limit_to_quota(count: int, root: Path = ROOT) -> int:
    """Return `count`, or the CPU quota in whole processors if that is smaller."""
    quota = cgroup.cpu_quota(root)
    return count if quota is None else max(1, min(count, int(quota)))


def usable_memory(root: Path = ROOT) -> int:
    """Return the bytes of memory that this process and the workers of its host may use in total.

    This is the minimum of the machine's memory, the limits of the control groups, and the rest of
    the address space (RLIMIT_AS), since workers map one another's arrays.
    """
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    group = cgroup.memory_limit(root)
    if group is not None:
        limits.append(group)
    space = resource.getrlimit(resource.RLIMIT_AS)[0]
    if space != resource.RLIM_INFINITY:
        limits.append(max(0, space - _mapped(root)))
    return min(limits)


def memory_share(workers: int, root: Path = ROOT) -> int:
    """Return the default limit, in bytes, of the arrays of one of `workers` workers on this
    host."""
    available, count = usable_memory(root), max(1, workers)
    array_bytes = available - available // RESERVED_SHARE - RESERVED_PROCESS_BYTES * (count + 1)
    return max(array_bytes, available // MIN_ARRAY_SHARE) // count


def _mapped(root: Path) -> int:
    """Return the bytes of address space that this process has mapped."""
    try:
        pages = (root / "proc/self/statm").read_text().split()[0]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
