"""Whether the kernel killed a worker because the machine or a control group had no memory left.

The OOM killer sends SIGKILL and says so nowhere in the process's end. The evidence is elsewhere:
counters of the control groups and of the machine, which rise with each such kill, and the kernel's
log where this process may read it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import Final, final

from magmath.core import cgroup
from magmath.core.cgroup import ROOT

_RECORD_BYTES: Final = 8192
"""The kernel's log is read record by record; none is longer."""
_KILLED: Final = re.compile(r"[Oo]ut of memory: Kill(?:ed)? process (\d+)")
_SIGKILL: Final = re.compile(r"\bKilled\b|signal 9\b|\bSIGKILL\b")


def is_sigkill(cause: str) -> bool:
    """True if a launcher's description of a process's end means SIGKILL."""
    return bool(_SIGKILL.search(cause))


@final
class OutOfMemoryWatch:
    """Notes the counters when it is made, and finds what has changed since.

    `root` is the directory that stands for `/`.
    """

    def __init__(self, root: Path = ROOT) -> None:
        self._root = root
        self._group = cgroup.oom_kills(root)
        self._machine = _machine_kills(root)

    def evidence(self, processes: Collection[int]) -> str | None:
        """What says that one of these processes of this host was killed for memory; None where
        nothing does."""
        in_group = _has_risen(self._group, cgroup.oom_kills(self._root))
        if not (in_group or _has_risen(self._machine, _machine_kills(self._root))):
            return None
        place = "its control group" if in_group else "the machine"
        killed = [pid for pid in _killed_in_log(self._root) if pid in processes]
        if killed:
            return f"the kernel killed process {killed[-1]} because {place} had no memory left"
        return f"{place} ran out of memory meanwhile, and the kernel killed a process for it"


def _has_risen(before: int | None, now: int | None) -> bool:
    return now is not None and now > (before or 0)


def _machine_kills(root: Path) -> int | None:
    """How many processes of this machine the kernel has killed for memory since it started."""
    try:
        found = re.search(r"^oom_kill (\d+)$", (root / "proc/vmstat").read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) if found else None


def _killed_in_log(root: Path) -> list[int]:
    """The processes that the kernel's log names as killed for memory; none where it cannot be
    read."""
    try:
        log = os.open(root / "dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return []
    found: list[int] = []
    try:
        while record := _read_record(log):
            found += [int(pid) for pid in _KILLED.findall(record)]
    finally:
        os.close(log)
    return found


def _read_record(log: int) -> str:
    """The next record of the kernel's log; empty at its end."""
    while True:
        try:
            return os.read(log, _RECORD_BYTES).decode(errors="replace")
        except BrokenPipeError:  # records were overwritten before they could be read
            continue
        except OSError:
            return ""
