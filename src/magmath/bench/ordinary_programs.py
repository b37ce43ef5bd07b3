"""`bench programs`: ordinary NumPy programs at three sizes, compared with NumPy and its relatives.

The texts are in `bench/numpy_programs/`, one in each file.
"""

from __future__ import annotations

from collections.abc import Callable

from magmath.bench import numpy_programs
from magmath.bench.case import PEERS, Bench, Case, Comparison, RunOptions, System

OWN = "magmath.bench.contestants.ordinary_programs:program"
BYTES = {"small": 100e3, "middle": 10e6, "large": 400e6}
REPEATS = {"small": 20, "middle": 1, "large": 1}


def _cases(options: RunOptions) -> list[Case]:
    sizes = numpy_programs.SIZES[:2] if options.quick else numpy_programs.SIZES
    return [_case(name, size) for size in sizes for name in numpy_programs.NAMES]


def _case(name: str, size: str) -> Case:
    return Case(
        name=f"{name}, {size}",
        parameters={"program": name, "size": size, "repeats": REPEATS[size]},
        work=float(REPEATS[size]),
        unit="s",
        group=size,
        x=BYTES[size],
    )


def _has(variant: str) -> Callable[[Case], str]:
    """Return the function that returns the reason why a library has no variant of a program."""

    def reason(case: Case) -> str:
        module = numpy_programs.load(case.parameters["program"])
        return "" if numpy_programs.variant(module, variant) else "the program has no such variant"

    return reason


def _peer(name: str, factory: str, peer: str, variant: str) -> System:
    return System(
        name, f"{PEERS}.ordinary_programs:{factory}", peer=peer, unsupported_reason=_has(variant)
    )


def _systems(options: RunOptions) -> list[System]:
    n = options.workers
    return [
        System("magmath", OWN, settings={"workers": 0}),
        System("magmath, 1 worker", OWN, settings={"workers": 1}),
        System(f"magmath, {n} workers", OWN, settings={"workers": n}),
        _peer("NumPy", "numpy", "numpy", "main"),
        _peer("NumPy + SciPy", "scipy", "scipy", "with_scipy"),
        _peer("NumPy + numexpr", "numexpr", "numexpr", "with_numexpr"),
        _peer("JAX jit", "jax", "jax", "JAX"),
        _peer("Dask", "dask", "dask", "DASK"),
    ]


def _marks(small: float | None, mark_of_others: float | None) -> Callable[[Case], float | None]:
    return lambda case: small if case.group == "small" else mark_of_others


def _comparisons(options: RunOptions) -> list[Comparison]:
    several = f"magmath, {options.workers} workers"
    libraries = ("NumPy", "NumPy + SciPy", "NumPy + numexpr", "JAX jit", "Dask")
    return [
        Comparison("NumPy / magmath", "magmath", ("NumPy",), _marks(0.5, 1.0)),
        Comparison("NumPy / workers", several, ("NumPy",), _marks(0.5, 0.9)),
        Comparison("magmath / workers", several, ("magmath",), _marks(None, 1.0)),
        Comparison("best / magmath", "magmath", libraries, _marks(None, None)),
    ]


BENCH = Bench(
    "programs",
    "ordinary NumPy programs",
    "bytes of the largest array",
    _cases,
    _systems,
    _comparisons,
    plot="ratios and growth",
)
