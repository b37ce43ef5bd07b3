"""The passes, and parts of passes, that programs do not need: names and effects, in one table.

`MAGMATH_DEBUG=without=NAME` leaves one out, to find the pass that makes a wrong number, or to
measure what it gains (`magmath bench passes`). `fold_bias` is not in the table, since `mm.init` has
a setting for it.
"""

from __future__ import annotations

from typing import Final

MERGE_EQUAL: Final = "merge-equal"
POOLED_MASKS: Final = "pooled-masks"
JOIN_SUMS: Final = "join-sums"
SHARE_MARGINS: Final = "share-margins"
SHARE_HALOS: Final = "share-halos"
FOLD_EPILOGUES: Final = "fold-epilogues"
REDUCE_IN_BLOCKS: Final = "reduce-in-blocks"
IN_PLACE: Final = "in-place"
ASSIGN_MEMORY_ORDERS: Final = "assign-memory-orders"
HOISTING: Final = "hoisting"
REMATERIALIZE: Final = "rematerialize"

OPTIONAL_PASSES: Final = {
    MERGE_EQUAL: "merges equal nodes",
    POOLED_MASKS: "masks the gradient of a pooling after relu before it is scattered",
    JOIN_SUMS: "joins the sums of a batch normalization, and those of its gradient",
    SHARE_MARGINS: "makes rolls of one array views of one copy with margins",
    SHARE_HALOS: "makes slices across the borders of workers views of one copy with halos",
    FOLD_EPILOGUES: "folds bias, residual, activation and update into products and convolutions",
    REDUCE_IN_BLOCKS: "computes large operands of reductions block by block",
    IN_PLACE: "computes results in the buffer of their operands",
    ASSIGN_MEMORY_ORDERS: "stores temporary images channels last where convolutions prefer that",
    HOISTING: "computes once what depends on variables alone, such as folded normalizations",
    REMATERIALIZE: "computes values a second time if the memory does not suffice",
}
