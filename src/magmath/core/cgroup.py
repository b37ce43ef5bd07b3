"""Limits that Linux control groups set for this process: memory, processor time, OOM kills.

Both versions of control groups are read, through `/proc/self/cgroup` and `/proc/self/mountinfo`.
Groups are nested and every level may set a limit, so each function walks from the group of this
process up to the root of the mount and returns the tightest limit. All functions take the directory
that represents `/`, so that tests can pass a temporary one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple, final

ROOT: Final = Path("/")
_UNLIMITED: Final = 1 << 60
"""Without a limit, version 1 reports the largest multiple of a page that fits into 63 bits."""


@final
class ControlGroup(NamedTuple):
    """One control group: its directory, and the version of control groups that it belongs to."""

    version: int
    directory: Path


@final
class Mount(NamedTuple):
    """A mounted hierarchy of control groups.

    controllers  those of version 1 that it has
    group        the group at the root of the mount
    point        the directory at which it is mounted
    """

    version: int
    controllers: list[str]
    group: str
    point: str


def memory_limit(root: Path = ROOT) -> int | None:
    """Return the bytes of memory that all processes of the control groups may use in total; None
    without a limit."""
    limits = []
    for version, directory in _levels(root, "memory"):
        names = ("memory.max", "memory.high") if version == 2 else ("memory.limit_in_bytes",)
        limits += [value for name in names if (value := _integer(directory / name)) is not None]
    return min((limit for limit in limits if limit < _UNLIMITED), default=None)


def cpu_quota(root: Path = ROOT) -> float | None:
    """Return the CPU quota of the control groups in processors; None without a quota. 1.5 allows
    1.5 seconds of processor time per second."""
    quotas = []
    for version, directory in _levels(root, "cpu"):
        if version == 2:
            quota, _, period = (_text(directory / "cpu.max") or "max").partition(" ")
        else:
            quota = _text(directory / "cpu.cfs_quota_us") or "-1"
            period = _text(directory / "cpu.cfs_period_us") or ""
        if quota.isdecimal() and period.isdecimal() and int(period):
            quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def oom_kills(root: Path = ROOT) -> int | None:
    """Return the number of processes that the kernel has killed in these control groups for lack of
    memory.

    A kill counts once per level that reports it. None if no level has such a counter."""
    counts = []
    for version, directory in _levels(root, "memory"):
        text = _text(directory / ("memory.events" if version == 2 else "memory.oom_control"))
        match = re.search(r"^oom_kill (\d+)$", text or "", re.MULTILINE)
        if match:
            counts.append(int(match[1]))
    return sum(counts) if counts else None


def _levels(root: Path, controller: str) -> Iterator[ControlGroup]:
    """Yield the control groups of this process for a controller, innermost first, of both
    versions."""
    groups = _groups(root)
    for mount in _mounts(root):
        name = "" if mount.version == 2 else controller
        if name not in groups or (name and name not in mount.controllers):
            continue
        top, group = root / mount.point.lstrip("/"), PurePosixPath(groups[name])
        # Without a namespace of its own, a container sees the host's path and its own mount.
        below = group.relative_to(mount.group) if group.is_relative_to(mount.group) else None
        parts = () if below is None or ".." in below.parts else below.parts
        for depth in range(len(parts), -1, -1):
            yield ControlGroup(mount.version, top.joinpath(*parts[:depth]))


def _groups(root: Path) -> dict[str, str]:
    """Return the group path by version 1 controller; the key "" holds the version 2 path."""
    paths: dict[str, str] = {}
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            paths[controller] = path
    return paths


def _mounts(root: Path) -> Iterator[Mount]:
    """Yield the mounted hierarchies."""
    for line in _lines(root / "proc/self/mountinfo"):
        fields, _, rest = line.partition(" - ")
        words = rest.split(" ")  # the kind, the source and the options
        if words[0] in ("cgroup", "cgroup2"):
            group, point = (_unescaped(word) for word in fields.split(" ")[3:5])
            yield Mount(2 if words[0] == "cgroup2" else 1, words[-1].split(","), group, point)


def _unescaped(word: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), word)


def _integer(path: Path) -> int | None:
    text = _text(path) or ""
    return int(text) if text.isdecimal() else None


def _lines(path: Path) -> list[str]:
    """Return the lines of a file, in which only "\\n" ends one: Linux does not escape other
    separators in the names of folders."""
    return [line for line in (_text(path) or "").split("\n") if line]


def _text(path: Path) -> str | None:
    try:
        return path.read_bytes().decode(errors="replace").strip()
    except OSError:
        return None
