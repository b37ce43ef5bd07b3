"""`bench passes`: what each optional pass gains, in networks and their parts.

One system has all passes; each of the others omits one (`core/optional_passes.py`), or native
segments, which join element-wise operations to loops; the last one omits all of these. A ratio is
the time without a pass over the time with all. Rematerialization, which pays with time for memory,
is a system of its own: all passes, under a limit of three quarters of the memory.
"""

from __future__ import annotations

from typing import NamedTuple, final

from magmath.bench.case import Bench, Case, Comparison, RunOptions, System, constant_mark
from magmath.core.optional_passes import (
    ASSIGN_MEMORY_ORDERS,
    FOLD_EPILOGUES,
    HOISTING,
    IN_PLACE,
    JOIN_SUMS,
    MERGE_EQUAL,
    POOLED_MASKS,
)
from magmath.core.options import COMPILE_AFTER, DEBUG

ALL, NONE = "all passes", "without all"
LIMITED = "under a memory limit"
MEMORY_SHARE = 0.75
FACTORY = "magmath.bench.contestants.passes:network_or_part"
OMITTED = (
    MERGE_EQUAL, JOIN_SUMS, POOLED_MASKS, FOLD_EPILOGUES, IN_PLACE, ASSIGN_MEMORY_ORDERS, HOISTING,
)  # fmt: skip
NO_SEGMENTS = {COMPILE_AFTER.name: "inf"}


@final
class WholeNetwork(NamedTuple):
    """A network of the zoo, and for training and inference the batch and the calls of a round."""

    network: str
    title: str
    image: tuple[int, int, int]
    training: tuple[int, int]
    inference: tuple[int, int]


NETWORKS = [
    WholeNetwork("resnet18", "ResNet-18", (3, 32, 32), (16, 1), (1, 8)),
    WholeNetwork("vgg16", "VGG-16, 32×32", (3, 32, 32), (16, 1), (1, 8)),
    WholeNetwork("lenet5", "LeNet-5", (1, 28, 28), (128, 16), (128, 64)),
    WholeNetwork("mlp", "MLP", (1, 28, 28), (128, 64), (128, 256)),
]
QUICK = ("lenet5",)
LIMITED_NETWORKS = ("resnet18",)


@final
class NetworkPart(NamedTuple):
    """A part of `contestants/passes.py`, and the calls of a round."""

    part: str
    title: str
    calls: int


PARTS = [
    NetworkPart("convolution", "convolution, bias, relu", 4),
    NetworkPart("normalization", "batch normalization, residual, relu", 4),
    NetworkPart("normalization_gradient", "gradient of it", 2),
    NetworkPart("pooling_gradient", "gradient of relu and pooling", 2),
    NetworkPart("cross_entropy_gradient", "gradient of softmax and cross-entropy", 4),
    NetworkPart("adam", "update of 10⁷ parameters by Adam", 2),
]


def _cases(options: RunOptions) -> list[Case]:
    return [*_network_cases(options), *(() if options.quick else _part_cases())]


def _network_cases(options: RunOptions) -> list[Case]:
    networks = [row for row in NETWORKS if not options.quick or row.network in QUICK]
    return [
        *[_network_case(row, "training", *row.training, x) for x, row in enumerate(networks)],
        *[_network_case(row, "inference", *row.inference, x) for x, row in enumerate(networks)],
    ]


def _network_case(row: WholeNetwork, purpose: str, batch: int, calls: int, x: int) -> Case:
    return Case(
        name=f"{row.title}, {purpose}, batch {batch}",
        parameters={
            "network": row.network,
            "image": row.image,
            "purpose": purpose,
            "batch": batch,
            "repeats": calls,
        },
        work=float(calls),
        unit="s",
        group=purpose,
        x=x,
    )


def _part_cases() -> list[Case]:
    return [
        Case(row.title, {"part": row.part, "repeats": row.calls}, float(row.calls), "s", "parts", x)
        for x, row in enumerate(PARTS)
    ]


def _unlimited(case: Case) -> str:
    """Return why a case is not computed under a memory limit."""
    parameters = case.parameters
    limited = parameters.get("network") in LIMITED_NETWORKS
    limited = limited and parameters["purpose"] == "training"
    return "" if limited else "it has few activations"


def _without(*passes: str) -> dict[str, str]:
    return {DEBUG.name: ",".join(f"without={name}" for name in passes)}


def _systems(options: RunOptions) -> list[System]:
    return [
        System(ALL, FACTORY),
        *[System(f"without {name}", FACTORY, environment=_without(name)) for name in OMITTED],
        System("without native segments", FACTORY, environment=NO_SEGMENTS),
        System(NONE, FACTORY, environment=_without(*OMITTED) | NO_SEGMENTS),
        System(
            LIMITED,
            FACTORY,
            settings={"memory_share": MEMORY_SHARE},
            unsupported_reason=_unlimited,
        ),
    ]


def _comparisons(options: RunOptions) -> list[Comparison]:
    compared = [system.name for system in _systems(options)][1:]
    return [
        Comparison(name, ALL, (name,), constant_mark(1.0 if name == NONE else None))
        for name in compared
    ]


BENCH = Bench(
    "passes",
    "what each pass gains, in networks and their parts",
    "case",
    _cases,
    _systems,
    _comparisons,
)
