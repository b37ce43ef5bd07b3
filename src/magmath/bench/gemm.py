"""`bench gemm`: C = A·B from every pair of layouts, compared with torch, NumPy, Heat and Dask."""

from __future__ import annotations

from itertools import product

from magmath.bench.case import PEERS, Bench, Case, Comparison, RunOptions, System, constant_mark

LAYOUTS = ("rows", "columns", "whole", "cyclic")
CUBE = (4096, 4096, 4096)
SKEWED = [(32768, 256, 1024), (256, 32768, 1024), (512, 512, 65536), (8192, 8192, 128)]  # m, n, k
FLOPS_PER_ROUND = 1e11


def _cases(options: RunOptions) -> list[Case]:
    cube = (2048,) * 3 if options.quick else CUBE
    pairs = list(product(LAYOUTS[: 2 if options.quick else None], repeat=2))
    cases = [_case(cube, "float32", *pair) for pair in pairs]
    if options.quick:
        return [*cases, *[_case(shape, "float32", "rows", "rows") for shape in SKEWED]]
    cases += [_case(cube, "float64", *pair) for pair in pairs]
    split = [pair for pair in pairs if "cyclic" not in pair]
    cases += [_case(s, d, *p) for s in SKEWED for d in ("float32", "float64") for p in split]
    return cases


def _case(shape: tuple[int, int, int], dtype: str, left: str, right: str) -> Case:
    m, n, k = shape
    repeats = max(1, round(FLOPS_PER_ROUND / (2 * m * n * k)))
    return Case(
        name=f"{m}×{n}×{k} {dtype}, {left} @ {right}",
        parameters={
            "shape": list(shape),
            "dtype": dtype,
            "layouts": [left, right],
            "repeats": repeats,
        },
        work=2 * m * n * k * repeats / 1e9,
        unit="GFLOP/s",
        group=f"{dtype}, {left} @ {right}",
        x=2.0 * m * n * k,
    )


def _systems(options: RunOptions) -> list[System]:
    n = options.workers
    return [
        System("magmath", "magmath.bench.contestants.gemm:gemm", settings={"workers": n}),
        System("torch", f"{PEERS}.gemm:torch_mm", peer="torch"),
        System("NumPy", f"{PEERS}.gemm:numpy_matmul", peer="numpy"),
        System("Heat", f"{PEERS}.gemm:heat_matmul", peer="heat", processes=n, launcher="mpiexec"),
        System("Dask", f"{PEERS}.gemm:dask_matmul", peer="dask"),
    ]


def _comparisons(options: RunOptions) -> list[Comparison]:
    return [
        Comparison("torch", "magmath", ("torch",), constant_mark(0.95)),
        Comparison("others", "magmath", ("NumPy", "Heat", "Dask"), constant_mark(1.0)),
    ]


BENCH = Bench("gemm", "matrix products from every layout", "flops", _cases, _systems, _comparisons)
