"""The convolutional networks of the benchmarks, as tables of layers (`network_layers.py`).

They are those of `mm.nn.zoo` without dropout and auxiliary classifiers, and in training mode batch
norms use the batch's statistics.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from magmath.bench.peers.network_layers import (
    Activation,
    Conv,
    Dense,
    Flatten,
    GlobalPool,
    Layer,
    Layers,
    LocalNorm,
    Norm,
    Pair,
    Parallel,
    Pooling,
    Residual,
)


def _square(channels: int, kernel: int, stride: int = 1, **options: Any) -> Conv:
    """Return a convolution that keeps the size except for its stride."""
    return Conv(channels, (kernel, kernel), stride, (kernel // 2, kernel // 2), **options)


def _pool(kernel: int, stride: int, padding: int = 0, ceil: bool = False) -> Pooling:
    return Pooling("max", kernel, stride, padding, ceil)


def _head(units: Sequence[int], classes: int) -> Layers:
    return (Flatten(), *(Dense(n, "relu") for n in units), Dense(classes))


_ALEXNET_CIFAR: Layers = (
    _square(64, 3), _pool(2, 2), _square(192, 3), _pool(2, 2),
    _square(384, 3), _square(256, 3), _square(256, 3), _pool(2, 2), *_head((1024, 1024), 10),
)  # fmt: skip
_ALEXNET: Layers = (
    Conv(64, (11, 11), 4, (2, 2)), _pool(3, 2), _square(192, 5), _pool(3, 2),
    _square(384, 3), _square(256, 3), _square(256, 3), _pool(3, 2), *_head((4096, 4096), 1000),
)  # fmt: skip


def _vgg16() -> Layers:
    layers: list[Layer] = []
    for channels, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        layers += [_square(channels, 3)] * count + [_pool(2, 2)]
    return (*layers, *_head((4096, 4096), 1000))


def _inception_v1(
    ones: int, reduce3: int, threes: int, reduce5: int, fives: int, pooled: int
) -> Parallel:
    return Parallel(
        (
            (_square(ones, 1),),
            (_square(reduce3, 1), _square(threes, 3)),
            (_square(reduce5, 1), _square(fives, 5)),
            (_pool(3, 1, 1), _square(pooled, 1)),
        )
    )


_CEIL = _pool(3, 2, ceil=True)
_GOOGLENET: Layers = (
    _square(64, 7, 2), _CEIL, LocalNorm(), _square(64, 1), _square(192, 3), LocalNorm(), _CEIL,
    _inception_v1(64, 96, 128, 16, 32, 32), _inception_v1(128, 128, 192, 32, 96, 64), _CEIL,
    _inception_v1(192, 96, 208, 16, 48, 64), _inception_v1(160, 112, 224, 24, 64, 64),
    _inception_v1(128, 128, 256, 24, 64, 64), _inception_v1(112, 144, 288, 32, 64, 64),
    _inception_v1(256, 160, 320, 32, 128, 128), _CEIL,
    _inception_v1(256, 160, 320, 32, 128, 128), _inception_v1(384, 192, 384, 48, 128, 128),
    GlobalPool(), Dense(1000),
)  # fmt: skip


def _normed(channels: int, kernel: Pair, stride: int = 1, valid: bool = False) -> Layers:
    padding = (0, 0) if valid else (kernel[0] // 2, kernel[1] // 2)
    return (Conv(channels, kernel, stride, padding, False, "none"), Norm(1e-3))


def _v3(channels: int, kernel: int) -> Layers:
    return _normed(channels, (kernel, kernel))


def _shrink(channels: int) -> Layers:
    return _normed(channels, (3, 3), 2, valid=True)


_WIDE, _HIGH = (1, 7), (7, 1)
_MEAN = Pooling("mean", 3, 1, 1)


def _v3_a(pooled: int) -> Parallel:
    return Parallel(
        (_v3(64, 1), _v3(48, 1) + _v3(64, 5), _v3(64, 1) + _v3(96, 3) * 2, (_MEAN, *_v3(pooled, 1)))
    )


def _v3_c(channels: int) -> Parallel:
    narrow = [_normed(channels, _WIDE), _normed(channels, _HIGH)]
    return Parallel(
        (
            _v3(192, 1),
            _v3(channels, 1) + narrow[0] + _normed(192, _HIGH),
            _v3(channels, 1) + narrow[1] + narrow[0] + narrow[1] + _normed(192, _WIDE),
            (_MEAN, *_v3(192, 1)),
        )
    )


def _v3_e() -> Parallel:
    both = Parallel((_normed(384, (1, 3)), _normed(384, (3, 1))))
    return Parallel(
        (
            _v3(320, 1),
            (*_v3(384, 1), both),
            (*_v3(448, 1), *_v3(384, 3), both),
            (_MEAN, *_v3(192, 1)),
        )
    )


_INCEPTION_V3: Layers = (
    *_shrink(32), *_normed(32, (3, 3), valid=True), *_v3(64, 3), _pool(3, 2),
    *_v3(80, 1), *_normed(192, (3, 3), valid=True), _pool(3, 2),
    _v3_a(32), _v3_a(64), _v3_a(64),
    Parallel((_shrink(384), _v3(64, 1) + _v3(96, 3) + _shrink(96), (_pool(3, 2),))),
    _v3_c(128), _v3_c(160), _v3_c(160), _v3_c(192),
    Parallel(
        (
            _v3(192, 1) + _shrink(320),
            _v3(192, 1) + _normed(192, _WIDE) + _normed(192, _HIGH) + _shrink(192),
            (_pool(3, 2),),
        )
    ),
    _v3_e(), _v3_e(), GlobalPool(), Dense(1000),
)  # fmt: skip


def _bare(
    channels: int,
    kernel: int,
    stride: int = 1,
    activation: Activation = "relu",
    depthwise: bool = False,
) -> Layers:
    """Return a convolution without bias and a batch norm."""
    filters = _square(channels, kernel, stride, bias=False, activation="none", depthwise=depthwise)
    return (filters, Norm(activation=activation))


def _resnet(counts: Sequence[int], bottleneck: bool, stem: Layers, classes: int) -> Layers:
    layers: list[Layer] = list(stem)
    for stage, count in enumerate(counts):
        for block in range(count):
            channels, stride = 64 << stage, 2 if stage and not block else 1
            outputs = 4 * channels if bottleneck else channels
            if bottleneck:
                body = (
                    _bare(channels, 1)
                    + _bare(channels, 3, stride)
                    + _bare(outputs, 1, activation="none")
                )
            else:
                body = _bare(channels, 3, stride) + _bare(channels, 3, activation="none")
            project = not block and (stage or bottleneck)
            layers.append(
                Residual(body, _bare(outputs, 1, stride, activation="none") if project else ())
            )
    return (*layers, GlobalPool(), Dense(classes))


def _inverted(inputs: int, outputs: int, expansion: int, stride: int) -> Layers:
    """Return a block of MobileNet v2: wide inside, narrow and linear at its ends."""
    wide = inputs * expansion
    body = (
        *(_bare(wide, 1, activation="relu6") if expansion > 1 else ()),
        *_bare(wide, 3, stride, "relu6", depthwise=True),
        *_bare(outputs, 1, activation="none"),
    )
    is_residual = stride == 1 and inputs == outputs
    return (Residual(body, activation="none"),) if is_residual else body


def _mobilenet_v2() -> Layers:
    stages = (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2),
        (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    )  # fmt: skip
    layers, inputs = list(_bare(32, 3, 2, "relu6")), 32
    for expansion, channels, count, stride in stages:
        for block in range(count):
            layers += _inverted(inputs, channels, expansion, 1 if block else stride)
            inputs = channels
    return (*layers, *_bare(1280, 1, activation="relu6"), GlobalPool(), Dense(1000))


NETWORKS: dict[str, Layers] = {
    "alexnet_cifar": _ALEXNET_CIFAR,
    "alexnet": _ALEXNET,
    "vgg16": _vgg16(),
    "googlenet": _GOOGLENET,
    "inception_v3": _INCEPTION_V3,
    "resnet18": _resnet((2, 2, 2, 2), False, _bare(64, 3), 10),
    "resnet50": _resnet((3, 4, 6, 3), True, (*_bare(64, 7, 2), _pool(3, 2, 1)), 1000),
    "mobilenet_v2": _mobilenet_v2(),
}
"""The networks by the names of `mm.nn.zoo`; `resnet18` is the form for 32×32 images."""

# Settings of the functions of `mm.nn.zoo` for the same networks.
ZOO_SETTINGS: dict[str, dict[str, Any]] = {
    "alexnet_cifar": {"dropout": 0.0},
    "alexnet": {"dropout": 0.0},
    "vgg16": {"dropout": 0.0},
    "googlenet": {"dropout": 0.0},
    "inception_v3": {"dropout": 0.0},
    "resnet18": {"stem": "small"},
    "resnet50": {},
    "mobilenet_v2": {"dropout": 0.0},
}
