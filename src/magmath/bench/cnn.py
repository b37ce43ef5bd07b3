"""`bench cnn`: a training step of convolutional networks, against PyTorch, JAX and TensorFlow."""

from __future__ import annotations

from typing import Literal, NamedTuple, final

from magmath.bench.case import (
    PEERS,
    Bench,
    Case,
    Comparison,
    RunOptions,
    System,
    constant_mark,
    on_cpu,
)

Purpose = Literal["train", "infer"]

OWN = "magmath.bench.contestants.networks:compiled"


@final
class TrainedNetwork(NamedTuple):
    """A network of the zoo, the batch and the size of its images, the steps of a round of training,
    and the mark of its speed."""

    network: str
    title: str
    batch: int
    size: int
    steps: int
    mark: float


NETWORKS = {
    row.network: row
    for row in (
        TrainedNetwork("alexnet_cifar", "AlexNet-CIFAR", 128, 32, 4, 1.6),
        TrainedNetwork("alexnet", "AlexNet", 32, 224, 2, 1.6),
        TrainedNetwork("vgg16", "VGG-16", 8, 224, 1, 1.6),
        TrainedNetwork("googlenet", "GoogLeNet", 16, 224, 2, 1.3),
        TrainedNetwork("inception_v3", "Inception v3", 16, 299, 1, 1.3),
        TrainedNetwork("resnet50", "ResNet-50", 16, 224, 1, 1.3),
        TrainedNetwork("mobilenet_v2", "MobileNet v2", 16, 224, 1, 1.3),
        TrainedNetwork("resnet18", "ResNet-18, 32×32", 128, 32, 1, 1.3),
    )
}
QUICK = ("alexnet_cifar", "resnet18")
QUICK_BATCH = 16
IMAGES_OF_ROUND = 32
"""Images of a round of inference, so that it lasts much longer than the first call of a round."""

PYTORCH = ("PyTorch eager", "PyTorch channels-last", "PyTorch compiled")


def network_cases(
    options: RunOptions, purpose: Purpose = "train", batches: tuple[int, ...] = ()
) -> list[Case]:
    """Return the cases: all networks with their own batch sizes, or with each of `batches`."""
    return [
        network_case(
            row,
            options,
            purpose,
            batch=batch,
            calls=row.steps * (max(1, IMAGES_OF_ROUND // batch) if batches else 1),
            group=f"batch {batch}" if batches else "training",
            x=x,
        )
        for x, row in enumerate(NETWORKS.values())
        if not options.quick or row.network in QUICK
        for batch in batches or (batch_of(row, options),)
    ]


def batch_of(row: TrainedNetwork, options: RunOptions) -> int:
    """Return the batch of a network in training."""
    return min(row.batch, QUICK_BATCH) if options.quick else row.batch


def network_case(
    row: TrainedNetwork,
    options: RunOptions,
    purpose: Purpose,
    *,
    batch: int,
    calls: int,
    group: str,
    x: int,
) -> Case:
    """Return the case of a network whose round has a number of calls."""
    return Case(
        name=f"{row.title}, batch {batch}",
        parameters={
            "network": row.network,
            "batch": batch,
            "size": row.size,
            "epochs": calls,
            "purpose": purpose,
            "workers": 0,
            "device": options.device,
        },
        work=batch * calls,
        unit="images/s",
        group=group,
        x=x,
    )


def network_systems() -> list[System]:
    """Return the systems that train and run the networks."""
    torch = f"{PEERS}.torch_networks"
    return [
        System("magmath", OWN),
        System("PyTorch eager", f"{torch}:eager", peer="torch"),
        System("PyTorch channels-last", f"{torch}:channels_last", peer="torch"),
        System("PyTorch compiled", f"{torch}:compiled", peer="torch"),
        System("JAX", f"{PEERS}.jax_networks:compiled", peer="jax"),
        System(
            "TensorFlow",
            f"{PEERS}.tensorflow_networks:compiled",
            peer="tensorflow",
            unsupported_reason=on_cpu,
        ),
    ]


def _mark(case: Case) -> float | None:
    return NETWORKS[case.parameters["network"]].mark


def _comparisons(options: RunOptions) -> list[Comparison]:
    return [
        Comparison("best peer", "magmath", (*PYTORCH, "JAX", "TensorFlow"), _mark),
        Comparison("PyTorch", "magmath", PYTORCH, _mark),
        Comparison(
            "PyTorch's memory", "magmath", PYTORCH, constant_mark(1.0), quantity="peak_bytes"
        ),
    ]


BENCH = Bench(
    "cnn",
    "training step of convolutional networks",
    "network",
    network_cases,
    lambda options: network_systems(),
    _comparisons,
    uses_gpus=True,
    measures_memory=True,
)
