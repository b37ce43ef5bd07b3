"""VGG: deep networks of 3×3 convolutions."""

from __future__ import annotations

from magmath.nn.layers import (
    AdaptiveAvgPool2d,
    BatchNorm,
    Conv2d,
    Dense,
    Dropout,
    Flatten,
    MaxPool2d,
    ReLU,
    Sequential,
)
from magmath.nn.module import Module

COUNTS: dict[int, tuple[int, ...]] = {
    11: (1, 1, 2, 2, 2),
    16: (2, 2, 3, 3, 3),
}
"""The number of convolutions in each of five blocks, by the number of layers with weights."""

CHANNELS = (64, 128, 256, 512, 512)


def vgg11(
    classes: int = 1000, *, units: int = 4096, dropout: float = 0.5, batch_norm: bool = False
) -> Sequential:
    """Return VGG-11 (configuration A); 132,863,336 parameters for 1000 classes; see `vgg16`."""
    return _vgg(11, classes, units, dropout, batch_norm)


def vgg16(
    classes: int = 1000, *, units: int = 4096, dropout: float = 0.5, batch_norm: bool = False
) -> Sequential:
    """Return VGG-16 (configuration D) for images (N, channels, 224, 224) or any from 32×32 on;
    138,357,544 parameters for three channels and 1000 classes.

    units       outputs of each hidden dense layer
    dropout     probability of zeros after each of these, 0 for none
    batch_norm  if True, each convolution is followed by batch normalization

    Of Simonyan and Zisserman (2015), table 1. Maps of other sizes than 7×7 are averaged to 7×7
    before the dense layers, as in torchvision.
    """
    return _vgg(16, classes, units, dropout, batch_norm)


def _vgg(depth: int, classes: int, units: int, dropout: float, batch_norm: bool) -> Sequential:
    layers: list[Module] = []
    for count, channels in zip(COUNTS[depth], CHANNELS, strict=True):
        for _ in range(count):
            layers += _convolution(channels, batch_norm)
        layers.append(MaxPool2d(2))
    layers += [AdaptiveAvgPool2d(7), Flatten()]
    for _ in range(2):
        layers.append(Dense(units, activation="relu"))
        if dropout:
            layers.append(Dropout(dropout))
    return Sequential(*layers, Dense(classes))


def _convolution(channels: int, batch_norm: bool) -> list[Module]:
    if not batch_norm:
        return [Conv2d(channels, 3, padding=1, activation="relu")]
    return [Conv2d(channels, 3, padding=1, weight_init="he"), BatchNorm(), ReLU()]
