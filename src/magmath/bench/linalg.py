"""`bench linalg`: factorizations and solutions, compared with NumPy, torch and Heat."""

from __future__ import annotations

from magmath.bench.case import PEERS, Bench, Case, Comparison, RunOptions, System

FUNCTIONS = ("cholesky", "qr", "solve", "eigh", "svd", "inv", "det")
SIZES = (1000, 2000, 4000)
TALL = (200_000, 100)
SECONDS_AT_1000 = {"cholesky": 0.01, "qr": 0.04, "solve": 0.01, "eigh": 0.08, "svd": 0.2}
ROUND_SECONDS = 0.5  # at least, of a round


def _cases(options: RunOptions) -> list[Case]:
    sizes = SIZES[:2] if options.quick else SIZES
    types = ("float64",) if options.quick else ("float32", "float64")
    square = [_case(f, (n, n), d) for d in types for f in FUNCTIONS for n in sizes]
    return [*square, *[_case("qr", TALL, dtype) for dtype in types]]


def _case(function: str, shape: tuple[int, int], dtype: str) -> Case:
    m, n = shape
    seconds = SECONDS_AT_1000.get(function, 0.02) * m * n * n / 1e9
    repeats = max(1, round(ROUND_SECONDS / seconds))
    return Case(
        name=f"{function} {m}×{n} {dtype}",
        parameters={
            "function": function,
            "shape": list(shape),
            "dtype": dtype,
            "repeats": repeats,
        },
        work=repeats,
        unit="s",
        group=f"{function} {dtype}",
        x=n,
    )


def _systems(options: RunOptions) -> list[System]:
    n = options.workers
    return [
        System("magmath", "magmath.bench.contestants.linalg:linalg", settings={"workers": n}),
        System("NumPy", f"{PEERS}.linalg:numpy_linalg", peer="numpy"),
        System("torch", f"{PEERS}.linalg:torch_linalg", peer="torch"),
        System(
            "Heat",
            f"{PEERS}.linalg:heat_linalg",
            peer="heat",
            processes=n,
            launcher="mpiexec",
            settings={"calls": 1},
            unsupported_reason=_beyond_heat,
        ),
    ]


def _beyond_heat(case: Case) -> str:
    """Return why Heat skips a case; its inverse of 1000 columns takes ten seconds."""
    function = case.parameters["function"]
    if function == "cholesky":
        return "Heat has no Cholesky factorization"
    if function == "solve":
        return "Heat solves no system whose matrix is divided"
    return "" if case.x <= SIZES[0] else f"Heat is measured up to {SIZES[0]} columns"


def _is_tall(case: Case) -> bool:
    return case.x == TALL[1]


def _comparisons(options: RunOptions) -> list[Comparison]:
    return [
        Comparison(
            "best", "magmath", ("NumPy", "torch"), lambda case: None if _is_tall(case) else 0.8
        ),
        Comparison("torch", "magmath", ("torch",), lambda case: 2.0 if _is_tall(case) else None),
        Comparison("Heat", "magmath", ("Heat",), lambda case: 5.0),
    ]


BENCH = Bench("linalg", "factorizations and solutions", "columns", _cases, _systems, _comparisons)
