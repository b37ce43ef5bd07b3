"""Products of a matrix and a vector, in compiled code on the threads of torch.

Such a product is as fast as its matrix can be read. A BLAS starts threads of its own for it, which
compete with those of torch for the processors, and waits for the slowest. Here the threads of torch
take shares of the rows from a counter. The shares do not depend on the number of threads, and their
sums are added in order, so neither does any bit of the result.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final

import numpy as np
import torch

from magmath.codegen.aot_cache import AotModule
from magmath.kernels.gemm_problem import GemmProblem, leading
from magmath.kernels.parallel_region import run_on_threads

DIVIDED_BYTES: Final = 1 << 18
"""Minimum bytes of a matrix that several threads read."""
SHARES: Final = 16
"""Number of shares of the rows of such a matrix."""
MOST_COLUMNS: Final = 1 << 14
"""Maximum number of columns that are summed over the rows: their sums should stay in the cache."""

JOB: Final = (
    "matrix", "rows", "columns", "pitch", "x", "x_step", "y", "y_step", "sums", "share",
    "next_row", "done",
)  # fmt: skip
"""The argument of the exported functions, 64-bit words: the address of a row-major matrix, its
extents and the distance between rows; the addresses of the vector and of the result, and the
distances between their elements, all in elements; the address of memory for the sums of each share;
the rows in a share; and the counters of rows and of completed shares."""

_SOURCE: Final = '''
def dots(job: int64[1], first: int64, last: int64):
    """Multiply rows by the vector, which is contiguous: four rows at a time."""
    x: {T}[1] = job[X]
    y: {T}[1] = job[Y]
    pitch = job[PITCH]
    step = job[Y_STEP]
    columns = job[COLUMNS]
    fours = first + ((last - first) >> 2 << 2)
    for i in range(first, fours, 4):
        place = job[MATRIX] + i * pitch * {itemsize}
        a: {T}[1] = place
        b: {T}[1] = place + pitch * {itemsize}
        c: {T}[1] = place + 2 * pitch * {itemsize}
        d: {T}[1] = place + 3 * pitch * {itemsize}
        p = {T}(0)
        q = {T}(0)
        r = {T}(0)
        s = {T}(0)
        for j in range(columns):
            p = p + a[j] * x[j]
            q = q + b[j] * x[j]
            r = r + c[j] * x[j]
            s = s + d[j] * x[j]
        y[i * step] = p
        y[(i + 1) * step] = q
        y[(i + 2) * step] = r
        y[(i + 3) * step] = s
    for i in range(fours, last):
        e: {T}[1] = job[MATRIX] + i * pitch * {itemsize}
        total = {T}(0)
        for j in range(columns):
            total = total + e[j] * x[j]
        y[i * step] = total

def add_rows(job: int64[1], first: int64, last: int64, place: int64):
    """Add rows, each times its element of the vector: eight rows at a time."""
    x: {T}[1] = job[X]
    sums: {T}[1] = place
    pitch = job[PITCH]
    step = job[X_STEP]
    columns = job[COLUMNS]
    for j in range(columns):
        sums[j] = 0
    eights = first + ((last - first) >> 3 << 3)
    for i in range(first, eights, 8):
        row = job[MATRIX] + i * pitch * {itemsize}
        a: {T}[1] = row
        b: {T}[1] = row + pitch * {itemsize}
        c: {T}[1] = row + 2 * pitch * {itemsize}
        d: {T}[1] = row + 3 * pitch * {itemsize}
        e: {T}[1] = row + 4 * pitch * {itemsize}
        f: {T}[1] = row + 5 * pitch * {itemsize}
        g: {T}[1] = row + 6 * pitch * {itemsize}
        h: {T}[1] = row + 7 * pitch * {itemsize}
        p = x[i * step]
        q = x[(i + 1) * step]
        r = x[(i + 2) * step]
        s = x[(i + 3) * step]
        t = x[(i + 4) * step]
        u = x[(i + 5) * step]
        v = x[(i + 6) * step]
        w = x[(i + 7) * step]
        for j in range(columns):
            upper = (a[j] * p + b[j] * q) + (c[j] * r + d[j] * s)
            lower = (e[j] * t + f[j] * u) + (g[j] * v + h[j] * w)
            sums[j] = sums[j] + (upper + lower)
    for i in range(eights, last):
        single: {T}[1] = job[MATRIX] + i * pitch * {itemsize}
        factor = x[i * step]
        for j in range(columns):
            sums[j] = sums[j] + single[j] * factor

def add_shares(job: int64[1], shares: int64):
    """Add the sums of all shares, in order."""
    y: {T}[1] = job[Y]
    sums: {T}[1] = job[SUMS]
    columns = job[COLUMNS]
    for share in range(1, shares):
        other: {T}[1] = job[SUMS] + share * columns * {itemsize}
        for j in range(columns):
            sums[j] = sums[j] + other[j]
    for j in range(columns):
        y[j * job[Y_STEP]] = sums[j]

def by_rows(record: int64):
    """Compute y = A x, one thread's shares."""
    job: int64[1] = record
    first = fetch_add(job, NEXT_ROW, job[SHARE])
    while first < job[ROWS]:
        dots(job, first, min(first + job[SHARE], job[ROWS]))
        first = fetch_add(job, NEXT_ROW, job[SHARE])

