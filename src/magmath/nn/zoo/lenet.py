"""LeNet-5, for handwritten digits."""

from __future__ import annotations

from typing import Literal

from magmath.errors import OptionError
from magmath.nn.layers import AvgPool2d, Conv2d, Dense, Flatten, MaxPool2d, Sequential

POOLS: dict[str, type[MaxPool2d] | type[AvgPool2d]] = {"max": MaxPool2d, "average": AvgPool2d}


def lenet5(
    classes: int = 10, *, activation: str = "relu", pool: Literal["max", "average"] = "max"
) -> Sequential:
    """Return LeNet-5 for images (N, channels, 28, 28) or any from 12×12 on; 61,706 parameters for
    28×28 digits.

    Of LeCun et al. (1998): the layers and their sizes (figure 2), on 28×28 images with two zeros
    around instead of 32×32. As is usual today, the second convolution reads all maps of the first
    pooling, and the last layer returns scores; the paper has activation="tanh" and pool="average".
    """
    if pool not in POOLS:
        raise OptionError(f"lenet5: pool must be one of {', '.join(POOLS)}, was given {pool!r}")
    pooling = POOLS[pool]
    return Sequential(
        Conv2d(6, 5, padding=2, activation=activation),
        pooling(2),
        Conv2d(16, 5, activation=activation),
        pooling(2),
        Flatten(),
        Dense(120, activation=activation),
        Dense(84, activation=activation),
        Dense(classes),
    )
