"""Products of a matrix and a vector on all threads of a worker.

The BLAS libraries that torch calls divide such a product between threads of their own, which
compete with torch's for the processors, or compute it with one thread. The product reads each
element of the matrix once, so simple loops reach the speed of the memory. In this module each of
torch's threads multiplies some of the rows. If the vector multiplies from the other side, each part
of the rows gives partial sums, which are added in order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray

from magmath.codegen.aot_cache import AotModule
from magmath.codegen.background_build import is_code_ready
from magmath.core.type_aliases import Number
from magmath.kernels.parallel_region import run_on_threads
from magmath.kernels.thread_workspace import thread_workspace

MIN_BYTES: Final = 256 << 10
"""Bytes of a matrix from which threads are worth the time to start them."""
MIN_SLENDER_BYTES: Final = 4 << 20
"""Bytes of a matrix from which these loops can be faster than NumPy's product."""
PART_BYTES: Final = 64 << 10
MAX_PARTS: Final = 16
MIN_SLENDER: Final = 8
"""Rows for each column from which these loops are faster than OpenBLAS."""
LONG_PART: Final = 512
"""Minimum elements of a part of a row. For Aᵀ·x, rows that are long enough are divided themselves
(`by_columns`): each part is then a part of the result, and no partial sums are added."""

JOB: Final = (
    "a", "lda", "rows", "columns", "x", "y", "y_step", "parts", "next_part", "sums", "pitch",
    "by_columns", "alpha", "beta",
)  # fmt: skip
"""The argument of the exported functions, 64-bit words.

a, x, y     addresses; A is (rows, columns), `lda` the distance of its rows in elements; x is
            contiguous
parts       the number of parts; next_part is the counter of those that are taken
sums        partial results, at distances of `pitch` elements
by_columns  for Aᵀ·x: whether the columns of A are divided, and not its rows
alpha, beta y = alpha · A·x + beta · y, in float64
"""

_SOURCE: Final = '''
def store_{T}(numbers: float64[1], y: {T}[1], at: int64, value: {T}):
    """Store alpha · value + beta · y; y is not read if beta is 0."""
    scaled = {T}(numbers[ALPHA]) * value
    if numbers[BETA] == 0:
        y[at] = scaled
    else:
        y[at] = scaled + {T}(numbers[BETA]) * y[at]

def rows_{T}(record: int64):
    """Compute one thread's share of y = alpha · A·x + beta · y."""
    job: int64[1] = record
    numbers: float64[1] = record
    x: {T}[1] = job[X]
    y: {T}[1] = job[Y]
    pitch = job[LDA] * {itemsize}
    part = fetch_add(job, NEXT_PART, 1)
    while part < job[PARTS]:
        i = quotient(part * job[ROWS], job[PARTS])
        end = quotient((part + 1) * job[ROWS], job[PARTS])
        while i + 4 <= end:
            r0: {T}[1] = job[A] + i * pitch
            r1: {T}[1] = job[A] + (i + 1) * pitch
            r2: {T}[1] = job[A] + (i + 2) * pitch
            r3: {T}[1] = job[A] + (i + 3) * pitch
            s0 = {T}(0)
            s1 = {T}(0)
            s2 = {T}(0)
            s3 = {T}(0)
            for j in range(job[COLUMNS]):
                s0 = add_in_any_order(s0, r0[j] * x[j])
                s1 = add_in_any_order(s1, r1[j] * x[j])
                s2 = add_in_any_order(s2, r2[j] * x[j])
                s3 = add_in_any_order(s3, r3[j] * x[j])
            store_{T}(numbers, y, i * job[Y_STEP], s0)
            store_{T}(numbers, y, (i + 1) * job[Y_STEP], s1)
            store_{T}(numbers, y, (i + 2) * job[Y_STEP], s2)
            store_{T}(numbers, y, (i + 3) * job[Y_STEP], s3)
            i += 4
        while i < end:
            row: {T}[1] = job[A] + i * pitch
            s = {T}(0)
            for j in range(job[COLUMNS]):
                s = add_in_any_order(s, row[j] * x[j])
            store_{T}(numbers, y, i * job[Y_STEP], s)
            i += 1
        part = fetch_add(job, NEXT_PART, 1)

def columns_{T}(record: int64):
    """Add one thread's share of Aᵀ·x to partial sums: of some rows, or some columns."""
    job: int64[1] = record
    x: {T}[1] = job[X]
    pitch = job[LDA] * {itemsize}
    part = fetch_add(job, NEXT_PART, 1)
    while part < job[PARTS]:
        i = 0
        end = job[ROWS]
        first = 0
        count = job[COLUMNS]
        target = job[SUMS]
        if job[BY_COLUMNS] != 0:
            first = quotient(part * job[COLUMNS], job[PARTS])
            count = quotient((part + 1) * job[COLUMNS], job[PARTS]) - first
            target = target + first * {itemsize}
        else:
            i = quotient(part * job[ROWS], job[PARTS])
            end = quotient((part + 1) * job[ROWS], job[PARTS])
            target = target + part * job[PITCH] * {itemsize}
        sums: {T}[1] = target
        for j in range(count):
            sums[j] = 0
        start = job[A] + first * {itemsize}
        while i + 4 <= end:
            r0: {T}[1] = start + i * pitch
            r1: {T}[1] = start + (i + 1) * pitch
            r2: {T}[1] = start + (i + 2) * pitch
            r3: {T}[1] = start + (i + 3) * pitch
            x0 = x[i]
            x1 = x[i + 1]
            x2 = x[i + 2]
            x3 = x[i + 3]
            for j in range(count):
                sums[j] = sums[j] + r0[j] * x0 + r1[j] * x1 + (r2[j] * x2 + r3[j] * x3)
            i += 4
        while i < end:
            row: {T}[1] = start + i * pitch
            factor = x[i]
            for j in range(count):
                sums[j] = sums[j] + row[j] * factor
            i += 1
        part = fetch_add(job, NEXT_PART, 1)

def total_{T}(record: int64):
    """Add the partial sums, in order, and store y = alpha · Aᵀ·x + beta · y."""
    job: int64[1] = record
    numbers: float64[1] = record
    sums: {T}[1] = job[SUMS]
    y: {T}[1] = job[Y]
    if job[BY_COLUMNS] == 0:
        for part in range(1, job[PARTS]):
            for i in range(job[COLUMNS]):
                sums[i] = sums[i] + sums[part * job[PITCH] + i]
    for i in range(job[COLUMNS]):
        store_{T}(numbers, y, i * job[Y_STEP], sums[i])
'''
_SIZES: Final = {"float32": 4, "float64": 8}
CODE: Final = AotModule(
    "".join(_SOURCE.format(T=dtype, itemsize=size) for dtype, size in _SIZES.items()),
    tuple(f"{name}_{dtype}" for name in ("rows", "columns", "total") for dtype in _SIZES),
    constants={name.upper(): i for i, name in enumerate(JOB)},
    arithmetic="fast",
)
"""The compiled functions."""


