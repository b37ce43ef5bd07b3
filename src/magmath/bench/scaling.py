"""`bench scaling`: several workers of one thread each, compared with one worker with all
threads."""

from __future__ import annotations

from magmath.bench.case import Bench, Comparison, RunOptions, System, constant_mark
from magmath.bench.parallel import OWN, strategy_cases


def _systems(options: RunOptions) -> list[System]:
    return [
        System(_several(options), OWN, settings={"workers": options.workers}),
        System("1 worker", OWN, settings={"workers": 0}),
    ]


def _comparisons(options: RunOptions) -> list[Comparison]:
    return [Comparison("1 worker", _several(options), ("1 worker",), constant_mark(0.9))]


def _several(options: RunOptions) -> str:
    return f"{options.workers} workers"


BENCH = Bench(
    "scaling",
    "throughput of several workers over one, same cores",
    "layers",
    strategy_cases,
    _systems,
    _comparisons,
)
