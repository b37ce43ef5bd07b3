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
from magmath.codegen.vectors import VECTOR_BYTES
from magmath.kernels.conv.image_views import CONSTANTS

WIDTH: Final = VECTOR_BYTES // 4

JOB: Final = (
    "packed", "sums", "workspace", "next_slot", "next_item", "next_filter",
    "source", "target", "filters", "slot_bytes", "zeros",
    "of_filter", "of_unit", "units", "run", "taps", "places", "packed_rows",
    "source_channels", "outputs", "pitch", "depth",
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

_ADDRESSES: Final = '''
def pixel_addresses(
    base: int64, of_row: int64, of_pixel: int64, rows: int64, columns: int64, y: int64, x: int64,
    step: int64, count: int64, outside: int64, table: int64
):
    """Store the addresses of pixels of a row, `step` pixels apart."""
    place: int64[1] = table
    if y < 0 or y >= rows:
        for j in range(count):
            place[j] = outside
    else:
        line = base + (y * of_row + x * of_pixel) * 4
        far = step * of_pixel * 4
        for j in range(count):
            at = x + j * step
            place[j] = line + j * far if at >= 0 and at < columns else outside

def clear(place: int64, count: int64):
    numbers: float32[1] = place
    for i in range(count):
        numbers[i] = 0

def read_strip(
    job: int64[1], view: int64[1], image: int64, top: int64, left: int64, rows: int64,
    lanes: int64, strip: int64
):
    """Copy rows of the source with all channels of the job, and zeros around the image."""
    pixels = job[STRIP_COLUMNS]
    pitch = job[PITCH]
    first = max(0, min(pixels, -left))
    last = max(first, min(pixels, view[EXTENT_X] - left))
    for i in range(rows):
        y = top + i
        line = strip + i * pixels * pitch * 4
        if y < 0 or y >= view[EXTENT_Y]:
            clear(line, pixels * pitch)
        else:
            clear(line, first * pitch)
            place = image + (y * view[OF_ROW] + (left + first) * view[OF_PIXEL]) * 4
            for channel in range(0, lanes, WIDTH):
                inner = min(WIDTH, lanes - channel)
                to = line + (first * pitch + channel) * 4
                at = place + channel * view[OF_CHANNEL] * 4
                if view[OF_CHANNEL] == 1:
                    copy_vectors(last - first, at, view[OF_PIXEL], to, pitch, inner)
                else:
                    for j in range(0, last - first, WIDTH):
                        transpose_pixels(
                            inner, min(WIDTH, last - first - j), at + j * view[OF_PIXEL] * 4,
                            view[OF_CHANNEL], to + j * pitch * 4, pitch, inner
                        )
            clear(line + last * pitch * 4, (pixels - last) * pitch)

def fill_table(
    job: int64[1], phase: int64[1], first: int64, count: int64, channel: int64, lanes: int64,
    slot: int64
):
    """Fill the table of the pixels of the source under each filter element."""
    view: int64[1] = job[SOURCE]
    base = view[ADDRESS] + channel * view[OF_CHANNEL] * 4
    of_row = view[OF_ROW]
    of_pixel = view[OF_PIXEL]
    rows = view[EXTENT_Y]
    columns = view[EXTENT_X]
    top = 0
    left = 0
    area = phase[EXTENT_ROWS] * phase[EXTENT_COLUMNS]
    if job[STRIP_ROWS] > 0:
        image = quotient(first, area)
        row = quotient(first - image * area, phase[EXTENT_COLUMNS])
        last = quotient(first + count - 1 - image * area, phase[EXTENT_COLUMNS])
        top = row * job[STEP_Y] + job[STRIP_TOP]
        left = job[STRIP_LEFT]
        rows = (last - row) * job[STEP_Y] + job[STRIP_ROWS]
        base = base + image * view[OF_IMAGE] * 4
        read_strip(job, view, base, top, left, rows, lanes, slot + job[STRIP_AT])
        base = slot + job[STRIP_AT]
        columns = job[STRIP_COLUMNS]
        of_pixel = job[PITCH]
        of_row = columns * of_pixel
    offsets: int64[1] = phase[OFFSETS]
    for tap in range(phase[PHASE_TAPS]):
        t = first
        while t < first + count:
            image = quotient(t, area)
            row = quotient(t - image * area, phase[EXTENT_COLUMNS])
            column = t - image * area - row * phase[EXTENT_COLUMNS]
            run = min(phase[EXTENT_COLUMNS] - column, first + count - t)
            start = base + (image * view[OF_IMAGE] * 4 if job[STRIP_ROWS] == 0 else 0)
            pixel_addresses(
                start, of_row, of_pixel, rows, columns,
                row * job[STEP_Y] + offsets[2 * tap] - top,
                column * job[STEP_X] + offsets[2 * tap + 1] - left,
                job[STEP_X], run, job[ZEROS], slot + (tap * job[BLOCK_PIXELS] + t - first) * 8
            )
            t += run

def group_start(vectors: int64, groups: int64, group: int64) -> int64:
    """The first vector of outputs of a group; groups have at most VECTORS."""
    return quotient(group * vectors, groups)

def group_of(vectors: int64, groups: int64, vector: int64) -> int64:
    """The group of a vector of outputs."""
    return quotient((vector + 1) * groups - 1, vectors)
'''

_PACK: Final = '''
def pack_unit(job: int64[1], vector: int64, unit: int64, grid: int64):
    """Pack one unit of the filters of a vector of outputs."""
    places: int64[1] = job[PLACES]
    vectors = quotient(job[OUTPUTS] + WIDTH - 1, WIDTH)
    groups = quotient(vectors + VECTORS - 1, VECTORS)
    group = group_of(vectors, groups, vector)
    start = group_start(vectors, groups, group)
    wide = group_start(vectors, groups, group + 1) - start
    lanes = min(WIDTH, job[OUTPUTS] - vector * WIDTH)
    source = job[FILTERS] + (vector * WIDTH * job[OF_FILTER] + unit * job[OF_UNIT]) * 4
    to = job[PACKED] + (start * job[PACKED_ROWS] + vector - start) * VECTOR_BYTES
    if job[OF_FILTER] == 1:
        copy_vectors(
            job[RUN], source, job[OF_UNIT], to + places[0] * wide * VECTOR_BYTES, wide * WIDTH,
            lanes
        )
        return
    for first in range(0, job[RUN], WIDTH):
        count = min(WIDTH, job[RUN] - first)
        transpose_pixels(
            lanes, count, source + first * 4, job[OF_FILTER], grid, WIDTH, WIDTH
        )
        channel = quotient(unit * job[RUN] + first, job[TAPS])
        tap = unit * job[RUN] + first - channel * job[TAPS]
        for r in range(count):
            row = places[tap] + channel
            copy_vectors(
                1, grid + r * VECTOR_BYTES, 0, to + row * wide * VECTOR_BYTES, 0, WIDTH
            )
            tap += 1
            if tap == job[TAPS]:
                tap = 0
                channel += 1

def pack_filters(record: int64):
    """Pack one thread's share of the filters: units, or vectors of outputs if there is one."""
    job: int64[1] = record
    grid = stack(WIDTH * VECTOR_BYTES)
    vectors = quotient(job[OUTPUTS] + WIDTH - 1, WIDTH)
    item = fetch_add(job, NEXT_FILTER, 1)
    while item < (vectors if job[UNITS] == 1 else job[UNITS]):
        if job[UNITS] == 1:
            pack_unit(job, item, 0, grid)
        else:
            for vector in range(vectors):
                pack_unit(job, vector, item, grid)
        item = fetch_add(job, NEXT_FILTER, 1)
'''

_CORRELATE: Final = '''
def fill_targets(
    job: int64[1], phase: int64[1], first: int64, count: int64, wide: int64, slot: int64
):
    """Fill the table of the pixels of the target, or of the panel."""
    view: int64[1] = job[TARGET]
    table = slot + job[TARGETS_AT]
    if view[OF_CHANNEL] != 1:
        place: int64[1] = table
        for i in range(count):
            place[i] = slot + job[PANEL_AT] + i * wide * VECTOR_BYTES
    else:
        area = phase[EXTENT_ROWS] * phase[EXTENT_COLUMNS]
        t = first
        while t < first + count:
            image = quotient(t, area)
            row = quotient(t - image * area, phase[EXTENT_COLUMNS])
            column = t - image * area - row * phase[EXTENT_COLUMNS]
            run = min(phase[EXTENT_COLUMNS] - column, first + count - t)
            pixel_addresses(
                view[ADDRESS] + image * view[OF_IMAGE] * 4, view[OF_ROW], view[OF_PIXEL],
                view[EXTENT_Y], view[EXTENT_X], phase[START_Y] + row * job[TARGET_STEP_Y],
                phase[START_X] + column * job[TARGET_STEP_X], job[TARGET_STEP_X], run, 0,
                table + (t - first) * 8
            )
            t += run

def write_panel(
    job: int64[1], phase: int64[1], first: int64, count: int64, output: int64, wide: int64,
    panel: int64
):
    """Store the results of a group of outputs in images whose pixels are adjacent."""
    view: int64[1] = job[TARGET]
    area = phase[EXTENT_ROWS] * phase[EXTENT_COLUMNS]
    stop = min(job[OUTPUTS], output + wide * WIDTH)
    t = first
    while t < first + count:
        image = quotient(t, area)
        row = quotient(t - image * area, phase[EXTENT_COLUMNS])
        column = t - image * area - row * phase[EXTENT_COLUMNS]
        run = min(phase[EXTENT_COLUMNS] - column, first + count - t)
        y = phase[START_Y] + row * job[TARGET_STEP_Y]
        x = phase[START_X] + column * job[TARGET_STEP_X]
        line = view[ADDRESS] + (image * view[OF_IMAGE] + y * view[OF_ROW] + x * view[OF_PIXEL]) * 4
        for channel in range(output, stop, WIDTH):
            lanes = min(WIDTH, stop - channel)
            at = panel + (t - first) * wide * VECTOR_BYTES + (channel - output) * 4
            to = line + channel * view[OF_CHANNEL] * 4
            if view[OF_PIXEL] == 1 and job[TARGET_STEP_X] == 1:
                for j in range(0, run, WIDTH):
                    pixels = min(WIDTH, run - j)
                    transpose_pixels(
                        pixels, lanes, at + j * wide * VECTOR_BYTES, wide * WIDTH, to + j * 4,
                        view[OF_CHANNEL], pixels
                    )
            else:
                for j in range(run):
                    numbers: float32[1] = at + j * wide * VECTOR_BYTES
                    pixel: float32[1] = to + j * job[TARGET_STEP_X] * view[OF_PIXEL] * 4
                    for lane in range(lanes):
                        pixel[lane * view[OF_CHANNEL]] = numbers[lane]
        t += run

def correlate_group(
    job: int64[1], phase: int64[1], count: int64, group: int64, slot: int64
):
    """Compute the outputs of a group for a block of pixels, chunk by chunk of the summands."""
    vectors = quotient(job[OUTPUTS] + WIDTH - 1, WIDTH)
    groups = quotient(vectors + VECTORS - 1, VECTORS)
    start = group_start(vectors, groups, group)
    wide = group_start(vectors, groups, group + 1) - start
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
            cut = job[RELU] if ends else 0
            for t in range(tiles):
                i = quotient(t * count, tiles)
                high = quotient((t + 1) * count, tiles) - i
                pixels_tile(
                    high * (VECTORS + 1) + wide, taps, depth,
                    slot + (tap * job[BLOCK_PIXELS] + i) * 8, job[BLOCK_PIXELS] * 8,
                    from_depth * 4, b, following + min(t, UNROLL) * share, adds, added,
                    slot + job[TARGETS_AT] + i * 8, to, last, row, cut
                )

def correlate(record: int64):
    """Compute one thread's share of the results."""
    job: int64[1] = record
    phases: int64[1] = job[PHASES]
    view: int64[1] = job[TARGET]
    slot = job[WORKSPACE] + fetch_add(job, NEXT_SLOT, 1) * job[SLOT_BYTES]
    vectors = quotient(job[OUTPUTS] + WIDTH - 1, WIDTH)
    groups = quotient(vectors + VECTORS - 1, VECTORS)
    item = fetch_add(job, NEXT_ITEM, 1)
    while item < job[ITEMS]:
        block = quotient(item, job[PARTS])
        part = item - block * job[PARTS]
        number = 0
        while block >= phases[(number + 1) * PHASE_WORDS + FIRST_BLOCK]:
            number += 1
        phase: int64[1] = job[PHASES] + number * PHASE_WORDS * 8
        block -= phase[FIRST_BLOCK]
        unit = quotient(block, phase[UNIT_BLOCKS])
        begin = (block - unit * phase[UNIT_BLOCKS]) * job[BLOCK_PIXELS]
        count = min(job[BLOCK_PIXELS], phase[UNIT_PIXELS] - begin)
        first = unit * phase[UNIT_PIXELS] + begin
        fill_table(job, phase, first, count, 0, job[SOURCE_CHANNELS], slot)
        for group in range(
            quotient(part * groups, job[PARTS]), quotient((part + 1) * groups, job[PARTS])
        ):
            start = group_start(vectors, groups, group)
            wide = group_start(vectors, groups, group + 1) - start
            fill_targets(job, phase, first, count, wide, slot)
            correlate_group(job, phase, count, group, slot)
            if view[OF_CHANNEL] != 1:
                write_panel(
                    job, phase, first, count, start * WIDTH, wide, slot + job[PANEL_AT]
                )
        item = fetch_add(job, NEXT_ITEM, 1)
'''

_WEIGHTS: Final = '''
def read_panel(
    job: int64[1], phase: int64[1], first: int64, count: int64, output: int64, wide: int64,
    panel: int64
):
    """Copy the cotangents of a group of outputs, pixel by pixel."""
    view: int64[1] = job[TARGET]
    area = phase[EXTENT_ROWS] * phase[EXTENT_COLUMNS]
    stop = min(job[OUTPUTS], output + wide * WIDTH)
    t = first
    while t < first + count:
        image = quotient(t, area)
        row = quotient(t - image * area, phase[EXTENT_COLUMNS])
        column = t - image * area - row * phase[EXTENT_COLUMNS]
        run = min(phase[EXTENT_COLUMNS] - column, first + count - t)
        line = view[ADDRESS] + (
            image * view[OF_IMAGE] + row * view[OF_ROW] + column * view[OF_PIXEL]
        ) * 4
        for channel in range(output, stop, WIDTH):
            lanes = min(WIDTH, stop - channel)
            to = panel + (t - first) * wide * VECTOR_BYTES + (channel - output) * 4
            at = line + channel * view[OF_CHANNEL] * 4
            if view[OF_CHANNEL] == 1:
                copy_vectors(run, at, view[OF_PIXEL], to, wide * WIDTH, lanes)
            else:
                for j in range(0, run, WIDTH):
                    transpose_pixels(
                        lanes, min(WIDTH, run - j), at + j * 4, view[OF_CHANNEL],
                        to + j * wide * VECTOR_BYTES, wide * WIDTH, WIDTH
                    )
        t += run

def weight_sums(record: int64):
    """Compute one thread's share of the sums."""
    job: int64[1] = record
    phase: int64[1] = job[PHASES]
    slot = job[WORKSPACE] + fetch_add(job, NEXT_SLOT, 1) * job[SLOT_BYTES]
    panel = slot + job[PANEL_AT]
    vectors = quotient(job[OUTPUTS] + WIDTH - 1, WIDTH)
    groups = quotient(vectors + VECTORS - 1, VECTORS)
    blocks = phase[PHASE_WORDS + FIRST_BLOCK]
    item = fetch_add(job, NEXT_ITEM, 1)
    while item < job[ITEMS]:
        rest = quotient(item, job[DEPTH_PARTS])
        part = item - rest * job[DEPTH_PARTS]
        share = quotient(rest, job[GROUP_PARTS])
        of_groups = rest - share * job[GROUP_PARTS]
        low = quotient(part * job[DEPTH], job[DEPTH_PARTS])
        depth = quotient((part + 1) * job[DEPTH], job[DEPTH_PARTS]) - low
        first_group = quotient(of_groups * groups, job[GROUP_PARTS])
        last_group = quotient((of_groups + 1) * groups, job[GROUP_PARTS])
        sums = job[SUMS] + share * vectors * job[PACKED_ROWS] * VECTOR_BYTES
        adds = 0
        tiles = quotient(depth + ROWS - 1, ROWS)
        for block in range(
            quotient(share * blocks, job[SHARES]), quotient((share + 1) * blocks, job[SHARES])
        ):
            unit = quotient(block, phase[UNIT_BLOCKS])
            begin = (block - unit * phase[UNIT_BLOCKS]) * job[BLOCK_PIXELS]
            count = min(job[BLOCK_PIXELS], phase[UNIT_PIXELS] - begin)
            first = unit * phase[UNIT_PIXELS] + begin
            channel = low if job[DEPTH] == job[SOURCE_CHANNELS] else 0
            lanes = depth if job[DEPTH] == job[SOURCE_CHANNELS] else job[SOURCE_CHANNELS]
            fill_table(job, phase, first, count, channel, lanes, slot)
            inner = 0 if job[DEPTH] == job[SOURCE_CHANNELS] else low
            for group in range(first_group, last_group):
                start = group_start(vectors, groups, group)
                wide = group_start(vectors, groups, group + 1) - start
                read_panel(job, phase, first, count, start * WIDTH, wide, panel)
                for t in range(tiles):
                    i = quotient(t * depth, tiles)
                    high = quotient((t + 1) * depth, tiles) - i
                    for tap in range(phase[PHASE_TAPS]):
                        row = tap * job[DEPTH] + low + i
                        filters_tile(
                            high * (VECTORS + 1) + wide, count,
                            slot + tap * job[BLOCK_PIXELS] * 8, (inner + i) * 4, panel, adds,
                            sums + (start * job[PACKED_ROWS] + row * wide) * VECTOR_BYTES
                        )
            adds = 1
        item = fetch_add(job, NEXT_ITEM, 1)

def finish(record: int64):
    """Add the sums of all shares, and store one thread's part of the filters."""
    job: int64[1] = record
    places: int64[1] = job[PLACES]
    grid = stack(WIDTH * VECTOR_BYTES)
    vectors = quotient(job[OUTPUTS] + WIDTH - 1, WIDTH)
    groups = quotient(vectors + VECTORS - 1, VECTORS)
    item = fetch_add(job, NEXT_FILTER, 1)
    while item < vectors:
        group = group_of(vectors, groups, item)
        start = group_start(vectors, groups, group)
        wide = group_start(vectors, groups, group + 1) - start
        lanes = min(WIDTH, job[OUTPUTS] - item * WIDTH)
        source = job[SUMS] + (start * job[PACKED_ROWS] + item - start) * VECTOR_BYTES
        for first in range(0, job[RUN], WIDTH):
            count = min(WIDTH, job[RUN] - first)
            channel = quotient(first, job[TAPS])
            tap = first - channel * job[TAPS]
            for r in range(count):
                row = places[tap] + channel
                sum_vectors(
                    job[SHARES], source + row * wide * VECTOR_BYTES,
                    vectors * job[PACKED_ROWS] * WIDTH, grid + r * VECTOR_BYTES
                )
                tap += 1
                if tap == job[TAPS]:
                    tap = 0
                    channel += 1
            transpose_pixels(
                count, lanes, grid, WIDTH,
                job[FILTERS] + (item * WIDTH * job[OF_FILTER] + first) * 4, job[OF_FILTER], count
            )
        item = fetch_add(job, NEXT_FILTER, 1)
'''

CODE: Final = AotModule(
    _ADDRESSES + _PACK + _CORRELATE + _WEIGHTS,
    ("pack_filters", "correlate", "weight_sums", "finish"),
    constants={
        **{name.upper(): i for names in (JOB, PHASE) for i, name in enumerate(names)},
        **CONSTANTS, "PHASE_WORDS": len(PHASE), "WIDTH": WIDTH,
    },
    inside=(
        "magmath.kernels.gemm.microkernel",
        "magmath.kernels.conv.indirect_tiles",
        "magmath.kernels.conv.pixel_vectors",
    ),
)  # fmt: skip


def code() -> AotModule:
    """Return the compiled functions, each with the address of a JOB."""
    return CODE
