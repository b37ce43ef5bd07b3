"""`bench parallel`: the MLPs on workers of one thread each, compared with PyTorch's DDP on gloo."""

from __future__ import annotations

from magmath.bench.case import Bench, Case, Comparison, RunOptions, System, constant_mark
from magmath.bench.layers import PEERS, training_case

# (batch, width, layers, images), the batch is the total over all workers
SHAPES = [(100, 528, 4, 6400), (256, 1024, 4, 6400), (100, 528, 16, 6400), (32, 128, 8, 6400)]


def _cases(options: RunOptions) -> list[Case]:
    return [training_case(*shape) for shape in SHAPES[: 2 if options.quick else None]]


def _systems(options: RunOptions) -> list[System]:
    return [
        System(
            "magmath", "magmath.bench.contestants.mlp:mlp", settings={"workers": options.workers}
        ),
        System("DDP gloo", f"{PEERS}.ddp:mlp", peer="torch", processes=options.workers),
    ]


def _comparisons(options: RunOptions) -> list[Comparison]:
    return [Comparison("DDP", "magmath", ("DDP gloo",), constant_mark(2.5))]


BENCH = Bench(
    "parallel",
    "the MLPs on several workers, same batch in total",
    "layers",
    _cases,
    _systems,
    _comparisons,
)
