"""The pixels of a block of a direct convolution, for `kernels/conv/direct_loops.py`.

A block is a range of the pixels of a phase, counted through all images. Its pixels are walked row
by row (`row_segment`), to store their addresses in tables, and to copy them to strips and panels.
"""

from __future__ import annotations

from typing import Final

BLOCKS: Final = '''
def first_pixel(job: int64[1], phase: int64[1], block: int64) -> int64:
    """The first pixel of a block of a phase, among the pixels of all images."""
    unit = quotient(block, phase[UNIT_BLOCKS])
    return unit * phase[UNIT_PIXELS] + (block - unit * phase[UNIT_BLOCKS]) * job[BLOCK_PIXELS]

def end_pixel(job: int64[1], phase: int64[1], block: int64) -> int64:
    """The pixel after the last one of a block."""
    unit = quotient(block, phase[UNIT_BLOCKS])
    return min(first_pixel(job, phase, block) + job[BLOCK_PIXELS], (unit + 1) * phase[UNIT_PIXELS])

def row_segment(phase: int64[1], pixel: int64, stop: int64, segment: int64[1]) -> int64:
    """Describe the pixels from `pixel` to the end of its row or `stop`; return their number."""
    area = phase[EXTENT_ROWS] * phase[EXTENT_COLUMNS]
    image = quotient(pixel, area)
    row = quotient(pixel - image * area, phase[EXTENT_COLUMNS])
    column = pixel - image * area - row * phase[EXTENT_COLUMNS]
    segment[IMAGE] = image
    segment[ROW] = row
    segment[COLUMN] = column
    return min(phase[EXTENT_COLUMNS] - column, stop - pixel)

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
    """Store zeros."""
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
    job: int64[1], phase: int64[1], first: int64, stop: int64, channel: int64, lanes: int64,
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
    segment: int64[1] = stack(8 * SEGMENT_WORDS)
    if job[STRIP_ROWS] > 0:
        row_segment(phase, stop - 1, stop, segment)
        last = segment[ROW]
        row_segment(phase, first, stop, segment)
        top = segment[ROW] * job[STEP_Y] + job[STRIP_TOP]
        left = job[STRIP_LEFT]
        rows = (last - segment[ROW]) * job[STEP_Y] + job[STRIP_ROWS]
        base = base + segment[IMAGE] * view[OF_IMAGE] * 4
        read_strip(job, view, base, top, left, rows, lanes, slot + job[STRIP_AT])
        base = slot + job[STRIP_AT]
        columns = job[STRIP_COLUMNS]
        of_pixel = job[PITCH]
        of_row = columns * of_pixel
    offsets: int64[1] = phase[OFFSETS]
    for tap in range(phase[PHASE_TAPS]):
        t = first
        while t < stop:
            run = row_segment(phase, t, stop, segment)
            start = base + (segment[IMAGE] * view[OF_IMAGE] * 4 if job[STRIP_ROWS] == 0 else 0)
            pixel_addresses(
                start, of_row, of_pixel, rows, columns,
                segment[ROW] * job[STEP_Y] + offsets[2 * tap] - top,
                segment[COLUMN] * job[STEP_X] + offsets[2 * tap + 1] - left,
                job[STEP_X], run, job[ZEROS], slot + (tap * job[BLOCK_PIXELS] + t - first) * 8
            )
            t += run

def fill_targets(
    job: int64[1], phase: int64[1], first: int64, stop: int64, wide: int64, slot: int64
):
    """Fill the table of the pixels of the target, or of the panel."""
    segment: int64[1] = stack(8 * SEGMENT_WORDS)
    view: int64[1] = job[TARGET]
    table = slot + job[TARGETS_AT]
    if view[OF_CHANNEL] != 1:
        place: int64[1] = table
        for i in range(stop - first):
            place[i] = slot + job[PANEL_AT] + i * wide * VECTOR_BYTES
    else:
        t = first
        while t < stop:
            run = row_segment(phase, t, stop, segment)
            pixel_addresses(
                view[ADDRESS] + segment[IMAGE] * view[OF_IMAGE] * 4, view[OF_ROW], view[OF_PIXEL],
                view[EXTENT_Y], view[EXTENT_X], phase[START_Y] + segment[ROW] * job[TARGET_STEP_Y],
                phase[START_X] + segment[COLUMN] * job[TARGET_STEP_X], job[TARGET_STEP_X], run, 0,
                table + (t - first) * 8
            )
            t += run

def read_panel(
    job: int64[1], phase: int64[1], first: int64, stop: int64, output: int64, wide: int64,
    panel: int64
):
    """Copy the cotangents of a group of outputs, pixel by pixel."""
    segment: int64[1] = stack(8 * SEGMENT_WORDS)
    view: int64[1] = job[TARGET]
    end_output = min(job[OUTPUTS], output + wide * WIDTH)
    t = first
    while t < stop:
        run = row_segment(phase, t, stop, segment)
        line = view[ADDRESS] + (
            segment[IMAGE] * view[OF_IMAGE] + segment[ROW] * view[OF_ROW]
            + segment[COLUMN] * view[OF_PIXEL]
        ) * 4
        for channel in range(output, end_output, WIDTH):
            lanes = min(WIDTH, end_output - channel)
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

def write_panel(
    job: int64[1], phase: int64[1], first: int64, stop: int64, output: int64, wide: int64,
    panel: int64
):
    """Store the results of a group of outputs in images whose pixels are adjacent."""
    segment: int64[1] = stack(8 * SEGMENT_WORDS)
    view: int64[1] = job[TARGET]
    end_output = min(job[OUTPUTS], output + wide * WIDTH)
    t = first
    while t < stop:
        run = row_segment(phase, t, stop, segment)
        y = phase[START_Y] + segment[ROW] * job[TARGET_STEP_Y]
        x = phase[START_X] + segment[COLUMN] * job[TARGET_STEP_X]
        line = view[ADDRESS] + (
            segment[IMAGE] * view[OF_IMAGE] + y * view[OF_ROW] + x * view[OF_PIXEL]
        ) * 4
        for channel in range(output, end_output, WIDTH):
            lanes = min(WIDTH, end_output - channel)
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
'''
