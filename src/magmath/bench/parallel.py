"""`bench parallel`: MLPs and convolutional networks on workers of one thread each.

"magmath" trains with the strategy "auto", which should be no slower than the better of pure data
and pure model parallelism. "deterministic" is data parallelism in a deterministic pool, whose cost
is the ratio to "data". The MLPs are compared with PyTorch's DDP on gloo.
"""

from __future__ import annotations

from typing import Any

from magmath.bench.case import (
    PEERS,
    Bench,
    Case,
    Comparison,
    RunOptions,
    System,
    constant_mark,
)
from magmath.bench.cnn import NETWORKS, batch_of, network_case
from magmath.bench.layers import MlpShape, training_case

SHAPES = [
    MlpShape(100, 528, 4, 6400),
    MlpShape(256, 1024, 4, 6400),
    MlpShape(100, 528, 16, 6400),
    MlpShape(32, 128, 8, 6400),
]
"""The batches are the totals over all workers."""
IMAGE_NETWORKS = ("alexnet_cifar", "resnet18")
OWN = "magmath.bench.contestants.strategies:train"


def strategy_cases(options: RunOptions) -> list[Case]:
    """Return the MLPs and the networks of images."""
    mlps = [training_case(*shape) for shape in SHAPES[: 2 if options.quick else None]]
    networks = [
        network_case(
            row,
            options,
            "train",
            batch=batch_of(row, options),
            calls=row.steps,
            group="images",
            x=x,
        )
        for x, row in enumerate(NETWORKS[name] for name in IMAGE_NETWORKS)
    ]
    return [*mlps, *networks]


def _only_mlps(case: Case) -> str:
    return "it trains MLPs alone" if "network" in case.parameters else ""


def _system(name: str, options: RunOptions, **settings: Any) -> System:
    return System(name, OWN, settings={"workers": options.workers, **settings})


def _systems(options: RunOptions) -> list[System]:
    return [
        _system("magmath", options),
        _system("data", options, strategy="data"),
        _system("model", options, strategy="model"),
        _system("deterministic", options, strategy="data", deterministic=True),
        System(
            "DDP gloo",
            f"{PEERS}.ddp:mlp",
            peer="torch",
            processes=options.workers,
            unsupported_reason=_only_mlps,
        ),
    ]


def _comparisons(options: RunOptions) -> list[Comparison]:
    return [
        Comparison("DDP", "magmath", ("DDP gloo",), constant_mark(2.5)),
        Comparison("better of data and model", "magmath", ("data", "model"), constant_mark(1.0)),
        Comparison("price of determinism", "deterministic", ("data",), constant_mark(0.5)),
    ]


BENCH = Bench(
    "parallel",
    "MLPs and convolutional networks on several workers, same batch in total",
    "layers",
    strategy_cases,
    _systems,
    _comparisons,
)
