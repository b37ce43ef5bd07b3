"""Pause of the cyclic garbage collector while many objects are allocated that all stay alive.

A plan of thousands of nodes allocates hundreds of thousands of objects without reference cycles.
Every full collection visits all of them: it takes up to half of the time of planning, and more for
larger graphs. Reference counting continues.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused_gc() -> Iterator[None]:
    """Pause the cyclic garbage collector within the block; pauses nest."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
