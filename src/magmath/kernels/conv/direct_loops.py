"""The outer loops of direct convolution: blocks of pixels, without a matrix of patches.

For a block of pixels of the result, a table has the address of the pixel of the source under each
filter element, or of zeros outside the image (`kernels/conv/indirect_tiles.py`). The pass "data" is
divided into phases: pixels whose coordinates have the same remainders by the stride are reached by
the same filter elements. The filters are packed in the order in which the tiles read them.

The channels of a pixel must be adjacent. If they are not, or if they are few, the rows of the
source that a block needs are copied to a strip first, with zeros around the image; few channels are
copied so that the elements of a filter row cover adjacent numbers, which count as one element with
more channels.

The gradient of the filters is divided into parts of elements and outputs whose sums stay in a
cache, and into shares of the images; `finish` adds the sums of all shares.
"""

from __future__ import annotations

from typing import Final

from magmath.codegen.aot_cache import AotModule
from magmath.kernels.conv.direct_blocks import BLOCKS
from magmath.kernels.conv.direct_filters import FILTERS
from magmath.kernels.conv.direct_job import CONSTANTS

_CORRELATE: Final = '''
def correlate_group(
    job: int64[1], phase: int64[1], count: int64, group: int64, slot: int64
):
    """Compute the outputs of a group for a block of pixels, chunk by chunk of the summands."""
    start = group_start(job, group)
    wide = group_vectors(job, group)
    last = min(WIDTH, job[OUTPUTS] - (start + wide - 1) * WIDTH)
    packed = job[PACKED] + (start * job[PACKED_ROWS] + phase[FIRST_ROW] * wide) * VECTOR_BYTES
    view: int64[1] = job[TARGET]
    to = start * VECTOR_BYTES if view[OF_CHANNEL] == 1 else 0
    bias = job[BIAS] + start * VECTOR_BYTES if job[BIAS] != 0 else 0
    steps = max(1, quotient(phase[PHASE_TAPS] + job[CHUNK_TAPS] - 1, job[CHUNK_TAPS]))
    tiles = quotient(count + ROWS - 1, ROWS)
    for step in range(steps):
        tap = quotient(step * phase[PHASE_TAPS], steps)
        taps = quotient((step + 1) * phase[PHASE_TAPS], steps) - tap
        for part in range(job[CHUNK_PARTS]):
            from_depth = quotient(part * job[DEPTH], job[CHUNK_PARTS])
            depth = quotient((part + 1) * job[DEPTH], job[CHUNK_PARTS]) - from_depth
            begins = step == 0 and part == 0
            ends = step == steps - 1 and part == job[CHUNK_PARTS] - 1
            b = packed + (tap * job[DEPTH] + from_depth) * wide * VECTOR_BYTES
            share = quotient(taps * depth, UNROLL) * wide * VECTOR_BYTES
            following = b + taps * depth * wide * VECTOR_BYTES
            adds = job[ACCUMULATE] if begins else 1
            added = to + (job[RESIDUAL] if begins else 0)
            row = bias if ends else 0
            clamp = job[RELU] if ends else 0
            for t in range(tiles):
                i = quotient(t * count, tiles)
                high = quotient((t + 1) * count, tiles) - i
                pixels_tile(
                    high * (VECTORS + 1) + wide, taps, depth,
                    slot + (tap * job[BLOCK_PIXELS] + i) * 8, job[BLOCK_PIXELS] * 8,
                    from_depth * 4, b, following + min(t, UNROLL) * share, adds, added,
                    slot + job[TARGETS_AT] + i * 8, to, last, row, clamp
                )

def correlate(record: int64):
    """Compute one thread's share of the results."""
    job: int64[1] = record
    phases: int64[1] = job[PHASES]
    view: int64[1] = job[TARGET]
    slot = job[WORKSPACE] + fetch_add(job, NEXT_SLOT, 1) * job[SLOT_BYTES]
    item = fetch_add(job, NEXT_ITEM, 1)
    while item < job[ITEMS]:
        block = quotient(item, job[PARTS])
        part = item - block * job[PARTS]
        number = 0
        while block >= phases[(number + 1) * PHASE_WORDS + FIRST_BLOCK]:
            number += 1
        phase: int64[1] = job[PHASES] + number * PHASE_WORDS * 8
        block -= phase[FIRST_BLOCK]
        first = first_pixel(job, phase, block)
        stop = end_pixel(job, phase, block)
        fill_table(job, phase, first, stop, 0, job[SOURCE_CHANNELS], slot)
        for group in range(
            quotient(part * job[OUTPUT_GROUPS], job[PARTS]),
            quotient((part + 1) * job[OUTPUT_GROUPS], job[PARTS])
        ):
            start = group_start(job, group)
            wide = group_vectors(job, group)
            fill_targets(job, phase, first, stop, wide, slot)
            correlate_group(job, phase, stop - first, group, slot)
            if view[OF_CHANNEL] != 1:
                write_panel(
                    job, phase, first, stop, start * WIDTH, wide, slot + job[PANEL_AT]
                )
        item = fetch_add(job, NEXT_ITEM, 1)
'''

