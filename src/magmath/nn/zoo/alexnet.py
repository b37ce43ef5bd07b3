"""AlexNet, for 224×224 and for 32×32 images."""

from __future__ import annotations

from collections.abc import Sequence

from magmath.nn.layers import (
    AdaptiveAvgPool2d,
    Conv2d,
    Dense,
    Dropout,
    Flatten,
    MaxPool2d,
    Sequential,
)
from magmath.nn.module import Module


def alexnet(classes: int = 1000, *, units: int = 4096, dropout: float = 0.5) -> Sequential:
    """Return AlexNet for images (N, channels, 224, 224) or any from 63×63 on; 61,100,840 parameters
    for three channels and 1000 classes.

    units    outputs of each hidden dense layer
    dropout  probability of zeros in front of these, 0 for none

    The form on one device of Krizhevsky (2014), "One weird trick for parallelizing convolutional
    neural networks", as in torchvision: without groups and local response normalization.
    """
    return Sequential(
        Conv2d(64, 11, stride=4, padding=2, activation="relu"),
        MaxPool2d(3, 2),
        Conv2d(192, 5, padding=2, activation="relu"),
        MaxPool2d(3, 2),
        Conv2d(384, 3, padding=1, activation="relu"),
        Conv2d(256, 3, padding=1, activation="relu"),
        Conv2d(256, 3, padding=1, activation="relu"),
        MaxPool2d(3, 2),
        AdaptiveAvgPool2d(6),
        Flatten(),
        *_head((units, units), classes, dropout),
    )


def alexnet_cifar(classes: int = 10, *, units: int = 1024, dropout: float = 0.0) -> Sequential:
    """Return the AlexNet for small images (N, channels, 32, 32) or any from 8×8 on; 7,506,762
    parameters for three channels, 32×32 and 10 classes.

    The five convolutions of `alexnet`, all with 3×3 filters and stride 1, and smaller dense layers.
    """
    return Sequential(
        Conv2d(64, 3, padding=1, activation="relu"),
        MaxPool2d(2),
        Conv2d(192, 3, padding=1, activation="relu"),
        MaxPool2d(2),
        Conv2d(384, 3, padding=1, activation="relu"),
        Conv2d(256, 3, padding=1, activation="relu"),
        Conv2d(256, 3, padding=1, activation="relu"),
        MaxPool2d(2),
        Flatten(),
        *_head((units, units), classes, dropout),
    )


def _head(units: Sequence[int], classes: int, dropout: float) -> list[Module]:
    layers: list[Module] = []
    for count in units:
        if dropout:
            layers.append(Dropout(dropout))
        layers.append(Dense(count, activation="relu"))
    return [*layers, Dense(classes)]
