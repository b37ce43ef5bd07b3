"""The resident memory of this process, as Linux counts it. Standard library only."""

from __future__ import annotations

from pathlib import Path

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_FORGET_PEAK = "5"


def resident_bytes() -> int:
    """Return the bytes that are in memory now, of libraries and files too."""
    return _bytes_of("VmRSS")


def peak_resident_bytes() -> int:
    """Return the largest number of resident bytes since the start, or since `forget_peak`."""
    return _bytes_of("VmHWM")


def forget_peak() -> None:
    """Let the peak begin at the present bytes."""
    _CLEAR.write_text(_FORGET_PEAK)


def _bytes_of(name: str) -> int:
    lines = _STATUS.read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) * 1024
