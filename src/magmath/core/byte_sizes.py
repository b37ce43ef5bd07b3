"""Numbers of bytes: in messages, and of parts of memory."""

from __future__ import annotations

from typing import Final

ALIGNMENT: Final = 64
"""Bytes to which arrays and temporaries are aligned."""
WORKSPACE_LIMIT: Final = 256 << 20
"""The default limit of the memory that a kernel needs in addition to its operands."""


def round_up(number: int, unit: int) -> int:
    """Return the smallest multiple of a unit that is at least a number."""
    return -(-number // unit) * unit


def block_bytes(nbytes: int) -> int:
    """Return the bytes of the block of memory of an array of `nbytes`."""
    return (nbytes + ALIGNMENT - 1) & -ALIGNMENT


def format_bytes(nbytes: float) -> str:
    """Return a number of bytes with three digits and its unit, from bytes to PB."""
    if nbytes < 1000:
        return f"{nbytes:.0f} byte{'s' * (nbytes != 1)}"
    value, unit = nbytes / 1e3, "KB"
    for larger in ("MB", "GB", "TB", "PB"):
        if value >= 999.5:  # which three digits round to 1000
            value, unit = value / 1000, larger
    return f"{value:.3g} {unit}"
