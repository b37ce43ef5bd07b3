"""`bench fft`: Fourier transforms of arrays that are split by rows, compared with torch and
SciPy."""

from __future__ import annotations

import math

from magmath.bench.case import PEERS, Bench, Case, Comparison, RunOptions, System, constant_mark

BATCH, PLANE, CUBE, LINE = (4096, 4096), (4096, 4096), (256, 256, 256), (1 << 24,)
ROUND_FLOPS = 4e9  # at least, of a round


def _cases(options: RunOptions) -> list[Case]:
    types = ("complex64", "float32") if options.quick else ("complex64", "float32", "complex128")
    shapes = [("rows", BATCH, 1), ("plane", PLANE, 2), ("cube", CUBE, 3), ("line", LINE, 1)]
    return [_case(*shape, dtype) for shape in shapes for dtype in types]


def _case(name: str, shape: tuple[int, ...], axes: int, dtype: str) -> Case:
    """Return a transform over the last axes; 5 n log₂ n operations each, half of that for real
    ones."""
    real = 1.0 if dtype.startswith("complex") else 0.5
    flops = real * 5.0 * math.prod(shape) * math.log2(math.prod(shape[-axes:]))
    repeats = max(1, round(ROUND_FLOPS / flops))
    size = "×".join(map(str, shape))
    return Case(
        name=f"{name}, {size} {dtype}",
        parameters={"shape": list(shape), "axes": axes, "dtype": dtype, "repeats": repeats},
        work=flops * repeats / 1e9,
        unit="GFLOP/s",
        group=name,
        x=math.prod(shape),
    )


def _systems(options: RunOptions) -> list[System]:
    contestant = "magmath.bench.contestants.fft:transform"
    return [
        System("magmath", contestant, settings={"workers": options.workers}),
        System("torch", f"{PEERS}.fft:torch_fft", peer="torch"),
        System("SciPy", f"{PEERS}.fft:scipy_fft", peer="scipy"),
    ]


def _comparisons(options: RunOptions) -> list[Comparison]:
    return [Comparison("best", "magmath", ("torch", "SciPy"), constant_mark(1.0))]


BENCH = Bench("fft", "Fourier transforms", "elements", _cases, _systems, _comparisons)