def code() -> AotModule:
    """Return the code, for the compiler in the background."""
    return CODE


def is_ready() -> bool:
    """Return True if the code is on disk; otherwise start to compile it in the background."""
    return is_code_ready(code)


def multiply_slender(
    a: NDArray[np.generic], x: NDArray[np.generic], out: NDArray[np.generic], *, transposed: bool
) -> None:
    """Compute out = A·x, or Aᵀ·x, of NumPy's arrays: on torch's threads if A has many rows, for
    which OpenBLAS takes up to twice as long, and its own threads often sleep."""
    rows, columns = a.shape
    is_suited = rows >= MIN_SLENDER * columns > 0 and a.dtype.name in _SIZES
    is_contiguous = a.flags.c_contiguous and x.flags.c_contiguous
    if is_suited and is_contiguous and torch.get_num_threads() > 1 and is_ready():
        matrix = Matrix(a.ctypes.data, rows, columns, columns)
        y = Vector(out.ctypes.data, out.strides[0] // out.itemsize)
        name, factors = a.dtype.name, {"alpha": 1.0, "beta": 0.0}
        bind(name, matrix, x.ctypes.data, y, transposed=transposed, **factors)()
    else:
        np.matmul(a.T if transposed else a, x, out)


@final
class Matrix(NamedTuple):
    """A row-major matrix in memory; `row_stride` is in elements."""

    address: int
    rows: int
    columns: int
    row_stride: int


@final
class Vector(NamedTuple):
    """A vector in memory, and the distance of its elements in elements."""

    address: int
    step: int


def bind(
    dtype: str,
    a: Matrix,
    x: int,
    y: Vector,
    *,
    transposed: bool,
    alpha: Number | Callable[[], Number],
    beta: Number,
) -> Callable[[], None]:
    """Return a bound call of y = alpha · A·x + beta · y, or with Aᵀ if `transposed`.

    `dtype` is "float32" or "float64"; `x` is the address of a contiguous vector.
    """
    itemsize = _SIZES[dtype]
    parts = max(1, min(a.rows * a.columns * itemsize // PART_BYTES, MAX_PARTS, a.rows))
    by_columns = transposed and a.columns >= parts * LONG_PART
    pitch = -(-a.columns * itemsize // 64) * 64 // itemsize
    nbytes = (1 if by_columns else parts) * pitch * itemsize
    job = np.array([
        a.address, a.row_stride, a.rows, a.columns, x, y.address, y.step, parts, 0, 0, pitch,
        by_columns, 0, 0,
    ], np.int64)  # fmt: skip
    numbers, record = job.view(np.float64), int(job.ctypes.data)
    at = {name: i for i, name in enumerate(JOB)}
    numbers[at["alpha"]], numbers[at["beta"]] = (1.0 if callable(alpha) else alpha), beta
    share = CODE.address(f"{'columns' if transposed else 'rows'}_{dtype}")
    total = CODE.function(f"total_{dtype}") if transposed else None
    next_part, sums, scale = at["next_part"], at["sums"], at["alpha"]

    def run() -> None:
        job[next_part] = 0
        if callable(alpha):
            numbers[scale] = alpha()
        if total is None:
            run_on_threads(share, record, min(parts, torch.get_num_threads()))
            return
        job[sums] = thread_workspace(nbytes).data_ptr()
        run_on_threads(share, record, min(parts, torch.get_num_threads()))
        total(record)

    return run
