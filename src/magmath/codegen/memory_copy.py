"""Memory copies at full bandwidth, for compiled code.

A copy that exceeds the caches uses nontemporal stores: an ordinary store first reads the cache line
that it overwrites, which is a third of the traffic.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

_CACHE_FOLDER = Path("/sys/devices/system/cpu/cpu0/cache")
_MIN_CACHE, _MAX_CACHE = 4 << 20, 32 << 20
_UNITS = {"K": 10, "M": 20, "G": 30}


def last_level_cache_bytes(caches: Path) -> int:
    """Return the usable bytes of the last-level cache, from the folders in which Linux describes
    caches.

    The result is bounded, since many cores, or virtual machines, share a large cache."""
    texts = [file.read_text().strip() for file in caches.glob("index*/size")]
    sizes = [int(text.rstrip("KMG")) << _UNITS.get(text[-1:], 0) for text in texts]
    return min(max([_MIN_CACHE, *sizes]), _MAX_CACHE)


CACHE_BYTES: Final = last_level_cache_bytes(_CACHE_FOLDER)
"""Bytes that are assumed to stay in the cache."""

COPY_IR_MODULE: Final = "magmath.codegen.nontemporal_copy"
"""The module of the IR functions that `COPY_SOURCE` calls."""

COPY_SOURCE: Final = f'''
def fits(nbytes: int64) -> bool:
    """True if `nbytes` that are read, and as many that are written, fit into the cache."""
    return 2 * nbytes <= {CACHE_BYTES}

def copy(target: int64, source: int64, nbytes: int64, concurrent: int64):
    """Copy bytes between two addresses without overlap; `concurrent` is the number of bytes that
    all ranks copy at about the same time."""
    if fits(concurrent):
        memcpy(target, source, nbytes)
    else:
        stream(target, source, nbytes)
'''
"""Copy functions in the compiler's language."""
