"""Two sums for each channel in one pass over memory: Σ x and Σ x², or Σ g and Σ g·(x - m).

Batch normalization needs both of its sums at the same time, and reading the images takes longer
than adding them. Sums are accumulated in float64, so that the variance follows from Σ x² without
loss. The arrays are divided into parts by their shape alone, and the sums of the parts are added in
order: the result does not depend on the number of threads.
"""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Final

import numpy as np
import torch

from magmath.codegen.aot_cache import AotModule
from magmath.codegen.vectors import ITEMSIZE, VECTOR_BYTES
from magmath.core.byte_sizes import round_up
from magmath.core.type_aliases import BoundCall
from magmath.kernels.dtype_names import dtype_name
from magmath.kernels.parallel_region import run_on_threads
from magmath.kernels.thread_workspace import thread_workspace

PART_BYTES: Final = 128 << 10  # minimum of an array in a part
MAX_PARTS: Final = 64

JOB: Final = (
    "x", "g", "means", "sums", "parts", "next_part", "outer", "channels", "inner", "pitch",
    "result", "result_sum", "result_channel",
)  # fmt: skip
"""The argument of the exported functions, 64-bit words.

x, g, means    addresses; the terms "squares" read x alone
sums           the workspace: for each part two rows of `pitch` float64 numbers
outer, inner   the extents in front of the channels and after them; x is contiguous
result         its address, and the distances of its sums and channels in elements
next_part      the counter of parts, 0 at first
"""

_TERMS: Final = '''
def {terms}_{T}(record: int64):
    """Add one thread's share of the parts."""
    job: int64[1] = record
    lanes = stack(16 * WIDTH_{T})
    numbers: float64[1] = lanes
    channels = job[CHANNELS]
    part = fetch_add(job, NEXT_PART, 1)
    while part < job[PARTS]:
        start = quotient(part * job[OUTER], job[PARTS])
        count = quotient((part + 1) * job[OUTER], job[PARTS]) - start
        first = job[SUMS] + part * job[PITCH] * 16
        second = first + job[PITCH] * 8
        sums: float64[1] = first
        for i in range(2 * job[PITCH]):
            sums[i] = 0
        skipped = start * channels * job[INNER] * {size}
        x = job[X] + skipped
        g = job[G] + skipped
        if job[INNER] == 1:
            c = 0
            while c + BLOCK * WIDTH_{T} <= channels:
                add_block_{terms}_{T}(
                    count, x + c * {size}, g + c * {size}, channels, job[MEANS] + c * {size},
                    first + c * 8, second + c * 8, WIDTH_{T}
                )
                c += BLOCK * WIDTH_{T}
            while c < channels:
                add_pixels_{terms}_{T}(
                    count, x + c * {size}, g + c * {size}, channels, job[MEANS] + c * {size},
                    first + c * 8, second + c * 8, min(WIDTH_{T}, channels - c)
                )
                c += WIDTH_{T}
        else:
            for n in range(count):
                for k in range(channels):
                    at = (n * channels + k) * job[INNER] * {size}
                    mean = job[MEANS] + k * {size}
                    add_plane_{terms}_{T}(job[INNER], x + at, g + at, mean, lanes)
                    for i in range(WIDTH_{T}):
                        sums[k] = sums[k] + numbers[i]
                        sums[job[PITCH] + k] = sums[job[PITCH] + k] + numbers[WIDTH_{T} + i]
        part = fetch_add(job, NEXT_PART, 1)
'''

_TOTAL: Final = '''
def total(record: int64):
    """Add the sums of all parts, in order, to the result."""
    job: int64[1] = record
    sums: float64[1] = job[SUMS]
    result: float64[1] = job[RESULT]
    for i in range(2):
        for c in range(job[CHANNELS]):
            channel_sum = float64(0)
            for part in range(job[PARTS]):
                channel_sum = channel_sum + sums[(part * 2 + i) * job[PITCH] + c]
            result[i * job[RESULT_SUM] + c * job[RESULT_CHANNEL]] = channel_sum
'''


@cache
def _code(dtype: str) -> AotModule:
    """Return the code for one float type, since a network seldom uses two."""
    kinds = ("squares", "dot")
    terms = [_TERMS.format(terms=terms, T=dtype, size=ITEMSIZE[dtype]) for terms in kinds]
    return AotModule(
        "".join(terms) + _TOTAL,
        ("total", *[f"{terms}_{dtype}" for terms in kinds]),
        constants={name.upper(): i for i, name in enumerate(JOB)},
        ir_modules=("magmath.kernels.channel_sums_vectors",),
    )


def can_compute(x: torch.Tensor, g: torch.Tensor | None, means: torch.Tensor | None) -> bool:
    """Return True for contiguous or channels-last arrays (N, channels, …) of one float type, on the
    processor, with contiguous means (1, channels, 1, …)."""
    if x.ndim < 2 or not x.numel() or x.device.type != "cpu" or dtype_name(x.dtype) not in ITEMSIZE:
        return False
    if means is not None and not (means.shape[1] == 1 or means.stride(1) == 1):
        return False
    arrays = [x] if g is None else [x, g]
    rows = all(array.is_contiguous() for array in arrays)
    return rows or all(array.movedim(1, -1).is_contiguous() for array in arrays)


def bind(
    x: torch.Tensor, g: torch.Tensor | None, means: torch.Tensor | None, out: torch.Tensor
) -> BoundCall:
    """Return a bound call that stores both sums of each channel in `out`, (2, channels, 1, …) of
    float64.

    The sums are Σ x and Σ x²; with g, an array like x, and means (1, channels, 1, …), Σ g and
    Σ g·(x - means). Needs operands that `can_compute` accepts.
    """
    channels = x.shape[1]
    outer, inner = x.shape[0], prod(x.shape[2:])
    if not x.is_contiguous():
        outer, inner = outer * inner, 1
    width = VECTOR_BYTES // x.itemsize
    pitch = round_up(channels, width)
    parts = min(max(1, x.nbytes // PART_BYTES), MAX_PARTS, outer)
    job = np.array([
        x.data_ptr(), 0 if g is None else g.data_ptr(), 0 if means is None else means.data_ptr(), 0,
        parts, 0, outer, channels, inner, pitch, out.data_ptr(), out.stride(0), out.stride(1),
    ], np.int64)  # fmt: skip
    code, address = _code(dtype_name(x.dtype)), int(job.ctypes.data)
    terms = code.address(f"{'squares' if g is None else 'dot'}_{dtype_name(x.dtype)}")
    total = code.function("total")
    operands = (x, g, means, out)  # the addresses hold no reference

    def run(memory: object = operands) -> None:
        job[JOB.index("sums")] = thread_workspace(16 * parts * pitch).data_ptr()
        job[JOB.index("next_part")] = 0
        run_on_threads(terms, address, min(parts, torch.get_num_threads()))
        total(address)

    return run