def by_columns(record: int64):
    """Compute y = Aᵀ x, one thread's shares; the last one to end adds the sums."""
    job: int64[1] = record
    shares = quotient(job[ROWS] + job[SHARE] - 1, job[SHARE])
    first = fetch_add(job, NEXT_ROW, job[SHARE])
    while first < job[ROWS]:
        place = job[SUMS] + quotient(first, job[SHARE]) * job[COLUMNS] * {itemsize}
        add_rows(job, first, min(first + job[SHARE], job[ROWS]), place)
        if fetch_add(job, DONE, 1) == shares - 1:
            add_shares(job, shares)
        first = fetch_add(job, NEXT_ROW, job[SHARE])
'''


@cache
def code(number: str) -> AotModule:
    """Return the compiled functions for float32 or float64, each with the address of a JOB."""
    return AotModule(
        _SOURCE.format(T=number, itemsize=np.dtype(number).itemsize),
        ("by_rows", "by_columns"),
        constants={name.upper(): i for i, name in enumerate(JOB)},
        arithmetic="fast",
    )


def takes(product: GemmProblem) -> bool:
    """Return True for the plain product of a vector and a matrix of contiguous rows or columns."""
    m, n, k = product.extents
    if product.out.ndim != 2 or not product.is_plain or 1 not in (m, n) or not k:
        return False
    matrix, x, _ = _operands(product)
    form = leading(matrix)
    if form is None:
        return False
    if form[0]:
        return matrix.shape[0] <= MOST_COLUMNS
    return x.stride(0) == 1 or len(x) == 1


def _operands(product: GemmProblem) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the matrix A and the vectors x and y of y = A x."""
    if product.extents[1] == 1:
        return product.a, product.b[:, 0], product.out[:, 0]
    return product.b.mT, product.a[0], product.out[0]


def bind(product: GemmProblem) -> Callable[[], object]:
    """Return a ready call that computes a product."""
    matrix, x, y = _operands(product)
    form = leading(matrix)
    assert form is not None
    turned, pitch = form
    rows, columns = matrix.shape[::-1] if turned else matrix.shape
    is_divided = matrix.numel() * matrix.itemsize >= DIVIDED_BYTES
    share = -(-rows // SHARES) if is_divided else rows
    sums = np.empty((-(-rows // share), columns), str(x.dtype).removeprefix("torch."))
    job = np.array([
        matrix.data_ptr(), rows, columns, pitch, x.data_ptr(), x.stride(0), y.data_ptr(),
        y.stride(0), sums.ctypes.data, share, 0, 0,
    ], np.int64)  # fmt: skip
    function = code(sums.dtype.name).address("by_columns" if turned else "by_rows")
    address = int(job.ctypes.data)

    def run() -> object:
        job[-2:] = 0
        run_on_threads(function, address, torch.get_num_threads() if is_divided else 1)
        return product, sums  # the addresses hold no reference

    return run
