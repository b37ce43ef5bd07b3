"""Numbers of bytes in messages."""

from __future__ import annotations


def format_bytes(nbytes: float) -> str:
    """Return a number of bytes with three digits and its unit, from MB to PB."""
    value, unit = nbytes / 1e6, "MB"
    for larger in ("GB", "TB", "PB"):
        if value >= 1000:
            value, unit = value / 1000, larger
    return f"{value:.3g} {unit}"
