"""Depthwise convolution of float32 images in NCHW order: each channel has its own filters.

The sums stay in registers (`kernels/conv/depthwise_rows.py`); the threads take planes, of one image
and channel, from a counter. The gradient of the images is the same with filters turned by 180°.
"""

from __future__ import annotations

from typing import Final

import torch

from magmath.codegen.aot_cache import AotModule
from magmath.codegen.background_build import is_code_ready
from magmath.core.type_aliases import BoundCall
from magmath.kernels.conv.convolution_problem import ConvolutionProblem
from magmath.kernels.parallel_region import bind_job

JOB: Final = (
    "x", "x_image", "x_channel", "x_row", "rows", "columns",
    "y", "y_image", "y_channel", "y_row", "y_rows", "y_columns",
    "w", "w_output", "w_row", "w_column", "w_rows", "w_columns",
    "images", "channels", "x_multiplier", "y_multiplier", "row", "column", "down", "right",
    "next_item",
)  # fmt: skip
"""The argument of the exported functions, 64-bit words.

x…, y…, w…       addresses, distances of the dimensions in elements, and extents. `correlate` writes
                 y; `filter` writes w
channels         of x or y, whichever has fewer; each has `x_multiplier` channels of x, and
                 `y_multiplier` of y, one of which is 1
row, column      the pixel of x under the first element of a filter for the first number of y
down, right      the distances between elements of a filter, in pixels
next_item        the counter of planes, or of filters
"""

_SOURCE: Final = '''
def correlate_planes(job: int64[1], x: int64, w: int64, y: int64):
    """Add the correlation of a plane of x with a filter to a plane of y."""
    for row in range(0, job[Y_ROWS], LINES):
        lines = min(LINES, job[Y_ROWS] - row)
        for column in range(0, job[Y_COLUMNS], WIDTH):
            add_correlated(
                x, job[X_ROW], job[ROWS], job[COLUMNS], job[ROW] + row, job[COLUMN] + column, w,
                job[W_ROWS], job[W_COLUMNS], job[W_ROW], job[W_COLUMN], job[DOWN], job[RIGHT],
                y + (row * job[Y_ROW] + column) * 4, job[Y_ROW], lines,
                min(WIDTH, job[Y_COLUMNS] - column)
            )

def clear_plane(job: int64[1], y: int64):
    for i in range(job[Y_ROWS]):
        line: float32[1] = y + i * job[Y_ROW] * 4
        for j in range(job[Y_COLUMNS]):
            line[j] = 0

def correlate(record: int64):
    """Compute one thread's share of the planes of y."""
    job: int64[1] = record
    outputs = job[CHANNELS] * job[Y_MULTIPLIER]
    item = fetch_add(job, NEXT_ITEM, 1)
    while item < job[IMAGES] * outputs:
        image = quotient(item, outputs)
        output = item - image * outputs
        channel = quotient(output, job[Y_MULTIPLIER])
        y = job[Y] + (image * job[Y_IMAGE] + output * job[Y_CHANNEL]) * 4
        clear_plane(job, y)
        for m in range(job[X_MULTIPLIER]):
            source = channel * job[X_MULTIPLIER] + m
            filter = max(source, output)
            x = job[X] + (image * job[X_IMAGE] + source * job[X_CHANNEL]) * 4
            correlate_planes(job, x, job[W] + filter * job[W_OUTPUT] * 4, y)
        item = fetch_add(job, NEXT_ITEM, 1)

def filter(record: int64):
    """Compute one thread's share of the filters."""
    job: int64[1] = record
    place = stack(VECTOR_BYTES)
    parts: float32[1] = place
    output = fetch_add(job, NEXT_ITEM, 1)
    while output < job[CHANNELS] * job[Y_MULTIPLIER]:
        channel = quotient(output, job[Y_MULTIPLIER])
        taps: float32[1] = job[W] + output * job[W_OUTPUT] * 4
        for i in range(job[W_ROWS]):
            for j in range(job[W_COLUMNS]):
                for lane in range(WIDTH):
                    parts[lane] = 0
                for image in range(job[IMAGES]):
                    add_products(
                        job[X] + (image * job[X_IMAGE] + channel * job[X_CHANNEL]) * 4, job[X_ROW],
                        job[ROWS], job[COLUMNS], job[ROW] + i * job[DOWN],
                        job[COLUMN] + j * job[RIGHT],
                        job[Y] + (image * job[Y_IMAGE] + output * job[Y_CHANNEL]) * 4, job[Y_ROW],
                        job[Y_ROWS], job[Y_COLUMNS], place
                    )
                total = float32(0)
                for lane in range(WIDTH):
                    total = total + parts[lane]
                taps[i * job[W_ROW] + j * job[W_COLUMN]] = total
        output = fetch_add(job, NEXT_ITEM, 1)
'''

CODE = AotModule(
    _SOURCE,
    ("correlate", "filter"),
    constants={name.upper(): i for i, name in enumerate(JOB)},
    ir_modules=("magmath.kernels.conv.depthwise_rows",),
)


def code() -> AotModule:
    """Return the compiled functions, each with the address of a JOB."""
    return CODE


def can_bind(problem: ConvolutionProblem) -> bool:
    """Return True for stride 1, one channel in a group, and images whose rows are contiguous."""
    x, w, y = problem.x, problem.w, problem.y
    if x.ndim != 4 or x.dtype != torch.float32 or w.shape[1] != 1 or problem.groups == 1:
        return False
    rows = x.stride(3) == 1 and y.stride(3) == 1 and set(problem.stride) == {1}
    return rows and all(tensor.numel() for tensor in (x, w, y))


def is_ready() -> bool:
    """Return False, and start the compiler, if the code is not on disk yet."""
    return is_code_ready(code)


def bind(problem: ConvolutionProblem, bind_product: object = None) -> BoundCall:
    """Return a bound call that computes one pass of a problem."""
    function = CODE.address("filter" if problem.direction == "filter" else "correlate")
    return bind_job(function, _words(problem), JOB.index("next_item"), problem)


def _words(problem: ConvolutionProblem) -> list[int]:
    """Return the JOB of a problem; for the gradient of the images, x and y change places."""
    x, w, y, offset = problem.x, problem.w, problem.y, problem.offset
    (output, _, *steps), address = w.stride(), w.data_ptr()
    multipliers = [1, w.shape[0] // x.shape[1]]
    if problem.direction == "data":
        reach = [d * (k - 1) for d, k in zip(problem.dilation, problem.kernel, strict=True)]
        offset = tuple(-start - r for start, r in zip(offset, reach, strict=True))
        address += 4 * sum((k - 1) * step for k, step in zip(problem.kernel, steps, strict=True))
        steps = [-step for step in steps]
        x, y, multipliers = y, x, multipliers[::-1]
    planes = [[t.data_ptr(), *t.stride()[:3], *t.shape[2:]] for t in (x, y)]
    return [
        *planes[0], *planes[1], address, output, *steps, *problem.kernel,
        x.shape[0], min(x.shape[1], y.shape[1]), *multipliers, *offset, *problem.dilation, 0,
    ]  # fmt: skip
