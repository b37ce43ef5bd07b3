"""The outer loops of Winograd convolution: blocks of tiles, from the inputs to the outputs.

A block of tiles is transformed, multiplied with the transformed filters
(`kernels/gemm/microkernel.py`), and transformed back before the next block, so that it stays in a
thread's second-level cache. The threads take blocks in turn from a counter. For the gradient of the
filters, each thread adds the products of its blocks; `finish` adds these sums and transforms them
back.

Images are described by a VIEW (`kernels/conv/image_views.py`); `read_strip` and `write_strip` move
part of a row of tiles between an image and a grid of vectors of channels
(`kernels/conv/pixel_vectors.py`), so the loops accept every memory order in which pixels or
channels are contiguous.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from magmath.codegen.aot_cache import AotModule
from magmath.codegen.vectors import VECTOR_BYTES
from magmath.kernels import runtime_library
from magmath.kernels.conv.image_views import VIEW
from magmath.kernels.conv.winograd_transforms import ALGORITHMS
from magmath.kernels.gemm.microkernel import ROWS, VECTORS

WIDTH: Final = VECTOR_BYTES // 4
STRIP_PIXELS: Final = 64  # of a row of the source or the target that are moved at once
SUMS_HEADER: Final = 64  # bytes before the sums of a thread
PAD: Final = 5 * WIDTH  # elements after each position, so that positions use different cache sets

JOB: Final = (
    "source", "target", "filters", "offset_y", "offset_x", "start_y", "start_x", "tiles",
    "tile_rows", "tile_columns", "block_tiles", "blocks", "next_block", "next_slot", "next_filter",
    "next_finisher", "transformed", "workspace", "slot_bytes", "inputs_pitch", "inputs_stride",
    "inputs_bytes", "others_pitch", "others_stride", "outputs",
)  # fmt: skip
"""The argument of the exported functions, 64-bit words.

source, target   addresses of VIEWs: the images that are read, and those that are written; for the
                 gradient of the filters both are read: x and y
filters          the address of a VIEW of the filters: image = output, channel = input channel
offset_y, …_x    the first pixel of the source that the first tile covers
start_y, …_x     the first pixel of the first tile; pixels outside the target are not written
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
    first = max(0, -x0)
    inside = min(pixels, view[EXTENT_X] - x0) - first
    for i in range(max(0, -y0), min(rows, view[EXTENT_Y] - y0)):
        line = grid + (i * pixels + first) * VECTOR_BYTES
        place = image + ((y0 + i) * view[OF_ROW] + (x0 + first) * view[OF_PIXEL]) * 4
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

_READ: Final = '''
def read_{kind}(
    job: int64[1], view: int64[1], covered: int64, step: int64, y: int64, x: int64, first: int64,
    count: int64, grid: int64, into: int64, pitch: int64, stride: int64
):
    """Transform `count` tiles of all channels to positions; a tile covers `covered` pixels a side,
    and the next one begins after `step` pixels."""
    for channel in range(0, view[CHANNELS], WIDTH):
        lanes = min(WIDTH, view[CHANNELS] - channel)
        t = first
        while t < first + count:
            image = quotient(t, job[TILE_ROWS] * job[TILE_COLUMNS])
            row = quotient(t, job[TILE_COLUMNS]) - image * job[TILE_ROWS]
            column = t - (image * job[TILE_ROWS] + row) * job[TILE_COLUMNS]
            run = min(min(job[TILE_COLUMNS] - column, first + count - t), MAX_RUN)
            pixels = (run - 1) * step + covered
            place = channels_at(view, image, channel)
            read_strip(view, place, row * step + y, column * step + x, covered, pixels, lanes, grid)
            to = into + ((t - first) * pitch + channel) * 4
            {kind}_{algorithm}(run, grid, pixels * WIDTH, step * WIDTH, to, stride, pitch)
            t += run
'''
"""For `kind`: inputs or cotangents."""

