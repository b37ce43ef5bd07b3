"""GoogLeNet (Inception v1)."""

from __future__ import annotations

from typing import final

from magmath.arrays.array import Array
from magmath.nn.layers import (
    AdaptiveAvgPool2d,
    Conv2d,
    Dense,
    Dropout,
    Flatten,
    GlobalAvgPool,
    LocalResponseNorm,
    MaxPool2d,
    Parallel,
    Sequential,
)
from magmath.nn.module import Module


def _conv(channels: int, kernel: int, stride: int = 1) -> Conv2d:
    return Conv2d(channels, kernel, stride=stride, padding=kernel // 2, activation="relu")


def _inception(
    ones: int, reduce3: int, threes: int, reduce5: int, fives: int, pooled: int
) -> Parallel:
    """Return an Inception module; its arguments are the columns of table 1."""
    return Parallel(
        _conv(ones, 1),
        Sequential(_conv(reduce3, 1), _conv(threes, 3)),
        Sequential(_conv(reduce5, 1), _conv(fives, 5)),
        Sequential(MaxPool2d(3, 1, padding=1), _conv(pooled, 1)),
    )


def _auxiliary(classes: int) -> Sequential:
    """Return an auxiliary classifier; section 5."""
    return Sequential(
        AdaptiveAvgPool2d(4),
        _conv(128, 1),
        Flatten(),
        Dense(1024, activation="relu"),
        Dropout(0.7),
        Dense(classes),
    )


def _pool() -> MaxPool2d:
    return MaxPool2d(3, 2, ceil_mode=True)


@final
class GoogLeNet(Module):
    """GoogLeNet; see `googlenet`."""

    def __init__(self, classes: int, auxiliary: bool, dropout: float) -> None:
        self.stem = Sequential(
            _conv(64, 7, 2), _pool(), LocalResponseNorm(5),
            _conv(64, 1), _conv(192, 3), LocalResponseNorm(5), _pool(),
        )  # fmt: skip
        self.inception3 = Sequential(
            _inception(64, 96, 128, 16, 32, 32), _inception(128, 128, 192, 32, 96, 64), _pool()
        )
        self.inception4 = [
            _inception(192, 96, 208, 16, 48, 64),
            _inception(160, 112, 224, 24, 64, 64),
            _inception(128, 128, 256, 24, 64, 64),
            _inception(112, 144, 288, 32, 64, 64),
            _inception(256, 160, 320, 32, 128, 128),
        ]
        self.pool = _pool()
        self.inception5 = Sequential(
            _inception(256, 160, 320, 32, 128, 128), _inception(384, 192, 384, 48, 128, 128)
        )
        self.head = Sequential(GlobalAvgPool(), Dropout(dropout), Dense(classes))
        self.auxiliary = (_auxiliary(classes), _auxiliary(classes)) if auxiliary else ()

    def __call__(self, x: Array) -> Array | tuple[Array, ...]:
        """(N, channels, H, W) → scores (N, classes), in training mode with auxiliary ones."""
        x = self.inception3(self.stem(x))
        maps = []
        for inception in self.inception4:
            x = inception(x)
            maps.append(x)
        scores: Array = self.head(self.inception5(self.pool(x)))
        if not self.auxiliary:
            return scores
        auxiliary_scores = [head(maps[i]) for head, i in zip(self.auxiliary, (0, 3), strict=True)]
        return (scores, *auxiliary_scores) if self.training else scores


def googlenet(classes: int = 1000, *, auxiliary: bool = False, dropout: float = 0.4) -> GoogLeNet:
    """Return GoogLeNet for images (N, channels, 224, 224) or any from 32×32 on; 6,998,552
    parameters for three channels and 1000 classes, 13,378,280 with auxiliary classifiers.

    auxiliary  if True, the network has two more classifiers, and in training mode returns (scores,
               auxiliary scores, auxiliary scores); see `auxiliary_cross_entropy`
    dropout    probability of zeros in front of the last layer

    Of Szegedy et al. (2015), table 1: with local response normalization and 5×5 filters, without
    batch normalization. (torchvision's has batch normalization and 3×3 filters instead.)
    """
    return GoogLeNet(classes, auxiliary, dropout)
