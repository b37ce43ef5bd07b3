"""Calibration of single operations: their kernels, as programs call them, at three sizes.

Each expression is run in a profile, so the measured calls are those of users' programs. An
expression may consist of several operations, all of which count. A small size gives the fixed time
of a call, a middle one the speed in a cache, a large one the speed in memory.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from statistics import median
from typing import Any, Final, NamedTuple

import magmath as mm
from magmath.cost import Machine, OperationRate
from magmath.cost.operation_rate import COUNTED_IN_FLOPS
from magmath.diagnostics.explanation import ExplainedStep

SIZES: Final = (64, 1 << 14, 1 << 22)
"""Elements of the arrays for the fixed time, the speed in a cache, and the speed in memory."""
MATRICES: Final = (4, 96, 384)
"""Rows and columns of square matrices for the same."""
LEAST_RUNS: Final = 2
MOST_RUNS: Final = 10
RUN_SECONDS: Final = 0.03
"""Further runs of an expression at one size begin within this time."""
PRODUCTS: Final = ("gemm", "contract")
"""Operations with rates of their own (`GemmRate`)."""


class Operands(NamedTuple):
    """Vectors of n elements: numbers in 0.5 … 1.5, masks, indices; and a matrix of n elements."""

    x: Any
    y: Any
    mask: Any
    index: Any
    matrix: Any


def _written(o: Operands) -> Any:
    """Assign a row, a slice, and where a mask is true."""
    a = o.matrix + 0.0
    a[1] = 2.0
    a[1:-1, 1:-1] = o.matrix[2:, 2:]
    return a


VECTORS: Final[Mapping[str, Callable[[Operands], Any]]] = {
    "add": lambda o: o.x + o.y,
    "subtract": lambda o: o.x - o.y,
    "multiply": lambda o: o.x * o.y,
    "divide": lambda o: o.x / o.y,
    "negative": lambda o: -o.x,
    "square": lambda o: mm.square(o.x),
    "sqrt": lambda o: mm.sqrt(o.x),
    "exp": lambda o: mm.exp(o.x),
    "log": lambda o: mm.log(o.x),
    "sin": lambda o: mm.sin(o.x),
    "tanh": lambda o: mm.tanh(o.x),
    "power": lambda o: o.x**1.5,
    "hypot": lambda o: mm.hypot(o.x, o.y),
    "logaddexp": lambda o: mm.logaddexp(o.x, o.y),
    "maximum": lambda o: mm.maximum(o.x, o.y),
    "minimum": lambda o: mm.minimum(o.x, o.y),
    "absolute": lambda o: mm.abs(o.x),
    "less": lambda o: o.x < o.y,
    "equal": lambda o: o.index == 3,
    "not_equal": lambda o: o.x != o.y,
    "isfinite": lambda o: mm.isfinite(o.x),
    "where": lambda o: mm.where(o.mask, o.x, o.y),
    "bitwise_and": lambda o: o.mask & ~o.mask,
    "bitwise_or": lambda o: o.mask | o.mask,
    "astype": lambda o: mm.astype(o.index, mm.float64),
    "real": lambda o: mm.real(mm.fft.fft(o.x)),
    "sum": lambda o: mm.sum(o.x),
    "sum of rows": lambda o: mm.sum(o.matrix, axis=1),
    "sum of columns": lambda o: mm.sum(o.matrix, axis=0),
    "max": lambda o: mm.max(o.x),
    "max of rows": lambda o: mm.max(o.matrix, axis=1),
    "min": lambda o: mm.min(o.matrix, axis=0),
    "any": lambda o: mm.any(o.mask),
    "all": lambda o: mm.all(o.mask),
    "argmin": lambda o: mm.argmin(o.matrix, axis=1),
    "argmax": lambda o: mm.argmax(o.x),
    "cumulative_sum": lambda o: mm.cumulative_sum(o.x),
    "concat": lambda o: mm.concat([o.x, o.y]),
    "permute_dims": lambda o: mm.permute_dims(o.matrix, (1, 0)) + 0.0,
    "slice": lambda o: o.matrix[1:-1, 1:-1] + o.matrix[:-2, 2:],
    "window": lambda o: [o.matrix[i] for i in range(2)],
    "take": lambda o: mm.take(o.x, o.index),
    "compress": lambda o: o.x[o.mask],
    "scatter_add": lambda o: mm.bincount(o.index, weights=o.x, minlength=64),
    "sort": lambda o: mm.sort(o.x),
    "argsort": lambda o: mm.argsort(o.x),
    "fft_c2c": lambda o: mm.fft.fft(o.x + 1j * o.y),
    "uniform": lambda o: mm.random.uniform(shape=o.x.shape),
    "normal": lambda o: mm.random.normal(shape=o.x.shape),
    "set_slice": _written,
    "iota": lambda o: mm.arange(o.x.shape[0]) + 0,
}  # fmt: skip
"""Expressions on vectors, each named by the operation that it is there for."""


SQUARES: Final[Mapping[str, Callable[[Any], Any]]] = {
    "lu": lambda a: mm.linalg.solve(a, a[:, 0]),
    "cholesky": mm.linalg.cholesky,
    "eigh": mm.linalg.eigh,
    "qr": mm.linalg.qr,
    "svd": mm.linalg.svdvals,
}
"""Expressions on a symmetric positive definite matrix."""
Sample = tuple[float, float]
"""Seconds of a call, and its work."""


def operation_rates(machine: Machine, threads: int) -> Iterator[OperationRate]:
    """Yield the rates of operations in an inline worker with this number of threads."""
    found: list[dict[str, list[Sample]]] = []
    with mm.init(workers=0, device="cpu", threads=threads):
        for size, rows in zip(SIZES, MATRICES, strict=True):
            samples: dict[str, list[Sample]] = defaultdict(list)
            for work in _expressions(size, rows):
                for step in _fastest(work):
                    samples[step.operation].append((step.measured or 0.0, _work(step)))
            found.append(samples)
    yield from _rates(found, machine.call_seconds, threads)


def _work(step: ExplainedStep) -> float:
    return step.flops if step.operation in COUNTED_IN_FLOPS else step.touched


def _expressions(size: int, rows: int) -> Iterator[Callable[[], Any]]:
    """Yield expressions on operands of `size` elements, and on matrices of `rows` rows."""
    columns = 1 << (size.bit_length() - 1) // 2
    random = mm.random.Generator(0)
    x = random.uniform(0.5, 1.5, shape=(size,), dtype=mm.float64)
    operands = Operands(
        x,
        random.uniform(0.5, 1.5, shape=(size,), dtype=mm.float64),
        x > 1.0,
        mm.astype((x - 0.5) * 63.0, mm.int64),
        mm.reshape(x, (size // columns, columns)),
    )
    square = random.uniform(0.0, 1.0, shape=(rows, rows), dtype=mm.float64)
    square = square @ square.T + rows * mm.eye(rows, dtype=mm.float64)
    mm.evaluate(*operands, square, wait=True)
    for expression in VECTORS.values():
        yield partial(expression, operands)
    for decomposition in SQUARES.values():
        yield partial(decomposition, square)


def _fastest(work: Callable[[], Any]) -> list[ExplainedStep]:
    """Return the instructions of an expression, as the fastest of some runs executes them."""
    best: list[ExplainedStep] = []
    least, runs, end = float("inf"), 0, time.perf_counter() + RUN_SECONDS
    while runs < LEAST_RUNS or (runs < MOST_RUNS and time.perf_counter() < end):
        with mm.profile() as profile:
            mm.evaluate(*_arrays(work()), wait=True)
        steps = list(profile.steps)
        seconds = sum(step.measured or 0.0 for step in steps)
        if seconds < least:
            best, least = steps, seconds
        runs += 1
    return best


def _arrays(result: Any) -> list[Any]:
    if isinstance(result, (tuple, list)):
        return [array for part in result for array in _arrays(part)]
    return [result]


def _rates(
    found: Iterable[Mapping[str, list[Sample]]], call: float, threads: int
) -> Iterator[OperationRate]:
    """Yield the rates that follow from the samples of small, middle and large operands."""
    small, middle, large = found
    for name in sorted({*middle, *large} & small.keys()):
        if name in PRODUCTS:
            continue
        fixed = max(0.0, median([seconds for seconds, _ in small[name]]) - call)
        cached = _slope(middle.get(name, []), fixed + call)
        streaming = _slope(large.get(name, []), fixed + call)
        known = [one for one in (cached, streaming) if one is not None] or [0.0]
        yield OperationRate(name, threads, fixed, known[0], known[-1])


def _slope(samples: list[Sample], fixed: float) -> float | None:
    """Return the median seconds per unit of work; None without work."""
    found = [max(0.0, seconds - fixed) / work for seconds, work in samples if work > 0]
    return median(found) if found else None
