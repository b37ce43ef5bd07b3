"""Copies of memory at the machine's speed, by compiled code and without Python in between.

A copy that does not fit into the caches writes past them: an ordinary store first reads the line
that it is about to overwrite, which is a third of the traffic.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_LEAST, _MOST = 4 << 20, 32 << 20


def _last_cache() -> int:
    """Bytes of the last cache, as far as one may rely on them: of a large one, which many cores
    share, a virtual machine has a part."""
    sizes = [int(file.read_text().strip("KMG \n")) << 10 for file in _CACHES.glob("index*/size")]
    return min(max([_LEAST, *sizes]), _MOST)


CACHE: Final = _last_cache()
"""Bytes that are taken to stay in the cache, be they read or written."""

INSIDE: Final = "magmath.machine.streaming"
"""Where the functions are that `COPY` calls."""

COPY: Final = f'''
def copy(target: int64, source: int64, nbytes: int64, beside: int64):
    """Copy bytes between two places that do not overlap, given by their addresses; `beside` tells
    how many bytes are copied at about the same time, by all ranks together."""
    if 2 * beside <= {CACHE}:
        memcpy(target, source, nbytes)
    else:
        stream(target, source, nbytes)
'''
"""In the compiler's language, for code that copies on its way."""
