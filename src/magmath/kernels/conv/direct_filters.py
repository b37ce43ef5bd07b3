"""The packed filters of a direct convolution, for `kernels/conv/direct_loops.py`.

The outputs are divided into vectors, and these into groups, the outputs of one register block. The
packed filters have for each group the rows of all channels and filter elements, in the order in
which the register blocks read them. Gradients of filters are summed in this order.
"""

from __future__ import annotations

from typing import Final

FILTERS: Final = '''
def group_start(job: int64[1], group: int64) -> int64:
    """The first vector of outputs of a group; groups have at most VECTORS."""
    return quotient(group * job[OUTPUT_VECTORS], job[OUTPUT_GROUPS])

def group_vectors(job: int64[1], group: int64) -> int64:
    """The number of vectors of a group."""
    return group_start(job, group + 1) - group_start(job, group)

def group_of(job: int64[1], vector: int64) -> int64:
    """The group of a vector of outputs."""
    return quotient((vector + 1) * job[OUTPUT_GROUPS] - 1, job[OUTPUT_VECTORS])

def pack_unit(job: int64[1], vector: int64, unit: int64, grid: int64):
    """Pack one unit of the filters of a vector of outputs."""
    places: int64[1] = job[PLACES]
    group = group_of(job, vector)
    start = group_start(job, group)
    wide = group_vectors(job, group)
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
    item = fetch_add(job, NEXT_FILTER, 1)
    while item < (job[OUTPUT_VECTORS] if job[UNITS] == 1 else job[UNITS]):
        if job[UNITS] == 1:
            pack_unit(job, item, 0, grid)
        else:
            for vector in range(job[OUTPUT_VECTORS]):
                pack_unit(job, vector, item, grid)
        item = fetch_add(job, NEXT_FILTER, 1)

def finish(record: int64):
    """Add the sums of all shares, and store one thread's part of the filters."""
    job: int64[1] = record
    places: int64[1] = job[PLACES]
    grid = stack(WIDTH * VECTOR_BYTES)
    item = fetch_add(job, NEXT_FILTER, 1)
    while item < job[OUTPUT_VECTORS]:
        group = group_of(job, item)
        start = group_start(job, group)
        wide = group_vectors(job, group)
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
                    job[OUTPUT_VECTORS] * job[PACKED_ROWS] * WIDTH, grid + r * VECTOR_BYTES
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