_WEIGHTS: Final = '''
def weight_sums(record: int64):
    """Compute one thread's share of the sums."""
    job: int64[1] = record
    phase: int64[1] = job[PHASES]
    slot = job[WORKSPACE] + fetch_add(job, NEXT_SLOT, 1) * job[SLOT_BYTES]
    panel = slot + job[PANEL_AT]
    blocks = phase[PHASE_WORDS + FIRST_BLOCK]
    item = fetch_add(job, NEXT_ITEM, 1)
    while item < job[ITEMS]:
        rest = quotient(item, job[DEPTH_PARTS])
        part = item - rest * job[DEPTH_PARTS]
        share = quotient(rest, job[GROUP_PARTS])
        of_groups = rest - share * job[GROUP_PARTS]
        low = quotient(part * job[DEPTH], job[DEPTH_PARTS])
        depth = quotient((part + 1) * job[DEPTH], job[DEPTH_PARTS]) - low
        first_group = quotient(of_groups * job[OUTPUT_GROUPS], job[GROUP_PARTS])
        last_group = quotient((of_groups + 1) * job[OUTPUT_GROUPS], job[GROUP_PARTS])
        sums = job[SUMS] + share * job[OUTPUT_VECTORS] * job[PACKED_ROWS] * VECTOR_BYTES
        adds = 0
        tiles = quotient(depth + ROWS - 1, ROWS)
        for block in range(
            quotient(share * blocks, job[SHARES]), quotient((share + 1) * blocks, job[SHARES])
        ):
            first = first_pixel(job, phase, block)
            stop = end_pixel(job, phase, block)
            channel = low if job[DEPTH] == job[SOURCE_CHANNELS] else 0
            lanes = depth if job[DEPTH] == job[SOURCE_CHANNELS] else job[SOURCE_CHANNELS]
            fill_table(job, phase, first, stop, channel, lanes, slot)
            inner = 0 if job[DEPTH] == job[SOURCE_CHANNELS] else low
            for group in range(first_group, last_group):
                start = group_start(job, group)
                wide = group_vectors(job, group)
                read_panel(job, phase, first, stop, start * WIDTH, wide, panel)
                for t in range(tiles):
                    i = quotient(t * depth, tiles)
                    high = quotient((t + 1) * depth, tiles) - i
                    for tap in range(phase[PHASE_TAPS]):
                        row = tap * job[DEPTH] + low + i
                        filters_tile(
                            high * (VECTORS + 1) + wide, stop - first,
                            slot + tap * job[BLOCK_PIXELS] * 8, (inner + i) * 4, panel, adds,
                            sums + (start * job[PACKED_ROWS] + row * wide) * VECTOR_BYTES
                        )
            adds = 1
        item = fetch_add(job, NEXT_ITEM, 1)
'''

CODE: Final = AotModule(
    BLOCKS + FILTERS + _CORRELATE + _WEIGHTS,
    ("pack_filters", "correlate", "weight_sums", "finish"),
    constants=CONSTANTS,
    ir_modules=(
        "magmath.kernels.gemm.microkernel",
        "magmath.kernels.conv.indirect_tiles",
        "magmath.kernels.conv.pixel_vectors",
    ),
)


def code() -> AotModule:
    """Return the compiled functions, each with the address of a JOB."""
    return CODE
