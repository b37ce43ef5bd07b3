"""The benchmarks: magmath beside its peers, in turns, on the same cores and the same data.

A benchmark is a table of cases and of systems (`case.py`); the runner gives every system a process
of its own and lets each run one round at a time (`runner.py`); `peers/` holds the other frameworks,
`own.py` magmath's side, written with the public names.
"""

from __future__ import annotations

from magmath.bench import (
    collectives,
    elementwise,
    fft,
    gemm,
    layers,
    linalg,
    overlap,
    parallel,
    redistribute,
    scaling,
    startup,
)
from magmath.bench.case import Bench, RunOptions

BENCHES: dict[str, Bench] = {
    bench.name: bench
    for bench in (
        layers.BENCH,
        parallel.BENCH,
        scaling.BENCH,
        collectives.BENCH,
        overlap.BENCH,
        gemm.BENCH,
        fft.BENCH,
        redistribute.BENCH,
        elementwise.BENCH,
        linalg.BENCH,
        startup.BENCH,
    )
}

__all__ = ["BENCHES", "Bench", "RunOptions"]
