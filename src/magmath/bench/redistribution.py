"""`bench redistribute`: changes of layout, compared with Heat, Dask and a plain copy."""

from __future__ import annotations

from magmath.bench.case import PEERS, Bench, Case, Comparison, RunOptions, System, constant_mark

LAYOUTS = ("columns", "whole", "cyclic")
SIDE = 8192  # 256 MB of float32
REPEATS = 10


def _cases(options: RunOptions) -> list[Case]:
    return [_case(SIDE, layout) for layout in LAYOUTS]


def _case(side: int, layout: str) -> Case:
    nbytes = 4 * side * side
    return Case(
        name=f"{nbytes >> 20} MB, rows → {layout}",
        parameters={"side": side, "layout": layout, "repeats": REPEATS},
        work=nbytes * REPEATS / 1e9,
        unit="GB/s",
        group=layout,
        x=nbytes,
    )


def _systems(options: RunOptions) -> list[System]:
    n, peer = options.workers, f"{PEERS}.redistribution"
    contestant = "magmath.bench.contestants.redistribution:redistribution"
    return [
        System("magmath", contestant, settings={"workers": n}),
        System("copy", f"{peer}:copy"),
        System("Heat", f"{peer}:heat", peer="heat", processes=n, launcher="mpiexec"),
        System("Dask", f"{peer}:dask", peer="dask"),
    ]


def _comparisons(options: RunOptions) -> list[Comparison]:
    return [
        Comparison("copy", "magmath", ("copy",), constant_mark(0.7)),
        Comparison("peers", "magmath", ("Heat", "Dask"), constant_mark(1.5)),
    ]


BENCH = Bench(
    "redistribute", "an array into other layouts", "bytes", _cases, _systems, _comparisons
)
