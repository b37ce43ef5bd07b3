"""The threshold of the cyclic garbage collector.

A full collection visits all objects, of which torch alone makes 150,000, and takes 0.1 s. Python
starts one when the objects that have survived younger collections have grown by a quarter. By
default a young collection takes place for every 700 objects. An expression of a thousand nodes
survives some of them, although reference counting frees its nodes as soon as it is computed: a loop
over such expressions stops for 0.1 s every second.
"""

from __future__ import annotations

import gc
from typing import Final

DEFAULTS: Final = (700, 2000)
"""The thresholds of Python's versions, in objects."""
THRESHOLD: Final = 50_000


def collect_less_often() -> None:
    """Let young collections take place for every 50,000 objects, unless the program has set a
    threshold."""
    young, *older = gc.get_threshold()
    if young in DEFAULTS:
        gc.set_threshold(THRESHOLD, *older)
