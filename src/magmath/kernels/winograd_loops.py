"""The outer loops of Winograd convolution: blocks of tiles, from the inputs to the outputs.

A block of tiles is transformed, multiplied with the transformed filters (`kernels/microkernel.py`),
and transformed back before the next block, so that it stays in a thread's second-level cache. The
threads take blocks in turn from a counter. For the gradient of the filters, each thread adds the
products of its blocks; `finish` adds these sums and transforms them back.

Images are described by a VIEW; `read_strip` and `write_strip` move part of a row of tiles between
an image and a grid of vectors of channels (`kernels/pixel_vectors.py`), so the loops accept every
memory order in which pixels or channels are contiguous.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from magmath.codegen import runtime_library
from magmath.codegen.aot_cache import AotModule
from magmath.codegen.vectors import VECTOR_BYTES
from magmath.kernels.microkernel import ROWS, VECTORS
from magmath.kernels.winograd_transforms import TAPS

WIDTH: Final = VECTOR_BYTES // 4
MAX_RUN: Final = 16  # tiles of a strip
SUMS_HEADER: Final = 64  # bytes before the sums of a thread
PAD: Final = 5 * WIDTH  # elements after each position, so that positions use different cache sets

VIEW: Final = (
    "address", "of_image", "of_channel", "of_row", "of_pixel", "images", "channels", "extent_y",
    "extent_x",
)  # fmt: skip
"""The description of an image batch: its address, the distances in elements between images,
channels, rows and pixels, and its sizes."""

JOB: Final = (
    "source", "target", "filters", "offset_y", "offset_x", "tiles", "tile_rows", "tile_columns",
    "block_tiles", "blocks", "next_block", "next_slot", "next_filter", "transformed", "workspace",
    "slot_bytes", "inputs_pitch", "inputs_stride", "inputs_bytes", "others_pitch", "others_stride",
    "outputs",
)  # fmt: skip
"""The argument of the exported functions, 64-bit words.

source, target   addresses of VIEWs: the images that are read, and those that are written; for the
                 gradient of the filters both are read: x and y
filters          the address of a VIEW of the filters: image = output, channel = input channel
offset_y, …_x    the pixel of the source under the first element of a filter at the first output
tiles            all tiles, of `tile_rows` by `tile_columns` an image, in `blocks` of `block_tiles`
next_…           counters from which threads take work, 0 at first
transformed      the address of the transformed filters
workspace        its address; the part of each thread has `slot_bytes`
inputs_…         the transformed inputs of a block: [position, tile, channel], with the distances of
                 tiles and positions in elements; their bytes
