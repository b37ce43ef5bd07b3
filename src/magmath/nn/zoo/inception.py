"""Inception v3."""

from __future__ import annotations

from typing import final

from magmath.arrays.array import Array
from magmath.nn.layers import (
    AvgPool2d,
    BatchNorm,
    Conv2d,
    Dense,
    Dropout,
    GlobalAvgPool,
    MaxPool2d,
    Parallel,
    ReLU,
    Sequential,
)
from magmath.nn.module import Module
from magmath.nn.window_settings import Size

WIDE, HIGH = (1, 7), (7, 1)


def _conv(channels: int, kernel: Size, stride: int = 1, padding: Size | str = "same") -> Sequential:
    """Return a convolution with batch normalization and relu."""
    return Sequential(
        Conv2d(channels, kernel, stride=stride, padding=padding, bias=False, weight_init="he"),
        BatchNorm(epsilon=1e-3),
        ReLU(),
    )


def _conv_of_stride_2(channels: int) -> Sequential:
    return _conv(channels, 3, 2, "valid")


def _pooled(channels: int) -> Sequential:
    return Sequential(AvgPool2d(3, 1, padding=1), _conv(channels, 1))


def _module_a(pooled: int) -> Parallel:
    """Return the module of figure 5."""
    return Parallel(
        _conv(64, 1),
        Sequential(_conv(48, 1), _conv(64, 5)),
        Sequential(_conv(64, 1), _conv(96, 3), _conv(96, 3)),
        _pooled(pooled),
    )


def _module_b() -> Parallel:
    """Return the first module that halves the maps (figure 10)."""
    return Parallel(
        _conv_of_stride_2(384),
        Sequential(_conv(64, 1), _conv(96, 3), _conv_of_stride_2(96)),
        MaxPool2d(3, 2),
    )


def _module_c(channels: int) -> Parallel:
    """Return the module of figure 6: 7×7 filters as products of 1×7 and 7×1."""
    return Parallel(
        _conv(192, 1),
        Sequential(_conv(channels, 1), _conv(channels, WIDE), _conv(192, HIGH)),
        Sequential(
            _conv(channels, 1), _conv(channels, HIGH), _conv(channels, WIDE),
            _conv(channels, HIGH), _conv(192, WIDE),
        ),
        _pooled(192),
    )  # fmt: skip


def _module_d() -> Parallel:
    """Return the second module that halves the maps."""
    return Parallel(
        Sequential(_conv(192, 1), _conv_of_stride_2(320)),
        Sequential(_conv(192, 1), _conv(192, WIDE), _conv(192, HIGH), _conv_of_stride_2(192)),
        MaxPool2d(3, 2),
    )


def _module_e() -> Parallel:
    """Return the module of figure 7: wide banks of filters on small maps."""
    return Parallel(
        _conv(320, 1),
        Sequential(_conv(384, 1), _row_and_column_convs(384)),
        Sequential(_conv(448, 1), _conv(384, 3), _row_and_column_convs(384)),
        _pooled(192),
    )


def _row_and_column_convs(channels: int) -> Parallel:
    return Parallel(_conv(channels, (1, 3)), _conv(channels, (3, 1)))


@final
class InceptionV3(Module):
    """Inception v3; see `inception_v3`."""

    def __init__(self, classes: int, auxiliary: bool, dropout: float) -> None:
        self.stem = Sequential(
            _conv_of_stride_2(32), _conv(32, 3, padding="valid"), _conv(64, 3), MaxPool2d(3, 2),
            _conv(80, 1), _conv(192, 3, padding="valid"), MaxPool2d(3, 2),
        )  # fmt: skip
        self.maps35 = Sequential(_module_a(32), _module_a(64), _module_a(64))
        self.maps17 = Sequential(
            _module_b(), _module_c(128), _module_c(160), _module_c(160), _module_c(192)
        )
        self.maps8 = Sequential(_module_d(), _module_e(), _module_e())
        self.head = Sequential(GlobalAvgPool(), Dropout(dropout), Dense(classes))
        self.auxiliary = _auxiliary(classes) if auxiliary else None

    def __call__(self, x: Array) -> Array | tuple[Array, Array]:
        """(N, channels, H, W) → scores (N, classes), in training mode with auxiliary ones."""
        x = self.maps17(self.maps35(self.stem(x)))
        scores: Array = self.head(self.maps8(x))
        if self.auxiliary is None:
            return scores
        auxiliary_scores: Array = self.auxiliary(x)
        return (scores, auxiliary_scores) if self.training else scores


def _auxiliary(classes: int) -> Sequential:
    """Return the auxiliary classifier, on maps of at least 5×5."""
    return Sequential(
        AvgPool2d(5, 3),
        _conv(128, 1),
        _conv(768, 5, padding="valid"),
        GlobalAvgPool(),
        Dense(classes),
    )


def inception_v3(
    classes: int = 1000, *, auxiliary: bool = False, dropout: float = 0.5
) -> InceptionV3:
    """Return Inception v3 for images (N, channels, 299, 299) or any from 75×75 on; 23,834,568
    parameters for three channels and 1000 classes, 27,161,264 with an auxiliary classifier.

    auxiliary  if True, the network has one more classifier, and in training mode returns (scores,
               auxiliary scores); see `auxiliary_cross_entropy`. It needs images from 203×203 on
    dropout    probability of zeros in front of the last layer

    Of Szegedy et al. (2016), table 1, with the sizes of the authors' program, as in torchvision.
    """
    return InceptionV3(classes, auxiliary, dropout)
