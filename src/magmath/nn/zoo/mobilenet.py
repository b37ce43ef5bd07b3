"""MobileNet v2."""

from __future__ import annotations

from typing import final

from magmath.arrays.array import Array
from magmath.nn.layers import (
    BatchNorm,
    Conv2d,
    Dense,
    Dropout,
    GlobalAvgPool,
    ReLU6,
    Residual,
    Sequential,
)
from magmath.nn.module import Module

STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""Table 2: expansion, channels, number of blocks, and stride of the first one."""


def _conv(channels: int, kernel: int, stride: int = 1, depthwise: bool = False) -> list[Module]:
    filters = Conv2d(
        channels, kernel, stride=stride, padding=kernel // 2,
        groups="depthwise" if depthwise else 1, bias=False, weight_init="he_normal",
    )  # fmt: skip
    return [filters, BatchNorm()]


def _block(inputs: int, outputs: int, expansion: int, stride: int) -> Module:
    """Return an inverted residual block: wide inside, narrow and linear at its ends."""
    wide = inputs * expansion
    first = [*_conv(wide, 1), ReLU6()] if expansion > 1 else []
    body = Sequential(*first, *_conv(wide, 3, stride, depthwise=True), ReLU6(), *_conv(outputs, 1))
    return Residual(body) if stride == 1 and inputs == outputs else body


@final
class MobileNetV2(Module):
    """MobileNet v2; see `mobilenet_v2`."""

    def __init__(self, classes: int, dropout: float) -> None:
        self.stem = Sequential(*_conv(32, 3, 2), ReLU6())
        blocks, inputs = [], 32
        for expansion, channels, count, stride in STAGES:
            for i in range(count):
                blocks.append(_block(inputs, channels, expansion, stride if i == 0 else 1))
                inputs = channels
        self.blocks = Sequential(*blocks)
        self.last = Sequential(*_conv(1280, 1), ReLU6(), GlobalAvgPool())
        self.head = Sequential(Dropout(dropout), Dense(classes))

    def __call__(self, x: Array) -> Array:
        """(N, channels, H, W) → scores (N, classes)."""
        scores: Array = self.head(self.last(self.blocks(self.stem(x))))
        return scores


def mobilenet_v2(classes: int = 1000, *, dropout: float = 0.2) -> MobileNetV2:
    """Return MobileNet v2 for images (N, channels, 224, 224) or any from 32×32 on; 3,504,872
    parameters for three channels and 1000 classes.

    Of Sandler et al. (2018), table 2, with width 1.
    """
    return MobileNetV2(classes, dropout)