others_…         the distances of the products, or of the transformed cotangents
outputs          the padded number of output channels
"""

_STRIPS: Final = '''
def read_strip(
    view: int64[1], image: int64, y0: int64, x0: int64, rows: int64, pixels: int64, lanes: int64,
    grid: int64
):
    """Copy rows of pixels of one vector of channels to a grid, with zeros outside the image."""
    first = max(0, min(pixels, -x0))
    last = max(first, min(pixels, view[EXTENT_X] - x0))
    for i in range(rows):
        y = y0 + i
        line = grid + i * pixels * VECTOR_BYTES
        if y < 0 or y >= view[EXTENT_Y]:
            zero_pixels(pixels, line)
        else:
            zero_pixels(first, line)
            zero_pixels(pixels - last, line + last * VECTOR_BYTES)
            place = image + (y * view[OF_ROW] + (x0 + first) * view[OF_PIXEL]) * 4
            if view[OF_CHANNEL] == 1:
                load_pixels(last - first, place, view[OF_PIXEL], line + first * VECTOR_BYTES, lanes)
            else:
                for j in range(first, last, WIDTH):
                    transpose_pixels(
                        lanes, min(WIDTH, last - j), place + (j - first) * 4, view[OF_CHANNEL],
                        line + j * VECTOR_BYTES, WIDTH, WIDTH
                    )

def write_strip(
    view: int64[1], image: int64, y0: int64, x0: int64, rows: int64, pixels: int64, lanes: int64,
    grid: int64
):
    """Copy a grid to the rows of pixels of one vector of channels that are in the image."""
    inside = min(pixels, view[EXTENT_X] - x0)
    for i in range(min(rows, view[EXTENT_Y] - y0)):
        line = grid + i * pixels * VECTOR_BYTES
        place = image + ((y0 + i) * view[OF_ROW] + x0 * view[OF_PIXEL]) * 4
        if view[OF_CHANNEL] == 1:
            store_pixels(inside, place, view[OF_PIXEL], line, lanes)
        else:
            for j in range(0, inside, WIDTH):
                columns = min(WIDTH, inside - j)
                transpose_pixels(
                    columns, lanes, line + j * VECTOR_BYTES, WIDTH, place + j * 4,
                    view[OF_CHANNEL], columns
                )

def channels_at(view: int64[1], image: int64, channel: int64) -> int64:
    return view[ADDRESS] + (image * view[OF_IMAGE] + channel * view[OF_CHANNEL]) * 4
'''

_BLOCKS: Final = '''
def read_tiles(
    job: int64[1], view: int64[1], covered: int64, y: int64, x: int64, first: int64, count: int64,
    grid: int64, into: int64, pitch: int64, stride: int64
):
    """Transform `count` tiles of all channels, of `covered` pixels a side, to positions."""
    for channel in range(0, view[CHANNELS], WIDTH):
        lanes = min(WIDTH, view[CHANNELS] - channel)
        t = first
        while t < first + count:
            image = quotient(t, job[TILE_ROWS] * job[TILE_COLUMNS])
            row = quotient(t, job[TILE_COLUMNS]) - image * job[TILE_ROWS]
            column = t - (image * job[TILE_ROWS] + row) * job[TILE_COLUMNS]
            run = min(min(job[TILE_COLUMNS] - column, first + count - t), MAX_RUN)
            pixels = (run - 1) * TILE + covered
            place = channels_at(view, image, channel)
            read_strip(view, place, row * TILE + y, column * TILE + x, covered, pixels, lanes, grid)
            to = into + ((t - first) * pitch + channel) * 4
            if covered == TILE:
                cotangents_{tile}(run, grid, pixels * WIDTH, TILE * WIDTH, to, stride, pitch)
            else:
                inputs_{tile}(run, grid, pixels * WIDTH, TILE * WIDTH, to, stride, pitch)
            t += run

def write_tiles(
    job: int64[1], view: int64[1], channel: int64, first: int64, count: int64, grid: int64,
    products: int64, pitch: int64, stride: int64
):
    """Transform the products of one vector of channels back, and store them."""
    lanes = min(WIDTH, view[CHANNELS] - channel)
    t = first
    while t < first + count:
        image = quotient(t, job[TILE_ROWS] * job[TILE_COLUMNS])
        row = quotient(t, job[TILE_COLUMNS]) - image * job[TILE_ROWS]
        column = t - (image * job[TILE_ROWS] + row) * job[TILE_COLUMNS]
        run = min(min(job[TILE_COLUMNS] - column, first + count - t), MAX_RUN)
        place = products + (t - first) * pitch * 4
        outputs_{tile}(run, grid, run * TILE * WIDTH, TILE * WIDTH, place, stride, pitch)
        place = channels_at(view, image, channel)
        write_strip(view, place, row * TILE, column * TILE, TILE, run * TILE, lanes, grid)
        t += run

def multiply(
    down: int64, rows: int64, deep: int64, a: int64, lda: int64, b: int64, ldb: int64, wide: int64,
    beta: float32, c: int64, ldc: int64
):
    """C = op(A) · B + beta · C for `rows` rows and `wide` vectors of columns of C."""
    count = quotient(rows + ROWS - 1, ROWS)
    for t in range(count):
        i = quotient(t * rows, count)
        high = quotient((t + 1) * rows, count) - i
        form = (down * (ROWS + 1) + high) * (VECTORS + 1) + wide
        at = a + (i if down != 0 else i * lda) * 4
        gemm_tile_float32(form, deep, 1, at, lda, b, ldb, beta, c + i * ldc * 4, ldc, WIDTH, 0, 0)

def group_start(vectors: int64, groups: int64, group: int64) -> int64:
    """The first vector of output channels of a group; groups have at most VECTORS."""
    return quotient(group * vectors, groups)

def filters_at(job: int64[1], channels: int64, start: int64, group: int64) -> int64:
    """The address of the transformed filters of a group: [position, channel, output]."""
    return job[TRANSFORMED] + (start * WIDTH * channels + group * PAD) * POSITIONS * 4
'''

_FILTERS: Final = '''
def transform_filters(record: int64):
    """Transform the filters: one thread's share."""
    job: int64[1] = record
    view: int64[1] = job[FILTERS]
    grid = stack(TAPS * TAPS * VECTOR_BYTES)
    taps: float32[1] = grid
    numbers: float32[1] = view[ADDRESS]
    vectors = quotient(view[IMAGES] + WIDTH - 1, WIDTH)
    groups = quotient(vectors + VECTORS - 1, VECTORS)
    item = fetch_add(job, NEXT_FILTER, 1)
    while item < groups * view[CHANNELS]:
        group = quotient(item, view[CHANNELS])
        channel = item - group * view[CHANNELS]
        start = group_start(vectors, groups, group)
        stop = group_start(vectors, groups, group + 1)
        wide = (stop - start) * WIDTH
        to = filters_at(job, view[CHANNELS], start, group) + channel * wide * 4
        for v in range(start, stop):
            for lane in range(WIDTH):
                output = v * WIDTH + lane
                at = min(output, view[IMAGES] - 1) * view[OF_IMAGE] + channel * view[OF_CHANNEL]
                for i in range(TAPS):
                    for j in range(TAPS):
                        tap = numbers[at + i * view[OF_ROW] + j * view[OF_PIXEL]]
                        taps[(i * TAPS + j) * WIDTH + lane] = tap if output < view[IMAGES] else 0
            place = to + (v - start) * VECTOR_BYTES
            stride = view[CHANNELS] * wide + PAD
            filters_{tile}(1, grid, TAPS * WIDTH, 0, place, stride, 0)
        item = fetch_add(job, NEXT_FILTER, 1)
