"""`bench simulate`: training steps as the workers take them and as the simulator predicts them.

A case is a network on a number of workers, a system is a strategy, so that the ranking of the
strategies can be compared. The simulated program is the one that the workers run.
"""

from __future__ import annotations

from typing import NamedTuple, final

from magmath.bench.case import Bench, Case, Comparison, RunOptions, System

STRATEGIES = ("data", "model", "model-input", "sharded", "parameter-server")
WORKERS = (1, 2, 4)


@final
class StepNetwork(NamedTuple):
    """A network, its batch, and the steps of a round."""

    network: str
    title: str
    batch: int
    steps: int


NETWORKS = [
    StepNetwork("mlp 528×4", "MLP 528×4", 100, 32),
    StepNetwork("mlp 128×8", "MLP 128×8", 32, 128),
    StepNetwork("lenet5", "LeNet-5", 128, 16),
    StepNetwork("alexnet_cifar", "AlexNet-CIFAR", 32, 4),
    StepNetwork("resnet18", "ResNet-18, 32×32", 16, 2),
]
QUICK = 3  # networks


def _cases(options: RunOptions) -> list[Case]:
    networks = NETWORKS[:QUICK] if options.quick else NETWORKS
    return [
        Case(
            name=f"{title}, batch {batch}, {workers} worker{'s' if workers > 1 else ''}",
            parameters={"network": name, "batch": batch, "steps": steps, "workers": workers},
            work=float(steps),
            unit="s",
            group=title,
            x=workers,
        )
        for name, title, batch, steps in networks
        for workers in WORKERS
    ]


def _systems(options: RunOptions) -> list[System]:
    factory = "magmath.bench.contestants.simulate:simulate"
    return [System(name, factory, settings={"strategy": name}) for name in STRATEGIES]


def _comparisons(options: RunOptions) -> list[Comparison]:
    return []


BENCH = Bench(
    "simulate",
    "training steps, measured and simulated",
    "workers",
    _cases,
    _systems,
    _comparisons,
    plot="simulation",
)
