"""Functions of images against PyTorch in float64, in any layout: values, first and second
gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as T
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import magmath as mm
from engines import current, engine_of
from magmath.arrays.array import Array
from magmath.errors import MagmathError
from magmath.nn import functional as F
from operation_bodies import leaf, placements

POOLS = [("inline", 1), ("shared", 2), ("messages", 3)]
every_pool = pytest.mark.parametrize(("kind", "workers"), POOLS, ids=[f"{n}-{k}" for k, n in POOLS])
few = settings(
    max_examples=3,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)

Function = Callable[..., Any]
Case = tuple[list[Any], Function, Function]
"""Operands, the function of magmath and that of PyTorch."""


class Draw:
    """Draws of shapes and settings, and numbers."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.random = np.random.default_rng(self.integer(0, 1 << 30))

    def integer(self, low: int, high: int) -> int:
        return self.data.draw(st.integers(low, high))

    def of(self, choices: Sequence[Any]) -> Any:
        return self.data.draw(st.sampled_from(choices))

    def space(self, least: int = 1) -> tuple[int, ...]:
        """The extents of one to three dimensions."""
        count = self.of([1, 2, 2, 3])
        return tuple(self.integer(least, 5 if count == 3 else 8) for _ in range(count))

    def numbers(self, *shape: int) -> Any:
        return self.random.normal(size=shape)


