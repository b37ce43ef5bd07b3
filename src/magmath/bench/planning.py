"""`bench plan`: processor seconds from a traced training step to its program, for each strategy.

A row shows the seconds per layer of a network, or per node of an expression, which stay the same
along a group where planning is linear. The notes show the number of nodes, the seconds of each
stage, and the wall seconds of the first run, in which workers bind the program and choose kernels,
apart.
"""

from __future__ import annotations

from magmath.bench.case import Bench, Case, Comparison, RunOptions, System, constant_mark

LAYERS = (10, 40, 160)
NODES = (150, 1500)
WORKERS = (0, 2, 4)


def _cases(options: RunOptions) -> list[Case]:
    layers, workers = (LAYERS[:2], WORKERS[:2]) if options.quick else (LAYERS, WORKERS)
    trained = [
        _case("mlp", count, w, f"MLP of {count} layers") for w in workers for count in layers
    ]
    eager = [
        _case("eager", count, w, f"graph of {count} nodes") for w in workers for count in NODES
    ]
    return [*trained, *eager]


def _case(kind: str, count: int, workers: int, title: str) -> Case:
    return Case(
        name=f"{title}, {workers} workers",
        parameters={"what": kind, "count": count, "workers": workers},
        work=float(count),
        unit="s",
        group=f"{kind}, {workers} workers",
        x=count,
    )


def _unable_to_choose(case: Case) -> str:
    """Return why a strategy does not apply to a case; the strategy "data" stands for none."""
    return "an expression has no strategy" if case.parameters["what"] == "eager" else ""


def _systems(options: RunOptions) -> list[System]:
    # A list of the benchmarks does not need the strategies.
    from magmath.parallel.strategy_table import STRATEGIES

    factory = "magmath.bench.contestants.planning:plan"
    strategies = [name for name in STRATEGIES if name != "data"]
    strategies += ["hybrid", "weight-averaging"]  # with settings, which the contestant chooses
    return [
        System("data", factory, settings={"strategy": "data"}),
        *[
            System(name, factory, settings={"strategy": name}, unsupported_reason=_unable_to_choose)
            for name in strategies
        ],
    ]


def _comparisons(options: RunOptions) -> list[Comparison]:
    return [Comparison("data / auto", "auto", ("data",), constant_mark(0.5))]


BENCH = Bench(
    "plan",
    "planning: from a traced step to its program, per layer or node",
    "layers or nodes",
    _cases,
    _systems,
    _comparisons,
)
