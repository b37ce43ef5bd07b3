"""The passes that programs do not need: names and effects, in one table.

`MAGMATH_DEBUG=without=NAME` leaves a pass out, to find the pass that makes a wrong number, or to
measure what it gains (`magmath bench passes`).
"""

from __future__ import annotations

from typing import Final

EQUAL_NODES: Final = "equal-nodes"
POOLED_MASKS: Final = "pooled-masks"
JOINT_SUMS: Final = "joint-sums"
PERIODIC_MARGINS: Final = "periodic-margins"
HALO_COPIES: Final = "halo-copies"
EPILOGUES: Final = "epilogues"
BLOCK_REDUCTION: Final = "block-reduction"
IN_PLACE: Final = "in-place"
MEMORY_ORDER: Final = "memory-order"
HOISTING: Final = "hoisting"
REMATERIALIZATION: Final = "rematerialization"

OPTIONAL_PASSES: Final = {
    EQUAL_NODES: "merges equal nodes",
    POOLED_MASKS: "masks the gradient of a pooling after relu before it is scattered",
    JOINT_SUMS: "joins the sums of a batch normalization, and those of its gradient",
    PERIODIC_MARGINS: "makes rolls of one array views of one copy with margins",
    HALO_COPIES: "makes slices across the borders of workers views of one copy with halos",
    EPILOGUES: "folds bias, residual, activation and update into products and convolutions",
    BLOCK_REDUCTION: "computes large operands of reductions block by block",
    IN_PLACE: "computes results in the storage of their operands",
    MEMORY_ORDER: "stores temporary images channels last where convolutions prefer that",
    HOISTING: "computes once what depends on variables alone, such as folded normalizations",
    REMATERIALIZATION: "computes values a second time if the memory does not suffice",
}