def _conv(d: Draw) -> Case:
    space, groups = d.space(3), d.integer(1, 2)
    kernel = [d.integer(1, 3) for _ in space]
    stride, padding = [[d.integer(low, low + 1) for _ in space] for low in (1, 0)]
    channels, outputs = groups * d.integer(1, 2), groups * d.integer(1, 2)
    x = d.numbers(d.integer(1, 3), channels, *space)
    w = d.numbers(outputs, channels // groups, *kernel)
    options = {"stride": stride, "padding": padding, "groups": groups}
    options["dilation"] = d.integer(1, 2) if max(kernel) < 3 else 1
    if max(stride) == 1 and all(k % 2 for k in kernel):
        options["padding"] = "same"
    theirs = getattr(T, f"conv{len(space)}d")
    return (
        [x, w, d.numbers(outputs)],
        lambda x, w, b: F.conv(x, w, b, **options),
        lambda x, w, b: theirs(x, w, b, **options),
    )


def _conv_transpose(d: Draw) -> Case:
    space, groups, stride = d.space(2), d.integer(1, 2), d.integer(1, 3)
    kernel, dilation = [d.integer(1, 3) for _ in space], d.integer(1, 3)
    x = d.numbers(d.integer(1, 3), groups * 2, *space)
    w = d.numbers(groups * 2, d.integer(1, 2), *kernel)
    options: dict[str, Any] = {
        "stride": stride,
        "padding": d.integer(0, 1) if min(kernel) > 1 else 0,
        "output_padding": d.integer(0, max(stride, dilation) - 1),
        "dilation": dilation,
        "groups": groups,
    }
    theirs = getattr(T, f"conv_transpose{len(space)}d")
    return (
        [x, w, d.numbers(w.shape[1] * groups)],
        lambda x, w, b: F.conv_transpose(x, w, b, **options),
        lambda x, w, b: theirs(x, w, b, **options),
    )


def _window(d: Draw, space: tuple[int, ...]) -> tuple[list[int], dict[str, Any]]:
    kernel = [d.integer(1, 3) for _ in space]
    stride = d.of([None, [d.integer(1, 3) for _ in space]])
    padding = [d.integer(0, k // 2) for k in kernel]
    return kernel, {"stride": stride, "padding": padding, "ceil_mode": d.of([False, True])}


def _max_pool(d: Draw) -> Case:
    space = d.space(3)
    kernel, options = _window(d, space)
    theirs = getattr(T, f"max_pool{len(space)}d")
    x = d.numbers(2, d.integer(1, 3), *space)
    return (
        [x if d.of([True, False]) else np.round(x)],  # with ties, and without
        lambda x: F.max_pool(x, kernel, **options),
        lambda x: theirs(x, kernel, **options),
    )


def _avg_pool(d: Draw) -> Case:
    space = d.space(3)
    kernel, options = _window(d, space)
    options["count_include_pad"] = d.of([False, True])
    theirs = getattr(T, f"avg_pool{len(space)}d")
    return (
        [d.numbers(2, d.integer(1, 3), *space)],
        lambda x: F.avg_pool(x, kernel, **options),
        lambda x: theirs(x, kernel, **options),
    )


def _adaptive(kind: str) -> Callable[[Draw], Case]:
    def case(d: Draw) -> Case:
        space = d.space()
        size = [d.integer(1, n + 1) for n in space]
        ours, name = getattr(F, f"adaptive_{kind}_pool"), f"adaptive_{kind}_pool{len(space)}d"
        theirs = getattr(T, name)
        x = d.numbers(2, d.integer(1, 2), *space)
        return [x], lambda x: ours(x, size), lambda x: theirs(x, size)

    return case


def _group_norm(d: Draw) -> Case:
    groups, more = d.integer(1, 3), d.integer(1, 2)
    channels = groups * more
    x = d.numbers(2, channels, *d.space(2))
    return (
        [x, d.numbers(channels), d.numbers(channels)],
        lambda x, w, b: F.group_norm(x, groups, w, b),
        lambda x, w, b: T.group_norm(x, groups, w, b),
    )


def _instance_norm(d: Draw) -> Case:
    x = d.numbers(2, d.integer(1, 3), *d.space(2))
    return [x], F.instance_norm, T.instance_norm


def _local_response_norm(d: Draw) -> Case:
    x, size = d.numbers(2, d.integer(1, 6), *d.space()), d.integer(1, 5)
    return (
        [x],
        lambda x: F.local_response_norm(x, size, 0.3, 0.75, 2.0),
        lambda x: T.local_response_norm(x, size, 0.3, 0.75, 2.0),
    )


def _batch_norm(d: Draw) -> Case:
    """Moments of the batch are functions of x too."""
    channels = d.integer(1, 3)
    x = d.numbers(3, channels, *d.space(2))
    return (
        [x, d.numbers(channels), d.numbers(channels)],
        lambda x, w, b: F.batch_norm(x, *F.batch_moments(x), w, b),
        lambda x, w, b: T.batch_norm(x, None, None, w, b, training=True),
    )


def _interpolate(d: Draw) -> Case:
    space = d.space()
    size = [d.integer(1, 9) for _ in space]
    x = d.numbers(2, d.integer(1, 2), *space)
    linear = ["linear", "bilinear", "trilinear"][len(space) - 1]
    modes = ["nearest", "nearest-exact", "area", linear] + ["bicubic"] * (len(space) == 2)
    options: dict[str, Any] = {"mode": d.of(modes)}
    if options["mode"] in (linear, "bicubic"):
        options["align_corners"] = d.of([True, False])
        options["antialias"] = len(space) == 2 and d.of([True, False])
    return (
        [x],
        lambda x: F.interpolate(x, size, **options),
        lambda x: T.interpolate(x, size, **options),
    )


def _pad(d: Draw) -> Case:
    space, mode = d.space(3), d.of(["constant", "reflect", "replicate", "circular"])
    padding = [d.integer(0, 2) for _ in range(2 * len(space))]
    x = d.numbers(2, 2, *space)
    return [x], lambda x: F.pad(x, padding, mode), lambda x: T.pad(x, padding, mode)


def _prelu(d: Draw) -> Case:
    x = d.numbers(2, d.integer(1, 4), *d.space())
    weight = d.numbers(d.of([1, x.shape[1]]))
    return [x, weight], F.prelu, T.prelu


def _channel_shuffle(d: Draw) -> Case:
    groups = d.integer(1, 3)
    x = d.numbers(2, groups * d.integer(1, 3), *d.space())
    return [x], lambda x: F.channel_shuffle(x, groups), lambda x: _shuffled(x, groups)


def _shuffled(x: torch.Tensor, groups: int) -> torch.Tensor:  # torch's has no second gradient
    return x.unflatten(1, (groups, -1)).transpose(1, 2).flatten(1, 2)


def _pixel_shuffle(d: Draw) -> Case:
    factor = d.integer(1, 3)
    x = d.numbers(2, factor**2 * d.integer(1, 2), d.integer(1, 4), d.integer(1, 4))
    return [x], lambda x: F.pixel_shuffle(x, factor), lambda x: T.pixel_shuffle(x, factor)


def _pixel_unshuffle(d: Draw) -> Case:
    factor = d.integer(1, 3)
    x = d.numbers(2, d.integer(1, 2), factor * d.integer(1, 3), factor * d.integer(1, 3))
    return [x], lambda x: F.pixel_unshuffle(x, factor), lambda x: T.pixel_unshuffle(x, factor)


CASES: dict[str, Callable[[Draw], Case]] = {
    "conv": _conv,
    "conv_transpose": _conv_transpose,
    "max_pool": _max_pool,
    "avg_pool": _avg_pool,
    "adaptive_avg_pool": _adaptive("avg"),
    "adaptive_max_pool": _adaptive("max"),
    "batch_norm": _batch_norm,
    "group_norm": _group_norm,
    "instance_norm": _instance_norm,
    "local_response_norm": _local_response_norm,
    "interpolate": _interpolate,
    "pad": _pad,
    "prelu": _prelu,
    "channel_shuffle": _channel_shuffle,
    "pixel_shuffle": _pixel_shuffle,
    "pixel_unshuffle": _pixel_unshuffle,
}


@every_pool
@pytest.mark.parametrize("name", CASES)
@given(data=st.data())
@few
def test_values_and_gradients_equal_pytorch(
    name: str, kind: str, workers: int, data: st.DataObject
) -> None:
    operands, ours, theirs = CASES[name](Draw(data))
    with current(kind, workers):
        engine = engine_of(kind, workers)
        tensors = [torch.from_numpy(x) for x in operands]
        arrays = [Array(leaf(engine, x, data.draw(placements(x, engine)))) for x in tensors]
        actual = _with_slopes(ours(*arrays), arrays)
        mm.evaluate(*actual)
        results = [np.asarray(x) for x in actual]
    inputs = [x.clone().requires_grad_() for x in tensors]
    expected = _torch_slopes(theirs(*inputs), inputs)
    for result, known in zip(results, expected, strict=True):
        want = known.detach().numpy()
        scale = max(1.0, float(np.abs(want).max(initial=0)))
        np.testing.assert_allclose(result, want, rtol=1e-8, atol=1e-9 * scale)


def test_layers_of_shuffled_pixels_and_channels() -> None:
    x = np.random.default_rng(1).normal(size=(2, 8, 3, 2))
    with current("inline"):
        ours = mm.nn.Sequential(
            mm.nn.PReLU(8), mm.nn.ChannelShuffle(4), mm.nn.PixelShuffle(2), mm.nn.PReLU()
        )
        actual = ours(mm.asarray(x)).numpy()
        assert ours.state_dict().keys() == {"0.weight", "3.weight"}
        back = mm.nn.PixelUnshuffle(2)(mm.nn.PixelShuffle(2)(mm.asarray(x))).numpy()
    theirs = torch.nn.Sequential(
        torch.nn.PReLU(8), torch.nn.ChannelShuffle(4), torch.nn.PixelShuffle(2), torch.nn.PReLU()
    )
    expected = theirs.double()(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(actual, expected, rtol=1e-6)
    np.testing.assert_array_equal(back, x)


def _weights(shape: tuple[int, ...]) -> Any:
    return np.random.default_rng(9).uniform(0.5, 1.5, shape)


def _with_slopes(y: Array, inputs: list[Array]) -> list[Array]:
    """The result, its gradients, and the gradients of the sum of their squares."""
    first = mm.grad(mm.sum(y * y * mm.asarray(_weights(y.shape))), inputs)
    total = first[0] * 0.0
    total = mm.sum(total)
    for slope in first:
        total = total + mm.sum(slope * slope)
    return [y, *first, *mm.grad(total, inputs)]


def _torch_slopes(y: torch.Tensor, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    total = (y * y * torch.from_numpy(_weights(tuple(y.shape)))).sum()
    first = torch.autograd.grad(total, inputs, create_graph=True)
    squares = sum([(slope * slope).sum() for slope in first], torch.zeros(()))
    second = torch.autograd.grad(squares, inputs, allow_unused=True)
    zeros = [torch.zeros_like(x) for x in inputs]
    return [y, *first, *[z if s is None else s for s, z in zip(second, zeros, strict=True)]]


# errors ------------------------------------------------------------------------------------------

X = np.zeros((2, 4, 6, 5))
MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "groups": (lambda: F.conv2d(X, np.zeros((6, 2, 3, 3)), groups=3), "groups must divide 4"),
    "channels": (lambda: F.conv2d(X, np.zeros((6, 3, 3, 3))), "takes images with 3 channels"),
    "image": (lambda: F.conv2d(X[0], np.zeros((6, 4, 3, 3))), r"x\[None\] is a batch of one"),
    "filter": (lambda: F.conv2d(X, np.zeros((6, 4, 3, 7))), "covers 7 elements of dimension 1"),
    "padding": (lambda: F.conv2d(X, np.zeros((6, 4, 3, 3)), padding="full"), '"same" or "valid"'),
    "window": (lambda: F.max_pool2d(X, 7), "a window of 7 elements"),
    "half": (lambda: F.avg_pool2d(X, 3, padding=2), "at most half of the window"),
    "one value": (lambda: mm.nn.BatchNorm()(np.zeros((1, 3))), "more than one value of each"),
    "reflection": (lambda: mm.nn.ReflectionPad2d(6)(X), "adds at most 5"),
    "group norm": (lambda: mm.nn.GroupNorm(3)(X), "3 groups divide"),
    "output": (lambda: mm.nn.Conv2d(5, 3, groups=2), "groups must divide the 5 channels"),
    "size": (lambda: F.interpolate(X), "either size or scale_factor"),
    "shuffled groups": (lambda: F.channel_shuffle(X, 3), "channels that 3 divides"),
    "shuffled pixels": (
        lambda: F.pixel_shuffle(X, 3),
        r"channels that 9 divides, was given \(2, 4",
    ),
    "pixels": (lambda: F.pixel_unshuffle(X, 5), "must divide height and width, was given 5"),
    "slopes": (lambda: F.prelu(X, mm.ones(3)), r"\(1,\) or \(channels,\), was given \(3,\)"),
    "shortcut": (
        lambda: mm.nn.Residual(mm.nn.Conv2d(5, 3, stride=2, padding=1))(mm.asarray(X)),
        r"give shortcut=mm.nn.Conv2d\(5, 1, stride=2\)",
    ),
    "branches": (
        lambda: mm.nn.Parallel(mm.nn.MaxPool2d(2), mm.nn.MaxPool2d(3))(mm.asarray(X)),
        r"Parallel: joins branches along axis 1; they give \(2, 4, 3, 2\), \(2, 4, 2, 1\)",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_explained(name: str) -> None:
    call, message = MISTAKES[name]
    with current("inline"), pytest.raises(MagmathError, match=message):
        call()


def test_a_layer_refuses_other_channels_than_before() -> None:
    with current("inline"):
        layer = mm.nn.Conv2d(6, 3)
        layer.build((1, 3, 8, 8))
        with pytest.raises(MagmathError, match="weight .* takes images with 3 channels"):
            layer(mm.zeros((1, 6, 8, 8)))


def test_depthwise_filters_read_one_channel_each() -> None:
    with current("inline"):
        layer = mm.nn.Conv2d(6, 3, groups="depthwise")
        layer.build((1, 3, 8, 8))
        assert layer.weight.shape == (6, 1, 3, 3)


def test_same_padding_with_strides_keeps_a_share_of_the_size() -> None:
    with current("inline"):
        for n, stride in ((7, 2), (8, 2), (9, 3), (5, 4)):
            x, w = mm.zeros((1, 1, n)), mm.zeros((1, 1, 3))
            y = F.conv1d(x, w, stride=stride, padding="same")
            assert y.shape[2] == -(-n // stride)
            back = F.conv_transpose1d(y, w, stride=stride, padding="same")
            assert back.shape[2] == y.shape[2] * stride


@every_pool
@given(data=st.data())
@settings(few, max_examples=20)
def test_gradients_of_maxima_of_infinities_and_nan_are_those_of_torch(
    kind: str, workers: int, data: st.DataObject
) -> None:
    """Many windows contain only -inf, some several NaN; cotangents never leave the image."""
    d, engine = Draw(data), engine_of(kind, workers)
    kernel = [d.integer(1, 3) for _ in range(d.of([1, 2, 2, 3]))]
    stride, dilation = ([d.integer(1, 2) for _ in kernel] for _ in range(2))
    padding = [d.integer(0, k // 2) for k in kernel]
    space = [step * (k - 1) + d.integer(1, 4) for k, step in zip(kernel, dilation, strict=True)]
    x = d.random.choice([-np.inf, -np.inf, -np.inf, np.nan, 0.0], (2, d.integer(1, 3), *space))
    theirs = getattr(T, f"max_pool{len(space)}d")
    a = torch.tensor(x, requires_grad=True)
    y = theirs(a, kernel, stride, padding, dilation)
    g, h = (torch.tensor(d.random.normal(size=n)).requires_grad_() for n in (y.shape, x.shape))
    (slope,) = torch.autograd.grad(torch.sum(y * g), a, create_graph=True)
    (second,) = torch.autograd.grad(torch.sum(slope * h), g)
    with current(kind, workers):
        values = [v.detach().clone() for v in (a, g, h)]
        b, g, h = (Array(leaf(engine, v, d.data.draw(placements(v, engine)))) for v in values)
        y = F.max_pool(b, tuple(kernel), tuple(stride), tuple(padding), dilation=tuple(dilation))
        result = mm.grad(mm.sum(y * g), b, create_graph=True)
        np.testing.assert_allclose(np.asarray(result), slope.detach().numpy())
        np.testing.assert_allclose(np.asarray(mm.grad(mm.sum(result * h), g)), second.numpy())


def test_pooling_of_a_batch_of_examples() -> None:
    """`vmap` adds a dimension in front."""
    with current("inline"):
        x = mm.asarray(np.random.default_rng(1).normal(size=(3, 2, 4, 6, 6)))
        one = mm.stack([F.max_pool2d(x[i], 2) for i in range(3)])
        every = mm.vmap(lambda image: F.max_pool2d(image, 2))(x)
        assert bool(mm.all(one == every))


def test_nan_is_the_maximum_of_its_window() -> None:
    with current("inline"):
        x = np.array([[[1.0, np.nan, 3.0, 0.0, -np.inf, -np.inf]]])
        np.testing.assert_array_equal(
            F.max_pool1d(x, 2).numpy(), np.array([[[np.nan, 3.0, -np.inf]]])
        )
