"""Detection of processes and files that tests of worker processes have left."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

SHARED_PLACES = (("/tmp", "hydra_*"), ("/dev/shm", "*"))
"""The folder in which MPI stores files while processes start, independent of TMPDIR."""


def eventually(check: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Whether something comes true within this time."""
    deadline = time.monotonic() + seconds
    while not check():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def is_gone(pid: int) -> bool:
    """Whether a process has ended (also if no process has waited for it yet)."""
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True


def parent_of(pid: int) -> int:
    """The process that started this one, or adopted it."""
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def leftover_files() -> set[Path]:
    """This user's files in shared places that no other living process has open or mapped.

    Files that are open in other processes belong to them; files that no process has open are left
    over.
    """
    files = {file for place, names in SHARED_PLACES for file in Path(place).glob(names)}
    return {file for file in files if _is_mine(file)} - (_held() if files else set())


def _is_mine(file: Path) -> bool:
    try:
        return file.stat().st_uid == os.getuid()
    except OSError:
        return False


def _held() -> set[Path]:
    """The files that other living processes have open or mapped."""
    held = set()
    for process in _others():
        with suppress(OSError):  # it has ended meanwhile, or is another user's
            held |= {Path(line.split()[-1]) for line in _text(process / "maps").splitlines()}
            held |= {Path(os.readlink(link)) for link in (process / "fd").iterdir()}
    return held


def started_with(name: str, value: str) -> list[int]:
    """The living processes that had this variable of the environment when they began."""
    result = []
    for process in _others():
        with suppress(OSError):
            if f"{name}={value}" in _text(process / "environ").split("\0"):
                result.append(int(process.name))
    return result


def _others() -> list[Path]:
    """The folders of all processes but this one."""
    own = str(os.getpid())
    return [process for process in Path("/proc").glob("[0-9]*") if process.name != own]


def _text(file: Path) -> str:
    return file.read_bytes().decode(errors="replace")
