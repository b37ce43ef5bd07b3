"""`bench cnn`: a training step of convolutional networks, against PyTorch, JAX and TensorFlow."""

from __future__ import annotations

from typing import Literal

from magmath.bench.case import (
    Bench,
    Case,
    Comparison,
    RunOptions,
    System,
    constant_mark,
    on_cpu,
)

Purpose = Literal["train", "infer"]

PEERS = "magmath.bench.peers"
OWN = "magmath.bench.contestants.networks:compiled"
# network, title, batch, image size, steps of a round, mark
NETWORKS = [
    ("alexnet_cifar", "AlexNet-CIFAR", 128, 32, 4, 1.6),
    ("alexnet", "AlexNet", 32, 224, 2, 1.6),
    ("vgg16", "VGG-16", 8, 224, 1, 1.6),
    ("googlenet", "GoogLeNet", 16, 224, 2, 1.3),
    ("inception_v3", "Inception v3", 16, 299, 1, 1.3),
    ("resnet50", "ResNet-50", 16, 224, 1, 1.3),
    ("mobilenet_v2", "MobileNet v2", 16, 224, 1, 1.3),
    ("resnet18", "ResNet-18, 32×32", 128, 32, 1, 1.3),
]
QUICK = ("alexnet_cifar", "resnet18")
QUICK_BATCH = 16
IMAGES_OF_ROUND = 32
"""Images of a round of inference, so that it lasts much longer than the first call of a round."""

PYTORCH = ("PyTorch eager", "PyTorch channels-last", "PyTorch compiled")


def network_cases(
    options: RunOptions, purpose: Purpose = "train", batches: tuple[int, ...] = ()
) -> list[Case]:
    """Return the cases: all networks with their own batch sizes, or with each of `batches`."""
    cases = []
    for x, (network, title, batch, size, steps, _) in enumerate(NETWORKS):
        if options.quick and network not in QUICK:
            continue
        for count in batches or (min(batch, QUICK_BATCH) if options.quick else batch,):
            calls = steps * max(1, IMAGES_OF_ROUND // count) if batches else steps
            cases.append(
                Case(
                    name=f"{title}, batch {count}",
                    parameters={
                        "network": network,
                        "batch": count,
                        "size": size,
                        "epochs": calls,
                        "purpose": purpose,
                        "workers": 0,
                        "device": options.device,
                    },
                    work=count * calls,
                    unit="images/s",
                    group=f"batch {count}" if batches else "training",
                    x=x,
                )
            )
    return cases


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
    marks = {network: mark for network, _, _, _, _, mark in NETWORKS}
    return marks[case.parameters["network"]]


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