_BLOCKS: Final = '''
def input_of(i: int64, j: int64) -> int64:
    """The number of the transformed input that position (i, j) of the filter multiplies."""
    row = i if i < INPUTS_SIDE else i - INPUTS_SIDE
    return row * INPUTS_SIDE + (j if j < INPUTS_SIDE else j - INPUTS_SIDE)

def product_of(i: int64, j: int64) -> int64:
    """The number of the product to which position (i, j) of the filter belongs."""
    row = i if i < PRODUCTS_SIDE else i - PRODUCTS_SIDE
    return row * PRODUCTS_SIDE + (j if j < PRODUCTS_SIDE else j - PRODUCTS_SIDE)

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
        outputs_{algorithm}(run, grid, run * TILE * WIDTH, TILE * WIDTH, place, stride, pitch)
        place = channels_at(view, image, channel)
        y = row * TILE + job[START_Y]
        x = column * TILE + job[START_X]
        write_strip(view, place, y, x, TILE, run * TILE, lanes, grid)
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
            filters_{algorithm}(1, grid, TAPS * WIDTH, 0, place, stride, 0)
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
        read_inputs(
            job, source, COVERED, STEP, job[OFFSET_Y], job[OFFSET_X], first, count, grid, inputs,
            job[INPUTS_PITCH], job[INPUTS_STRIDE]
        )
        for group in range(groups):
            start = group_start(vectors, groups, group)
            wide = group_start(vectors, groups, group + 1) - start
            pitch = wide * WIDTH
            filters = filters_at(job, channels, start, group)
            for i in range(SIDE):
                for j in range(SIDE):
                    a = inputs + input_of(i, j) * job[INPUTS_STRIDE] * 4
                    b = filters + (i * SIDE + j) * (channels * pitch + PAD) * 4
                    c = products + product_of(i, j) * job[OTHERS_STRIDE] * 4
                    beta = float32(1 if i >= PRODUCTS_SIDE or j >= PRODUCTS_SIDE else 0)
                    multiply(
                        0, count, channels, a, job[INPUTS_PITCH], b, pitch, wide, beta, c, pitch
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
    blocks_added: int64[1] = sums_at(job, channels, slot)
    sums = sums_at(job, channels, slot) + SUMS_HEADER
    blocks_added[0] = 0
    block = fetch_add(job, NEXT_BLOCK, 1)
    while block < job[BLOCKS]:
        first = block * job[BLOCK_TILES]
        count = min(job[BLOCK_TILES], job[TILES] - first)
        read_inputs(
            job, source, COVERED, STEP, job[OFFSET_Y], job[OFFSET_X], first, count, grid, inputs,
            job[INPUTS_PITCH], job[INPUTS_STRIDE]
        )
        read_cotangents(
            job, target, TILE, TILE, 0, 0, first, count, grid, cotangents, job[OTHERS_PITCH],
            job[OTHERS_STRIDE]
        )
        beta = float32(1 if blocks_added[0] > 0 else 0)
        for i in range(SIDE):
            for j in range(SIDE):
                a = inputs + input_of(i, j) * job[INPUTS_STRIDE] * 4
                b = cotangents + product_of(i, j) * job[OTHERS_STRIDE] * 4
                c = sums + (i * SIDE + j) * (channels * outputs + PAD) * 4
                for group in range(groups):
                    start = group_start(vectors, groups, group)
                    wide = group_start(vectors, groups, group + 1) - start
                    at = start * VECTOR_BYTES
                    multiply(
                        1, channels, count, a, job[INPUTS_PITCH], b + at, job[OTHERS_PITCH], wide,
                        beta, c + at, outputs
                    )
        blocks_added[0] = blocks_added[0] + 1
        block = fetch_add(job, NEXT_BLOCK, 1)

def add_line(count: int64, source: int64, target: int64):
    numbers: float32[1] = source
    totals: float32[1] = target
    for i in range(count):
        totals[i] = totals[i] + numbers[i]

def finish(record: int64):
    """Transform the sums of all threads to the gradient of the filters: one thread's share."""
    job: int64[1] = record
    view: int64[1] = job[FILTERS]
    grid = stack(TAPS * TAPS * VECTOR_BYTES)
    taps: float32[1] = grid
    results: float32[1] = view[ADDRESS]
    channels = view[CHANNELS]
    outputs = job[OUTPUTS]
    slot = fetch_add(job, NEXT_FINISHER, 1)
    total = job[WORKSPACE] + slot * job[SLOT_BYTES] + job[INPUTS_BYTES]
    channel = fetch_add(job, NEXT_FILTER, 1)
    while channel < channels:
        zero_pixels(quotient(POSITIONS * outputs, WIDTH), total)
        for part in range(job[NEXT_SLOT]):
            blocks_added: int64[1] = sums_at(job, channels, part)
            if blocks_added[0] > 0:
                for p in range(POSITIONS):
                    at = (channel * outputs + p * (channels * outputs + PAD)) * 4
                    start = sums_at(job, channels, part) + SUMS_HEADER + at
                    add_line(outputs, start, total + p * outputs * 4)
        for v in range(quotient(outputs, WIDTH)):
            weights_{algorithm}(1, grid, TAPS * WIDTH, 0, total + v * VECTOR_BYTES, outputs, 0)
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


@cache
def code(name: str) -> AotModule:
    """Return the compiled functions of an algorithm, each with the address of a JOB."""
    algorithm = ALGORITHMS[name]
    constants = {field.upper(): i for names in (JOB, VIEW) for i, field in enumerate(names)}
    run = STRIP_PIXELS // max(algorithm.step, algorithm.tile)
    pixels = max(
        algorithm.covered * ((run - 1) * algorithm.step + algorithm.covered),
        algorithm.tile * run * algorithm.tile,
    )
    constants |= {
        "WIDTH": WIDTH, "VECTOR_BYTES": VECTOR_BYTES, "PAD": PAD, "SUMS_HEADER": SUMS_HEADER,
        "ROWS": ROWS, "VECTORS": VECTORS, "MAX_RUN": run, "GRID_BYTES": pixels * VECTOR_BYTES,
        "TILE": algorithm.tile, "COVERED": algorithm.covered, "STEP": algorithm.step,
        "TAPS": algorithm.taps, "SIDE": algorithm.positions, "POSITIONS": algorithm.positions**2,
        "INPUTS_SIDE": algorithm.inputs, "PRODUCTS_SIDE": algorithm.products,
    }  # fmt: skip
    parts = [_STRIPS, _READ.replace("{kind}", "inputs"), _BLOCKS, _FILTERS, _CORRELATE]
    exports = ["transform_filters", "correlate"]
    if algorithm.forms.weights is not None:
        parts += [_READ.replace("{kind}", "cotangents"), _WEIGHTS]
        exports += ["weight_sums", "finish"]
    return AotModule(
        "".join(parts).replace("{algorithm}", name),
        exports,
        constants=constants,
        ir_modules=(
            "magmath.kernels.conv.pixel_vectors",
            "magmath.kernels.conv.winograd_transforms",
        ),
        external=runtime_library.signatures([PRODUCT]),
        prepare=lambda: runtime_library.load(PRODUCT),
    )


def is_compiled(name: str) -> bool:
    """Return True if the code of an algorithm is on disk."""
    return code(name).is_cached() and runtime_library.is_ready(PRODUCT)
