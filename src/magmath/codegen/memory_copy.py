"""Copies of memory at the machine's speed, by compiled code and without Python in between.

A copy that does not fit into the caches writes past them: an ordinary store first reads the line
that it is about to overwrite, which is a third of the traffic.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

_CACHE_FOLDER = Path("/sys/devices/system/cpu/cpu0/cache")
_MIN_CACHE, _MAX_CACHE = 4 << 20, 32 << 20
_UNITS = {"K": 10, "M": 20, "G": 30}


def last_level_cache_bytes(caches: Path) -> int:
    """Bytes of the last cache, as far as one may rely on them: of a large one, which many cores
    share, a virtual machine has a part. Linux describes each cache in a folder of `caches`."""
    texts = [file.read_text().strip() for file in caches.glob("index*/size")]
    sizes = [int(text.rstrip("KMG")) << _UNITS.get(text[-1:], 0) for text in texts]
    return min(max([_MIN_CACHE, *sizes]), _MAX_CACHE)


CACHE_BYTES: Final = last_level_cache_bytes(_CACHE_FOLDER)
"""Bytes that are taken to stay in the cache, be they read or written."""

INSIDE: Final = "magmath.codegen.nontemporal_copy"
"""Where the functions are that `COPY_SOURCE` calls."""

COPY_SOURCE: Final = f'''
def fits(nbytes: int64) -> bool:
    """True if so many bytes that are read, and as many written, stay in the cache."""
    return 2 * nbytes <= {CACHE_BYTES}

def copy(target: int64, source: int64, nbytes: int64, beside: int64):
    """Copy bytes between two places that do not overlap, given by their addresses; `beside` tells
    how many bytes are copied at about the same time, by all ranks together."""
    if fits(beside):
        memcpy(target, source, nbytes)
    else:
        stream(target, source, nbytes)
'''
"""In the compiler's language, for code that copies on its way."""
