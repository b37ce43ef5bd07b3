"""Detection of workers that the kernel killed because memory was exhausted.

The OOM killer sends SIGKILL; the exit status does not give the reason. The evidence is in counters
of the control groups and of the machine, which increase with each kill, and in the kernel log, if
this process may read it.
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
"""Maximum length of a record of the kernel log."""
_KILLED: Final = re.compile(r"[Oo]ut of memory: Kill(?:ed)? process (\d+)")
_SIGKILL: Final = re.compile(r"\bKilled\b|signal 9\b|\bSIGKILL\b")


def is_sigkill(cause: str) -> bool:
    """Return True if a launcher's description of a process's end means SIGKILL."""
    return bool(_SIGKILL.search(cause))


@final
class OutOfMemoryWatch:
    """Stores the counters at construction, and detects later changes.

    `root`: the directory that represents `/`.
    """

    def __init__(self, root: Path = ROOT) -> None:
        self._root = root
        self._group = cgroup.oom_kills(root)
        self._machine = _machine_kills(root)

    def evidence(self, processes: Collection[int]) -> str | None:
        """Return the evidence that one of these processes of this host was killed for lack of
        memory; None without evidence."""
        in_group = _has_risen(self._group, cgroup.oom_kills(self._root))
        if not (in_group or _has_risen(self._machine, _machine_kills(self._root))):
            return None
        scope = "its control group" if in_group else "the machine"
        killed = [pid for pid in _killed_in_log(self._root) if pid in processes]
        if killed:
            return f"the kernel killed process {killed[-1]} because {scope} had no memory left"
        return f"{scope} ran out of memory meanwhile, and the kernel killed a process for it"


def _has_risen(before: int | None, now: int | None) -> bool:
    return now is not None and now > (before or 0)


def _machine_kills(root: Path) -> int | None:
    """Return the number of processes of this machine that the kernel has killed for lack of memory
    since boot."""
    try:
        line = re.search(r"^oom_kill (\d+)$", (root / "proc/vmstat").read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(line[1]) if line else None


def _killed_in_log(root: Path) -> list[int]:
    """Return the processes that the kernel log reports as killed for memory; empty if
    unreadable."""
    try:
        log = os.open(root / "dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return []
    processes: list[int] = []
    try:
        while record := _read_record(log):
            processes += [int(pid) for pid in _KILLED.findall(record)]
    finally:
        os.close(log)
    return processes


def _read_record(log: int) -> str:
    """Return the next record of the kernel log; empty at its end."""
    while True:
        try:
            return os.read(log, _RECORD_BYTES).decode(errors="replace")
        except BrokenPipeError:  # records were overwritten before they could be read
            continue
        except OSError:
            return ""
