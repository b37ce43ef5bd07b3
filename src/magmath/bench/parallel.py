"""`bench parallel`: MLPs and convolutional networks on workers of one thread each.

"magmath" trains with the strategy "auto", which should be no slower than the better of pure data
and pure model parallelism. "deterministic" is data parallelism in a deterministic pool, whose price
is the ratio to "data". The MLPs are compared with PyTorch's DDP on gloo.
"""

from __future__ import annotations

from typing import Any

from magmath.bench.case import Bench, Case, Comparison, RunOptions, System, constant_mark
from magmath.bench.cnn import QUICK_BATCH
from magmath.bench.layers import PEERS, training_case

# (batch, width, layers, images), the batch is the total over all workers
SHAPES = [(100, 528, 4, 6400), (256, 1024, 4, 6400), (100, 528, 16, 6400), (32, 128, 8, 6400)]
# network, title, batch, image size, steps of a round
NETWORKS = [
    ("alexnet_cifar", "AlexNet-CIFAR", 128, 32, 4),
    ("resnet18", "ResNet-18, 32×32", 128, 32, 1),
]
OWN = "magmath.bench.contestants.strategies:train"


def strategy_cases(options: RunOptions) -> list[Case]:
    """Return the MLPs and the networks of images."""
    mlps = [training_case(*shape) for shape in SHAPES[: 2 if options.quick else None]]
    return [*mlps, *[_network_case(x, *one, options) for x, one in enumerate(NETWORKS)]]


def _network_case(
    x: int, network: str, title: str, batch: int, size: int, steps: int, options: RunOptions
) -> Case:
    count = QUICK_BATCH if options.quick else batch
    return Case(
        name=f"{title}, batch {count}",
        parameters={
            "network": network,
            "batch": count,
            "size": size,
            "epochs": steps,
            "workers": 0,
            "device": "cpu",
        },
        work=count * steps,
        unit="images/s",
        group="images",
        x=x,
    )


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
