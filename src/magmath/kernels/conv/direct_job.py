"""The records that describe a direct convolution to its compiled loops."""

from __future__ import annotations

from typing import Final

from magmath.codegen.vectors import VECTOR_BYTES
from magmath.kernels.conv import image_views

WIDTH: Final = VECTOR_BYTES // 4

JOB: Final = (
    "packed", "sums", "workspace", "next_slot", "next_item", "next_filter",
    "source", "target", "filters", "slot_bytes", "zeros",
    "of_filter", "of_unit", "units", "run", "taps", "places", "packed_rows",
    "source_channels", "outputs", "output_vectors", "output_groups", "pitch", "depth",
    "step_y", "step_x", "target_step_y", "target_step_x",
    "strip_rows", "strip_columns", "strip_top", "strip_left", "strip_at", "panel_at", "targets_at",
    "phases", "block_pixels", "items", "parts",
    "chunk_taps", "chunk_parts", "residual", "accumulate", "bias", "relu",
    "shares", "group_parts", "depth_parts",
)  # fmt: skip
"""The argument of the exported functions, 64-bit words; the first STARTED change in each call.

source, target   addresses of VIEWs: the images that are read, and those that are written; for the
                 gradient of the filters both are read: x and y
filters          the address of the filters, whose elements are contiguous, for each output at the
                 distance `of_filter` in `units` runs of `run` numbers at the distance `of_unit`; if
                 the outputs are adjacent, in `run` rows at this distance
places           for each of the `taps`, the row of the packed filters with its first channel
packed, sums     the address of the packed filters, [group, row, output], or of their gradients; of
                 `packed_rows` rows
zeros            the address of zeros, one for each channel
output_…         the vectors of outputs, and their groups of at most VECTORS
next_…           counters from which threads take work, 0 at first
pitch, depth     the distance of pixels of the source or strip; the numbers of a filter element
step_…           the distances of the pixels of the source, and of the target, of adjacent pixels of
                 a phase
strip_…          the extents of a strip, 0 without strips; the position of its first pixel
                 relative to the pixel under the offset; its place in the workspace of a thread
panel_at, …      likewise of the results that are not stored directly, or of cotangents; and of the
                 addresses of the target
phases           the address of PHASEs
chunk_taps, …    filter elements that are added at once, or the parts of one element
residual         the distance of the summand from the target in bytes, used if `accumulate` is not 0
shares, …        division of the gradients: of blocks, of groups of outputs, of depths
"""

STARTED: Final = JOB.index("next_filter") + 1

PHASE: Final = (
    "start_y", "start_x", "extent_rows", "extent_columns", "phase_taps", "first_row", "offsets",
    "first_block", "unit_blocks", "unit_pixels",
)  # fmt: skip
"""A phase of the target: its first pixel and its extents; the number of filter elements, the row of
the packed filters of the first one, and the address of the pixels (y, x) of the source under each
of them for the first pixel. Its blocks begin with number `first_block`; each unit of pixels, an
image or all images, has `unit_blocks`."""

SEGMENT: Final = ("image", "row", "column")
"""The first of adjacent pixels of a row of a phase: its image and its coordinates in the phase."""

CONSTANTS: Final = {
    **{name.upper(): i for names in (JOB, PHASE, SEGMENT) for i, name in enumerate(names)},
    **image_views.CONSTANTS, "PHASE_WORDS": len(PHASE), "SEGMENT_WORDS": len(SEGMENT),
    "WIDTH": WIDTH,
}  # fmt: skip
"""The positions in these records, by the names that the sources use."""
