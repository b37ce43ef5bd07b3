"""Copies of memory at the machine's speed, by compiled code and without Python in between.

A copy that does not fit into the caches writes past them: an ordinary store first reads the line
that it is about to overwrite, which is a third of the traffic.
"""

from __future__ import annotations

from typing import Final

STREAMED: Final = 1 << 20
"""Bytes from which on a copy writes past the caches."""

INSIDE: Final = "magmath.machine.streaming"
"""Where the functions are that `COPY` calls."""

COPY: Final = f'''
def copy(target: int64, source: int64, nbytes: int64):
    """Copy bytes between two places that do not overlap, given by their addresses."""
    if nbytes < {STREAMED}:
        memcpy(target, source, nbytes)
    else:
        stream(target, source, nbytes)
'''
"""In the compiler's language, for code that copies on its way; `stream` is called alike."""