'''

_CORRELATE: Final = '''
def correlate(record: int64):
    """Compute the outputs of one thread's share of the blocks."""
    job: int64[1] = record
    source: int64[1] = job[SOURCE]
    target: int64[1] = job[TARGET]
    grid = stack(GRID_BYTES)
    inputs = job[WORKSPACE] + fetch_add(job, NEXT_SLOT, 1) * job[SLOT_BYTES]
    products = inputs + job[INPUTS_BYTES]
    channels = source[CHANNELS]
    vectors = quotient(job[OUTPUTS], WIDTH)
    groups = quotient(vectors + VECTORS - 1, VECTORS)
    block = fetch_add(job, NEXT_BLOCK, 1)
    while block < job[BLOCKS]:
        first = block * job[BLOCK_TILES]
        count = min(job[BLOCK_TILES], job[TILES] - first)
        read_tiles(
            job, source, COVERED, job[OFFSET_Y], job[OFFSET_X], first, count, grid, inputs,
            job[INPUTS_PITCH], job[INPUTS_STRIDE]
        )
        for group in range(groups):
            start = group_start(vectors, groups, group)
            wide = group_start(vectors, groups, group + 1) - start
            pitch = wide * WIDTH
            filters = filters_at(job, channels, start, group)
            for p in range(POSITIONS):
                multiply(
                    0, count, channels, inputs + p * job[INPUTS_STRIDE] * 4, job[INPUTS_PITCH],
                    filters + p * (channels * pitch + PAD) * 4, pitch, wide, 0,
                    products + p * job[OTHERS_STRIDE] * 4, pitch
                )
            for v in range(wide):
                write_tiles(
                    job, target, (start + v) * WIDTH, first, count, grid,
                    products + v * VECTOR_BYTES, pitch, job[OTHERS_STRIDE]
                )
        block = fetch_add(job, NEXT_BLOCK, 1)
'''

_WEIGHTS: Final = '''
def sums_at(job: int64[1], channels: int64, slot: int64) -> int64:
    """The address of a thread's sums [position, channel, output], after its number of blocks."""
    return job[TRANSFORMED] + slot * ((channels * job[OUTPUTS] + PAD) * POSITIONS * 4 + SUMS_HEADER)

def weight_sums(record: int64):
    """Add the products of one thread's share of the blocks."""
    job: int64[1] = record
    source: int64[1] = job[SOURCE]
    target: int64[1] = job[TARGET]
    grid = stack(GRID_BYTES)
    slot = fetch_add(job, NEXT_SLOT, 1)
    inputs = job[WORKSPACE] + slot * job[SLOT_BYTES]
    cotangents = inputs + job[INPUTS_BYTES]
    channels = source[CHANNELS]
    outputs = job[OUTPUTS]
    vectors = quotient(outputs, WIDTH)
    groups = quotient(vectors + VECTORS - 1, VECTORS)
    done: int64[1] = sums_at(job, channels, slot)
    sums = sums_at(job, channels, slot) + SUMS_HEADER
    done[0] = 0
    block = fetch_add(job, NEXT_BLOCK, 1)
    while block < job[BLOCKS]:
        first = block * job[BLOCK_TILES]
        count = min(job[BLOCK_TILES], job[TILES] - first)
        read_tiles(
            job, source, COVERED, job[OFFSET_Y], job[OFFSET_X], first, count, grid, inputs,
            job[INPUTS_PITCH], job[INPUTS_STRIDE]
        )
        read_tiles(
            job, target, TILE, 0, 0, first, count, grid, cotangents, job[OTHERS_PITCH],
            job[OTHERS_STRIDE]
        )
        beta = float32(1 if done[0] > 0 else 0)
        for p in range(POSITIONS):
            a = inputs + p * job[INPUTS_STRIDE] * 4
            b = cotangents + p * job[OTHERS_STRIDE] * 4
            c = sums + p * (channels * outputs + PAD) * 4
            for group in range(groups):
                start = group_start(vectors, groups, group)
                wide = group_start(vectors, groups, group + 1) - start
                at = start * VECTOR_BYTES
                multiply(
                    1, channels, count, a, job[INPUTS_PITCH], b + at, job[OTHERS_PITCH], wide,
                    beta, c + at, outputs
                )
        done[0] = done[0] + 1
        block = fetch_add(job, NEXT_BLOCK, 1)

