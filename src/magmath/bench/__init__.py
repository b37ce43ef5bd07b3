"""Benchmarks of magmath against its peers: interleaved rounds on the same cores and the same data.

A benchmark is a table of cases and of systems (`case.py`); the runner starts each system in its own
process and runs one round of each in turn (`runner.py`); `peers/` contains the other frameworks,
`contestants/` magmath's side, written with the public names.
"""

from __future__ import annotations

from magmath.bench import (
    cnn,
    collectives,
    convolution,
    elementwise,
    fft,
    gemm,
    infer,
    layers,
    linalg,
    ordinary_programs,
    overlap,
    parallel,
    passes,
    planning,
    precision,
    redistribution,
    scaling,
    sequences,
    simulate,
    startup,
)
from magmath.bench.case import Bench, RunOptions

BENCHES: dict[str, Bench] = {
    bench.name: bench
    for bench in (
        ordinary_programs.BENCH,
        layers.BENCH,
        cnn.BENCH,
        infer.BENCH,
        precision.BENCH,
        sequences.BENCH,
        parallel.BENCH,
        scaling.BENCH,
        collectives.BENCH,
        overlap.BENCH,
        gemm.BENCH,
        convolution.BENCH,
        convolution.LARGE_FILTERS_BENCH,
        fft.BENCH,
        redistribution.BENCH,
        elementwise.BENCH,
        linalg.BENCH,
        startup.BENCH,
        planning.BENCH,
        simulate.BENCH,
        passes.BENCH,
    )
}

__all__ = ["BENCHES", "Bench", "RunOptions"]
