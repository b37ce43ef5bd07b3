"""`bench scaling`: several workers of one thread each, compared with one worker with all
threads."""

from __future__ import annotations

from magmath.bench.case import Bench, Case, Comparison, RunOptions, System, constant_mark
from magmath.bench.layers import training_case
from magmath.bench.parallel import SHAPES


def _cases(options: RunOptions) -> list[Case]:
    return [training_case(*shape) for shape in SHAPES[: 2 if options.quick else None]]


def _systems(options: RunOptions) -> list[System]:
    own = "magmath.bench.contestants.mlp:mlp"
    return [
        System(_several(options), own, settings={"workers": options.workers}),
        System("1 worker", own, settings={"workers": 0}),
    ]


def _comparisons(options: RunOptions) -> list[Comparison]:
    return [Comparison("1 worker", _several(options), ("1 worker",), constant_mark(0.9))]


def _several(options: RunOptions) -> str:
    return f"{options.workers} workers"


BENCH = Bench(
    "scaling",
    "throughput of several workers over one, same cores",
    "layers",
    _cases,
    _systems,
    _comparisons,
)
