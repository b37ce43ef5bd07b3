"""The convolutional networks of `bench cnn` and `bench infer`, for all frameworks.

A network is a table of layers; `forward` computes it with the operations of one framework, and
`draw_weights` draws its weights, in the order in which `forward` takes them. So all systems compute
the same network from the same numbers. NumPy only. The networks are those of `mm.nn.zoo` without
dropout and auxiliary classifiers, and in training mode batch norms use the batch's statistics.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, Protocol, final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Pair = tuple[int, int]
Activation = Literal["none", "relu", "relu6"]


@final
@dataclass(frozen=True)
class Conv:
    """A convolution with `channels` filters; `depthwise`: one for each channel of the images."""

    channels: int
    kernel: Pair
    stride: int = 1
    padding: Pair = (0, 0)
    bias: bool = True
    activation: Activation = "relu"
    depthwise: bool = False

    @property
    def groups(self) -> int:
        """The number of groups of channels that are convolved separately."""
        return self.channels if self.depthwise else 1


@final
@dataclass(frozen=True)
class Norm:
    """Batch normalization."""

    epsilon: float = 1e-5
    activation: Activation = "relu"


@final
@dataclass(frozen=True)
class Pooling:
    """Maximum or mean of windows; `ceil`: the last window may begin within and end outside. Means
    count padding as zeros."""

    kind: Literal["max", "mean"]
    kernel: int
    stride: int
    padding: int = 0
    ceil: bool = False


@final
@dataclass(frozen=True)
class LocalNorm:
    """Local response normalization over `size` channels: x / (1 + 1e-4 · mean of squares)^0.75."""

    size: int = 5


@final
@dataclass(frozen=True)
class Flatten:
    """(N, C, H, W) → (N, C·H·W)."""


@final
@dataclass(frozen=True)
class GlobalPool:
    """(N, C, H, W) → (N, C), the means."""


@final
@dataclass(frozen=True)
class Dense:
    """A matrix product with bias."""

    units: int
    activation: Activation = "none"


@final
@dataclass(frozen=True)
class Parallel:
    """Branches of the same input, joined along the channels."""

    branches: tuple[Layers, ...]


@final
@dataclass(frozen=True)
class Residual:
    """activation(body(x) + shortcut(x)); an empty shortcut is x itself."""

    body: Layers
    shortcut: Layers = ()
    activation: Activation = "relu"


Layer = Conv | Norm | Pooling | LocalNorm | Flatten | GlobalPool | Dense | Parallel | Residual
Layers = tuple[Layer, ...]


class Operations(Protocol):
    """The operations of a framework. Weights are in its own types and memory orders."""

    def conv(self, x: Any, weight: Any, bias: Any, layer: Conv) -> Any: ...
    def norm(self, x: Any, scale: Any, shift: Any, layer: Norm) -> Any: ...
    def pool(self, x: Any, layer: Pooling) -> Any: ...
    def local_norm(self, x: Any, layer: LocalNorm) -> Any: ...
    def flatten(self, x: Any) -> Any: ...
    def global_pool(self, x: Any) -> Any: ...
    def dense(self, x: Any, weight: Any, bias: Any, layer: Dense) -> Any: ...
    def join(self, xs: list[Any]) -> Any: ...
    def add(self, x: Any, y: Any, layer: Residual) -> Any: ...


def forward(layers: Layers, x: Any, weights: Iterator[Any], ops: Operations) -> Any:
    """Return the outputs of layers; takes the weights that it needs."""
    for layer in layers:
        match layer:
            case Conv():
                x = ops.conv(x, next(weights), next(weights) if layer.bias else None, layer)
            case Norm():
                x = ops.norm(x, next(weights), next(weights), layer)
            case Pooling():
                x = ops.pool(x, layer)
            case LocalNorm():
                x = ops.local_norm(x, layer)
            case Flatten():
                x = ops.flatten(x)
            case GlobalPool():
                x = ops.global_pool(x)
            case Dense():
                x = ops.dense(x, next(weights), next(weights), layer)
            case Parallel():
                x = ops.join([forward(branch, x, weights, ops) for branch in layer.branches])
            case Residual():
                body = forward(layer.body, x, weights, ops)
                x = ops.add(body, forward(layer.shortcut, x, weights, ops), layer)
    return x


@final
class _Draw:
    """Operations on shapes (C, H, W) that draw the weights, of which `forward` gets no others."""

    def __init__(self) -> None:
        self.weights: list[Floats] = []
        self._random = np.random.default_rng(2)

    def _he(self, shape: tuple[int, ...], fan_in: int) -> None:
        """Draw a weight (He et al. 2015, equation 10)."""
        scale = np.float32(np.sqrt(2 / fan_in))
        self.weights.append(self._random.standard_normal(shape, dtype=np.float32) * scale)

    def conv(self, x: Any, weight: Any, bias: Any, layer: Conv) -> Any:
        shape = (layer.channels, x[0] // layer.groups, *layer.kernel)
        self._he(shape, shape[1] * layer.kernel[0] * layer.kernel[1])
        if layer.bias:
            self.weights.append(np.zeros(layer.channels, np.float32))
        sizes = [
            (n + 2 * p - k) // layer.stride + 1
            for n, k, p in zip(x[1:], layer.kernel, layer.padding, strict=True)
        ]
        return layer.channels, *sizes

    def norm(self, x: Any, scale: Any, shift: Any, layer: Norm) -> Any:
        self.weights += [np.ones(x[0], np.float32), np.zeros(x[0], np.float32)]
        return x

    def pool(self, x: Any, layer: Pooling) -> Any:
        sizes = [n + 2 * layer.padding - layer.kernel for n in x[1:]]
        return x[0], *[
            -(-n // layer.stride) + 1 if layer.ceil else n // layer.stride + 1 for n in sizes
        ]

    def local_norm(self, x: Any, layer: LocalNorm) -> Any:
        return x

    def flatten(self, x: Any) -> Any:
        return (x[0] * x[1] * x[2],)

    def global_pool(self, x: Any) -> Any:
        return (x[0],)

    def dense(self, x: Any, weight: Any, bias: Any, layer: Dense) -> Any:
        self._he((x[0], layer.units), x[0])
        self.weights.append(np.zeros(layer.units, np.float32))
        return (layer.units,)

    def join(self, xs: list[Any]) -> Any:
        return sum(x[0] for x in xs), *xs[0][1:]

    def add(self, x: Any, y: Any, layer: Residual) -> Any:
        return x


@final
class _NoWeights(Iterator[None]):
    def __next__(self) -> None:
        return None


def draw_weights(layers: Layers, shape: tuple[int, int, int]) -> list[Floats]:
    """Return the weights for images of a shape (C, H, W), the same for every call.

    Filters are (outputs, inputs, height, width), dense weights (inputs, outputs).
    """
    drawing = _Draw()
    forward(layers, shape, _NoWeights(), drawing)
    return drawing.weights


# The networks


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


@final
@dataclass(frozen=True)
class NetworkProblem:
    """A network, a batch of random images (batch, 3, size, size), and `epochs` steps of SGD on that
    batch, or so many computations of its outputs.

    precision  "float32", "mixed-bfloat16" or "mixed-float16"; for outputs also "bfloat16" or
               "float16", the type of the weights
    """

    network: str
    batch: int
    size: int
    epochs: int
    purpose: Literal["train", "infer"] = "train"
    precision: str = "float32"
    learning_rate: float = 1e-3
    device: str = "cpu"

    @classmethod
    def of(cls, case: dict[str, Any]) -> NetworkProblem:
        """Return the problem of a case's parameters, ignoring other parameters."""
        return cls(**{field.name: case[field.name] for field in fields(cls) if field.name in case})

    @property
    def is_half(self) -> bool:
        """Whether the weights are of a half type."""
        return self.precision in ("bfloat16", "float16")

    @property
    def layers(self) -> Layers:
        """The layers of the network."""
        return NETWORKS[self.network]

    @property
    def classes(self) -> int:
        """The number of classes."""
        last = self.layers[-1]
        assert isinstance(last, Dense)
        return last.units

    def data(self) -> tuple[Floats, npt.NDArray[np.int64]]:
        """Return images (batch, 3, size, size), standard normal, and labels (batch,)."""
        random = np.random.default_rng(1)
        images = random.standard_normal((self.batch, 3, self.size, self.size), dtype=np.float32)
        return images, random.integers(0, self.classes, self.batch)

    def weights(self) -> list[Floats]:
        """Return the initial weights, in the order of `forward`."""
        return draw_weights(self.layers, (3, self.size, self.size))
