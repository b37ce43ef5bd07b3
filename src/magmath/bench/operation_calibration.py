"""Calibration of single operations: their kernels, as programs call them, at several sizes.

Each expression is run in a profile, so the measured calls are those of users' programs. An
expression may consist of several operations, all of which count. The smallest size gives the fixed
time of a call, the others the speeds in caches and in memory.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from statistics import median
from typing import Any, Final, NamedTuple, final

import magmath as mm
from magmath.cost import Machine, OperationRate
from magmath.cost.operation_rate import is_counted_in_flops
from magmath.diagnostics.explanation import ExplainedInstruction

SIZES: Final = (64, 1 << 14, 1 << 19, 1 << 22)
"""Elements of the arrays for the fixed time, and for the speeds in caches and in memory."""
MATRICES: Final = (4, 96, 256, 768)
"""Rows and columns of square matrices for the same."""
IMAGES: Final = ((1, 8, 4), (2, 32, 16), (4, 64, 28), (8, 128, 28))
"""Images, their channels, and their rows and columns, for the same of convolutions."""
MIN_BYTES: Final = 10_000
"""Bytes from which a call says something about a speed."""
MIN_RUNS: Final = 2
MAX_RUNS: Final = 20
RUN_SECONDS: Final = 0.03
"""Further runs of an expression at one size begin within this time."""
PRODUCT: Final = "gemm"
"""The operation with rates of its own (`GemmRate`)."""


@final
class Operands(NamedTuple):
    """Vectors of n elements: numbers in 0.5 … 1.5, masks, numbers of 64 groups, indices in random
    order; and the numbers as a matrix, and as rows of eight, with a mask of these."""

    x: Any
    y: Any
    mask: Any
    group: Any
    index: Any
    matrix: Any
    rows: Any
    row_mask: Any


def _write_parts(o: Operands) -> Any:
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
    "equal": lambda o: o.group == 3,
    "not_equal": lambda o: o.x != o.y,
    "isfinite": lambda o: mm.isfinite(o.x),
    "where": lambda o: mm.where(o.mask, o.x, o.y),
    "bitwise_and": lambda o: o.mask & ~o.mask,
    "bitwise_or": lambda o: o.mask | o.mask,
    "astype": lambda o: mm.astype(o.group, mm.float64),
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
    "dynamic_slice": lambda o: [o.matrix[i] for i in range(2)],
    "long window": lambda o: o.x[3 : o.x.shape[0] // 2 + 3],
    "take": lambda o: mm.take(o.x, o.index),
    "compress": lambda o: o.x[o.mask],
    "compress rows": lambda o: o.rows[o.row_mask],
    "sum of short rows": lambda o: mm.sum(o.rows, axis=1),
    "max of short rows": lambda o: mm.max(o.rows, axis=1),
    "min of short rows": lambda o: mm.min(o.rows, axis=1),
    "argmin of short rows": lambda o: mm.argmin(o.rows, axis=1),
    "argmax of short rows": lambda o: mm.argmax(o.rows, axis=1),
    "contract": lambda o: o.matrix @ o.x[: o.matrix.shape[1]],
    "take rows": lambda o: mm.take(o.rows, o.index[: o.rows.shape[0]] // 8, axis=0),
    "scatter_add": lambda o: mm.bincount(o.group, weights=o.x, minlength=64),
    "sort": lambda o: mm.sort(o.x),
    "argsort": lambda o: mm.argsort(o.x),
    "fft_c2c": lambda o: mm.fft.fft(o.x + 1j * o.y),
    "uniform": lambda o: mm.random.uniform(shape=o.x.shape),
    "normal": lambda o: mm.random.normal(shape=o.x.shape),
    "set_slice": _write_parts,
    "iota": lambda o: mm.arange(o.x.shape[0]) + 0,
}  # fmt: skip
"""Expressions on vectors, each named by the operation that it is there for."""


SQUARES: Final[Mapping[str, Callable[[Any], Any]]] = {
    "lu": lambda a: mm.linalg.solve(a, a[:, 0]),
    "cholesky": mm.linalg.cholesky,
    "eigh": mm.linalg.eigh,
    "qr": mm.linalg.qr,
    "svd": mm.linalg.svd,
    "svdvals": mm.linalg.svdvals,
}
"""Expressions on a symmetric positive definite matrix."""


def _convolution(images: Any, filters: Any, **options: Any) -> Any:
    """Return a convolution and its gradients."""
    result = mm.nn.functional.conv(images, filters, **options)
    return result, *mm.grad(mm.sum(mm.square(result)), [images, filters])


CONVOLUTIONS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "correlation of 3×3 elements": lambda x, w: _convolution(x, w, padding="same"),
    "correlation": lambda x, w: _convolution(x, w, stride=2),
    "correlation, 1×1": lambda x, w: _convolution(x, w[:, :, :1, :1]),
    "correlation of groups": lambda x, w: _convolution(x, w[:, :1], groups=w.shape[0]),
}
"""Expressions on images and filters of 3×3 elements."""


@final
class Sample(NamedTuple):
    """The least seconds of a call, its work, and the bytes that it touches."""

    seconds: float
    work: float
    nbytes: float


def operation_rates(machine: Machine, threads: int) -> Iterator[OperationRate]:
    """Yield the rates of operations in an inline worker with this number of threads."""
    with mm.init(workers=0, device="cpu", threads=threads):
        sizes = zip(SIZES, MATRICES, IMAGES, strict=True)
        samples_of_sizes = [_samples_of_size(*size) for size in sizes]
    yield from _rates(samples_of_sizes, machine.call_seconds, threads)


def _samples_of_size(size: int, rows: int, images: tuple[int, int, int]) -> dict[str, list[Sample]]:
    """Return the samples of all expressions by the names of their operations."""
    samples: dict[str, list[Sample]] = defaultdict(list)
    for work in (*_expressions(size, rows), *_convolutions(*images)):
        for name, sample in _samples(work):
            samples[name].append(sample)
    return samples


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
        mm.argsort(x),
        mm.reshape(x, (size // columns, columns)),
        mm.reshape(x, (size // 8, 8)),
        x[: size // 8] > 1.0,
    )
    square = random.uniform(0.0, 1.0, shape=(rows, rows), dtype=mm.float64)
    square = square @ square.T + rows * mm.eye(rows, dtype=mm.float64)
    mm.evaluate(*operands, square, wait=True)
    for expression in VECTORS.values():
        yield partial(expression, operands)
    for decomposition in SQUARES.values():
        yield partial(decomposition, square)


def _convolutions(count: int, channels: int, extent: int) -> Iterator[Callable[[], Any]]:
    """Yield convolutions of images with as many outputs as channels."""
    random = mm.random.Generator(0)
    images = random.normal(shape=(count, channels, extent, extent), dtype=mm.float32)
    filters = random.normal(shape=(channels, channels, 3, 3), dtype=mm.float32)
    mm.evaluate(images, filters, wait=True)
    for expression in CONVOLUTIONS.values():
        yield partial(expression, images, filters)


def _samples(work: Callable[[], Any]) -> Iterator[tuple[str, Sample]]:
    """Yield the names and samples of the calls of an expression: the least of some runs."""
    best: list[ExplainedInstruction] = []
    runs, end = 0, time.perf_counter() + RUN_SECONDS
    while runs < MIN_RUNS or (runs < MAX_RUNS and time.perf_counter() < end):
        with mm.profile() as profile:
            mm.evaluate(*_arrays(work()), wait=True)
        steps = list(profile.instructions)
        best = steps if len(best) != len(steps) else list(map(_faster, best, steps))
        runs += 1
    for step in best:
        if step.rate:
            flops = is_counted_in_flops(step.operation)
            units = step.flops if flops else step.touched
            yield step.rate, Sample(step.measured or 0.0, units, step.touched)


def _faster(first: ExplainedInstruction, second: ExplainedInstruction) -> ExplainedInstruction:
    return min(first, second, key=lambda step: step.measured or 0.0)


def _arrays(result: Any) -> list[Any]:
    if isinstance(result, (tuple, list)):
        return [array for part in result for array in _arrays(part)]
    return [result]


def _rates(
    samples_of_sizes: Iterable[Mapping[str, list[Sample]]], call: float, threads: int
) -> Iterator[OperationRate]:
    """Yield the rates that follow from the samples of small and of larger operands."""
    small, *larger = samples_of_sizes
    for name in sorted({name for samples in larger for name in samples} & small.keys()):
        if name == PRODUCT:
            continue
        fixed = max(0.0, min([sample.seconds for sample in small[name]]) - call)
        speeds = [_speed(samples.get(name, []), fixed + call) for samples in larger]
        known = sorted({speed for speed in speeds if speed is not None})
        yield OperationRate(name, threads, fixed, tuple(known))


def _speed(samples: list[Sample], fixed: float) -> tuple[float, float] | None:
    """Return the medians of the touched bytes and of the seconds per unit of work; None without
    work."""
    large = [sample for sample in samples if sample.work > 0 and sample.nbytes >= MIN_BYTES]
    if not large:
        return None
    seconds = [max(0.0, sample.seconds - fixed) / sample.work for sample in large]
    return median([sample.nbytes for sample in large]), median(seconds)
