"""ResNet: deep networks of residual blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, final

from magmath.api.activations import relu
from magmath.arrays.array import Array
from magmath.errors import OptionError
from magmath.nn.layers import BatchNorm, Conv2d, Dense, GlobalAvgPool, MaxPool2d, Sequential
from magmath.nn.module import Module

Stem = Literal["large", "small"]


def _conv(channels: int, kernel: int, stride: int = 1) -> Conv2d:
    """Return a convolution that keeps the size of images except for its stride."""
    return Conv2d(
        channels, kernel, stride=stride, padding=kernel // 2, bias=False, weight_init="he_normal"
    )


@final
class BasicBlock(Module):
    """relu(x + two 3×3 convolutions of x), for ResNet-18, 20 and 34."""

    expansion = 1

    def __init__(self, channels: int, stride: int, project: bool) -> None:
        self.conv1, self.norm1 = _conv(channels, 3, stride), BatchNorm()
        self.conv2, self.norm2 = _conv(channels, 3), BatchNorm()
        self.shortcut = _projection(channels, stride) if project else None

    def __call__(self, x: Array) -> Array:
        """(N, channels, H, W) → (N, channels', ⌈H / stride⌉, ⌈W / stride⌉)."""
        y = self.norm2(self.conv2(relu(self.norm1(self.conv1(x)))))
        return relu(y + (x if self.shortcut is None else self.shortcut(x)))


@final
class Bottleneck(Module):
    """relu(x + three convolutions of x) of 1×1, 3×3 and 1×1, for ResNet-50.

    The stride is that of the 3×3 convolution ("version 1.5"), as in torchvision.
    """

    expansion = 4

    def __init__(self, channels: int, stride: int, project: bool) -> None:
        self.conv1, self.norm1 = _conv(channels, 1), BatchNorm()
        self.conv2, self.norm2 = _conv(channels, 3, stride), BatchNorm()
        self.conv3, self.norm3 = _conv(channels * self.expansion, 1), BatchNorm()
        self.shortcut = _projection(channels * self.expansion, stride) if project else None

    def __call__(self, x: Array) -> Array:
        """(N, channels, H, W) → (N, 4·channels', ⌈H / stride⌉, ⌈W / stride⌉)."""
        y = relu(self.norm1(self.conv1(x)))
        y = self.norm3(self.conv3(relu(self.norm2(self.conv2(y)))))
        return relu(y + (x if self.shortcut is None else self.shortcut(x)))


def _projection(channels: int, stride: int) -> Sequential:
    return Sequential(_conv(channels, 1, stride), BatchNorm())


@final
class ResNet(Module):
    """A stem, stages of residual blocks, and a dense layer on the means of the channels.

    block   the class of the blocks
    counts  the number of blocks in each stage
    width   the number of channels of the stem; every stage after the first one doubles them
    stem    "large": a 7×7 convolution and a max pooling, which divide the size of images by four;
            "small": a 3×3 convolution, for images such as 32×32 or 28×28
    """

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        counts: Sequence[int],
        classes: int,
        stem: Stem = "large",
        width: int = 64,
    ) -> None:
        if stem not in ("large", "small"):
            raise OptionError(f'ResNet: stem must be "large" or "small", was given {stem!r}')
        self.stem = stem
        self.conv = _conv(width, 7, 2) if stem == "large" else _conv(width, 3)
        self.norm = BatchNorm()
        self.pool = MaxPool2d(3, 2, padding=1) if stem == "large" else None
        self.stages = [
            Sequential(*_stage(block, width << i, count, 1 if i == 0 else 2))
            for i, count in enumerate(counts)
        ]
        self.average = GlobalAvgPool()
        self.dense = Dense(classes)

    def __call__(self, x: Array) -> Array:
        """(N, channels, H, W) → scores (N, classes)."""
        x = relu(self.norm(self.conv(x)))
        if self.pool is not None:
            x = self.pool(x)
        for stage in self.stages:
            x = stage(x)
        scores: Array = self.dense(self.average(x))
        return scores


def _stage(
    block: type[BasicBlock] | type[Bottleneck], channels: int, count: int, stride: int
) -> list[Module]:
    """Return the blocks of a stage, of which the first one changes size or channels."""
    project = stride > 1 or block.expansion > 1
    first = block(channels, stride, project)
    return [first, *[block(channels, 1, False) for _ in range(count - 1)]]


def resnet18(classes: int = 1000, *, stem: Stem = "large") -> ResNet:
    """Return ResNet-18 for images (N, channels, H, W); 11,689,512 parameters for three channels and
    1000 classes.

    stem   "large" for images such as 224×224, "small" for 32×32 or 28×28

    Of He et al. (2016), table 1, with projections (1×1 convolutions) where a stage changes the
    size.
    """
    return ResNet(BasicBlock, (2, 2, 2, 2), classes, stem)


def resnet20(classes: int = 10, *, width: int = 16) -> ResNet:
    """Return ResNet-20 for small images (N, channels, H, W) such as 32×32 or 28×28; 272,474
    parameters for three channels and 10 classes.

    width   the number of channels of the first stage

    Of He et al. (2016), section 4.2: three stages of three blocks, here with projections as in
    `resnet18`.
    """
    return ResNet(BasicBlock, (3, 3, 3), classes, "small", width)


def resnet34(classes: int = 1000, *, stem: Stem = "large") -> ResNet:
    """Return ResNet-34; 21,797,672 parameters for 1000 classes; see `resnet18`."""
    return ResNet(BasicBlock, (3, 4, 6, 3), classes, stem)


def resnet50(classes: int = 1000, *, stem: Stem = "large") -> ResNet:
    """Return ResNet-50, version 1.5; 25,557,032 parameters for 1000 classes; see `resnet18`."""
    return ResNet(Bottleneck, (3, 4, 6, 3), classes, stem)
