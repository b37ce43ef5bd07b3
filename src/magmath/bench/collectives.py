"""`bench collectives`: communication between workers of one host, compared with plain MPI and
gloo."""

from __future__ import annotations

from magmath.bench.case import PEERS, Bench, Case, Comparison, RunOptions, System

OPERATIONS = ("allreduce", "allgather", "reduce_scatter", "all_to_all")
SIZES = [4 * 2**10, 32 * 2**10, 256 * 2**10, 2**20, 4 * 2**20, 16 * 2**20, 64 * 2**20]
QUICK = [32 * 2**10, 4 * 2**20]
BYTES_PER_ROUND = 2**28
MAX_REPEATS = 2000
LARGE = 2**20


def _cases(options: RunOptions) -> list[Case]:
    sizes = QUICK if options.quick else SIZES
    return [_case(operation, size) for operation in OPERATIONS for size in sizes]


def _case(operation: str, nbytes: int) -> Case:
    repeats = max(4, min(MAX_REPEATS, BYTES_PER_ROUND // nbytes))
    size = f"{nbytes // 2**20} MB" if nbytes >= 2**20 else f"{nbytes // 2**10} KB"
    return Case(
        name=f"{operation} {size}",
        parameters={"operation": operation, "nbytes": nbytes, "repeats": repeats},
        work=nbytes * repeats / 1e9,
        unit="GB/s",
        group=operation,
        x=nbytes,
    )


def _systems(options: RunOptions) -> list[System]:
    contestant, mpi = (
        "magmath.bench.contestants.collectives:collectives",
        f"{PEERS}.mpi:collectives",
    )
    n = options.workers
    return [
        System("magmath", contestant, processes=n, launcher="mpiexec"),
        System("MPI", mpi, peer="mpi", processes=n, launcher="mpiexec"),
        System("gloo", f"{PEERS}.ddp:collectives", peer="torch", processes=n),
    ]


def _comparisons(options: RunOptions) -> list[Comparison]:
    return [
        Comparison("MPI", "magmath", ("MPI",), lambda case: 3.0 if case.x >= LARGE else 1.0),
        Comparison("gloo", "magmath", ("gloo",), lambda case: 1.0),
    ]


BENCH = Bench(
    "collectives",
    "collectives of 4 KB to 64 MB on one host",
    "bytes",
    _cases,
    _systems,
    _comparisons,
)
