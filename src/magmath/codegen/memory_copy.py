"""Memory copies at full bandwidth, for compiled code.

A copy that exceeds the caches uses nontemporal stores: an ordinary store first reads the cache line
that it overwrites, which is a third of the traffic.
"""

from __future__ import annotations

from typing import Final

from magmath.core.cpu import cache_sizes

_MIN_CACHE, _MAX_CACHE = 4 << 20, 32 << 20

CACHE_BYTES: Final = min(max(_MIN_CACHE, *cache_sizes().values(), 0), _MAX_CACHE)
"""Bytes that are assumed to stay in the last-level cache. They are bounded, since many cores, or
virtual machines, share a large cache."""

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
