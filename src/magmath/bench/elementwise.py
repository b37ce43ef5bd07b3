"""`bench elementwise`: a long expression, and a short update many times, compared with numexpr."""

from __future__ import annotations

from collections.abc import Callable

from magmath.bench.case import PEERS, Bench, Case, Comparison, RunOptions, System

OWN = "magmath.bench.contestants.elementwise"
LONG, SHORT = 10_000_000, 1024


def _cases(options: RunOptions) -> list[Case]:
    return [
        _case("large", "sqrt(a*a + b*b)*c - d", LONG, 5 if options.quick else 20),
        _case("small", "x += 2*y", SHORT, 20_000 if options.quick else 100_000),
    ]


def _case(kind: str, expression: str, extent: int, repeats: int) -> Case:
    return Case(
        name=f"{expression}, {extent:,} float32, {repeats:,} times",
        parameters={"kind": kind, "extent": extent, "repeats": repeats},
        work=float(repeats),
        unit="s",
        group=expression,
        x=extent,
    )


def _systems(options: RunOptions) -> list[System]:
    n = options.workers
    return [
        System("magmath", f"{OWN}:eager", settings={"workers": 0}),
        System("magmath compiled", f"{OWN}:compiled", settings={"workers": 0}),
        System("magmath loop", f"{OWN}:loop", settings={"workers": 0}),
        System(f"magmath, {n} workers", f"{OWN}:eager", settings={"workers": n}),
        System("NumPy", f"{PEERS}.elementwise:numpy", peer="numpy"),
        System("numexpr", f"{PEERS}.elementwise:numexpr", peer="numexpr"),
        System("PyTorch eager", f"{PEERS}.elementwise:torch_eager", peer="torch"),
        System("PyTorch compiled", f"{PEERS}.elementwise:torch_compiled", peer="torch"),
    ]


def _mark(kind: str, mark: float) -> Callable[[Case], float | None]:
    return lambda case: mark if case.parameters["kind"] == kind else None


def _comparisons(options: RunOptions) -> list[Comparison]:
    several = f"magmath, {options.workers} workers"
    return [
        Comparison("numexpr / eager", "magmath", ("numexpr",), _mark("large", 1.3)),
        Comparison("numexpr / workers", several, ("numexpr",), _mark("large", 1.3)),
        Comparison("NumPy / eager", "magmath", ("NumPy",), _mark("small", 1 / 10)),
        Comparison("NumPy / compiled", "magmath compiled", ("NumPy",), _mark("small", 1 / 4)),
        Comparison("NumPy / loop", "magmath loop", ("NumPy",), _mark("small", 1.0)),
    ]


BENCH = Bench(
    "elementwise",
    "an expression on long arrays, an update of a short one",
    "elements",
    _cases,
    _systems,
    _comparisons,
)
