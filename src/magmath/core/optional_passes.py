"""The names of the passes, and of parts of passes, that programs do not need.

`MAGMATH_DEBUG=without=NAME` leaves one out, to find the pass that makes a wrong number, or to
measure what it gains (`magmath bench passes`). `passes/pipeline.py` says what the passes do.
`fold_bias` is not listed, since `mm.init` has a setting for it.
"""

from __future__ import annotations

from typing import Final

MERGE_EQUAL: Final = "merge-equal"
POOLED_MASKS: Final = "pooled-masks"
"""Part of `simplify`: masks the gradient of a pooling after relu before it is scattered."""
JOIN_SUMS: Final = "join-sums"
SHARE_MARGINS: Final = "share-margins"
SHARE_HALOS: Final = "share-halos"
FOLD_EPILOGUES: Final = "fold-epilogues"
REDUCE_IN_BLOCKS: Final = "reduce-in-blocks"
IN_PLACE: Final = "in-place"
"""Part of `assign_buffers`: computes results in the buffer of their operands."""
ASSIGN_MEMORY_ORDERS: Final = "assign-memory-orders"
HOISTING: Final = "hoisting"
"""The division of a compiled function (`passes/hoisting.py`): computes once what depends on
variables alone."""
REMATERIALIZE: Final = "rematerialize"
"""Computes values a second time if the memory does not suffice (`passes/rematerialize.py`)."""

OPTIONAL_PASSES: Final = (
    MERGE_EQUAL,
    POOLED_MASKS,
    JOIN_SUMS,
    SHARE_MARGINS,
    SHARE_HALOS,
    FOLD_EPILOGUES,
    REDUCE_IN_BLOCKS,
    IN_PLACE,
    ASSIGN_MEMORY_ORDERS,
    HOISTING,
    REMATERIALIZE,
)
