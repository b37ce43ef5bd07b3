"""The processors and the memory that this process may use: the one place that decides it.

A machine has more than a process may take of it: an affinity mask, the quotas and limits of control
groups, and `ulimit -v` reduce it, and the workers of a host share what is left. Everything that
starts threads or allocates arrays asks here.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Final

from magmath.core import cgroup
from magmath.core.cgroup import ROOT

RESERVED_SHARE: Final = 8
"""One part in so many of the memory is not for arrays: the kernel, its caches, workspaces."""
RESERVED_PROCESS_BYTES: Final = 256 << 20
"""Bytes that Python and the libraries take in the controller and in each worker."""
MIN_ARRAY_SHARE: Final = 4
"""Arrays may take at least one part in so many of the memory, however small it is."""


def processor_count(root: Path = ROOT) -> int:
    """The number of threads that this process can run at once without being stopped.

    This is the size of the affinity mask, or the CPU quota of the control groups, rounded down and
    at least 1, if that is less. It is rounded down because threads that meet after each operation
    all wait for the one whose quota is used up.
    """
    return limit_to_quota(len(os.sched_getaffinity(0)), root)


def limit_to_quota(count: int, root: Path = ROOT) -> int:
    """So many processors, or as many as the CPU quota allows to use at once if these are fewer."""
    quota = cgroup.cpu_quota(root)
    return count if quota is None else max(1, min(count, int(quota)))


def usable_memory(root: Path = ROOT) -> int:
    """The bytes of memory that this process and the workers of its host may use together.

    The least of the machine's memory, the limits of the control groups, and what the limit on the
    address space of a process (RLIMIT_AS) leaves: workers map one another's arrays.
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
    """The bytes that the arrays of one of so many workers on this host may take, by default."""
    available, count = usable_memory(root), max(1, workers)
    rest = available - available // RESERVED_SHARE - RESERVED_PROCESS_BYTES * (count + 1)
    return max(rest, available // MIN_ARRAY_SHARE) // count


def _mapped(root: Path) -> int:
    """The bytes of address space that this process has mapped."""
    try:
        pages = (root / "proc/self/statm").read_text().split()[0]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