def finish(record: int64):
    """Transform the sums of all threads to the gradient of the filters: one thread's share."""
    job: int64[1] = record
    view: int64[1] = job[FILTERS]
    grid = stack(TAPS * TAPS * VECTOR_BYTES)
    total = stack(POSITIONS * VECTOR_BYTES)
    taps: float32[1] = grid
    results: float32[1] = view[ADDRESS]
    numbers: float32[1] = total
    channels = view[CHANNELS]
    vectors = quotient(job[OUTPUTS], WIDTH)
    channel = fetch_add(job, NEXT_FILTER, 1)
    while channel < channels:
        for v in range(vectors):
            zero_pixels(POSITIONS, total)
            for slot in range(job[NEXT_SLOT]):
                done: int64[1] = sums_at(job, channels, slot)
                if done[0] > 0:
                    start = sums_at(job, channels, slot) + SUMS_HEADER + v * VECTOR_BYTES
                    for p in range(POSITIONS):
                        at = (channel * job[OUTPUTS] + p * (channels * job[OUTPUTS] + PAD)) * 4
                        part: float32[1] = start + at
                        for lane in range(WIDTH):
                            numbers[p * WIDTH + lane] = numbers[p * WIDTH + lane] + part[lane]
            weights_{tile}(1, grid, TAPS * WIDTH, 0, total, WIDTH, 0)
            for lane in range(min(WIDTH, view[IMAGES] - v * WIDTH)):
                at = (v * WIDTH + lane) * view[OF_IMAGE] + channel * view[OF_CHANNEL]
                for i in range(TAPS):
                    for j in range(TAPS):
                        results[at + i * view[OF_ROW] + j * view[OF_PIXEL]] = taps[
                            (i * TAPS + j) * WIDTH + lane
                        ]
        channel = fetch_add(job, NEXT_FILTER, 1)
'''

PRODUCT: Final = "gemm_tile_float32"
EXPORTS: Final = ("transform_filters", "correlate", "weight_sums", "finish")


@cache
def code(tile: int) -> AotModule:
    """Return the compiled functions of F(tile×tile, 3×3), each with the address of a JOB."""
    covered = tile + TAPS - 1
    names = {name.upper(): i for i, name in enumerate(JOB)}
    views = {name.upper(): i for i, name in enumerate(VIEW)}
    sizes = {
        "WIDTH": WIDTH, "VECTOR_BYTES": VECTOR_BYTES, "PAD": PAD, "SUMS_HEADER": SUMS_HEADER,
        "TILE": tile, "COVERED": covered,
        "POSITIONS": covered**2, "ROWS": ROWS, "MAX_RUN": MAX_RUN, "VECTORS": VECTORS,
        "GRID_BYTES": covered * ((MAX_RUN - 1) * tile + covered) * VECTOR_BYTES,
    }  # fmt: skip
    source = _STRIPS + (_BLOCKS + _FILTERS + _CORRELATE + _WEIGHTS).replace("{tile}", str(tile))
    return AotModule(
        source,
        EXPORTS,
        constants={**names, **views, **sizes},
        inside=(
            "magmath.kernels.pixel_vectors",
            "magmath.kernels.winograd_transforms",
        ),
        outside=runtime_library.signatures([PRODUCT]),
        prepare=lambda: runtime_library.load(PRODUCT),
    )


def is_compiled(tile: int) -> bool:
    """Return True if the code of F(tile×tile, 3×3) is on disk."""
    return code(tile).is_cached() and runtime_library.is_ready(PRODUCT)
