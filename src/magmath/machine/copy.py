"""Copies of memory at the machine's speed, by compiled code and without Python in between.

A copy that does not fit into the caches writes past them: an ordinary store first reads the line
that it is about to overwrite, which is a third of the traffic.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_LEAST, _MOST = 4 << 20, 32 << 20
_UNITS = {"K": 10, "M": 20, "G": 30}


def last_cache(caches: Path) -> int:
    """Bytes of the last cache, as far as one may rely on them: of a large one, which many cores
    share, a virtual machine has a part. Linux describes each cache in a folder of `caches`."""
    texts = [file.read_text().strip() for file in caches.glob("index*/size")]
    sizes = [int(text.rstrip("KMG")) << _UNITS.get(text[-1:], 0) for text in texts]
    return min(max([_LEAST, *sizes]), _MOST)


CACHE: Final = last_cache(_CACHES)
"""Bytes that are taken to stay in the cache, be they read or written."""

INSIDE: Final = "magmath.machine.streaming"
"""Where the functions are that `COPY` calls."""

COPY: Final = f'''
def fits(nbytes: int64) -> bool:
    """True if so many bytes that are read, and as many written, stay in the cache."""
    return 2 * nbytes <= {CACHE}

def copy(target: int64, source: int64, nbytes: int64, beside: int64):
    """Copy bytes between two places that do not overlap, given by their addresses; `beside` tells
    how many bytes are copied at about the same time, by all ranks together."""
    if fits(beside):
        memcpy(target, source, nbytes)
    else:
        stream(target, source, nbytes)
'''
"""In the compiler's language, for code that copies on its way."""
