"""Random networks: graphs of layers that are drawn from a table, for magmath and for PyTorch.

A network is a list of steps. Each one reads one or two of the maps before it, and all maps count in
the scores, so that branches, joins and values with several readers occur in every combination.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import magmath as mm
from magmath.nn import functional as fn

Shape = tuple[int, ...]
Function = Callable[..., Any]
Rule = tuple[Sequence[Shape], Function, Function]
"""The shapes of weights, and the functions of maps and weights: magmath's and PyTorch's."""

CLASSES = 3
MAX_CHANNELS, MAX_MAP = 12, 14


@dataclass(frozen=True)
class Step:
    """One layer: the maps that it reads, by number, its weights by name, and its functions."""

    name: str
    reads: tuple[int, ...]
    weights: tuple[str, ...]
    ours: Function
    theirs: Function


class RandomNetwork:
    """A network of `depth` layers for images of a shape (N, channels, H, W)."""

    def __init__(self, seed: int, shape: Shape, depth: int = 6) -> None:
        self.random = np.random.default_rng(seed)
        self.steps: list[Step] = []
        self.weights: dict[str, Any] = {}
        maps = [torch.zeros(shape, dtype=torch.float64)]
        while len(self.steps) < depth:
            self._grow(maps)
        features = sum(m.shape[1] for m in maps)
        self.weights["head"] = self.random.normal(size=(features, CLASSES)) / math.sqrt(features)

    def _grow(self, maps: list[torch.Tensor]) -> None:
        """Append a step that fits the maps, unless its map would be too small or too large."""
        names = sorted([*LAYERS, *JOINS])
        name = names[int(self.random.integers(len(names)))]
        reads = tuple(int(i) for i in self.random.integers(len(maps), size=1 + (name in JOINS)))
        reads = (len(maps) - 1, *reads[1:]) if self.random.random() < 0.6 else reads
        rule = (JOINS | LAYERS)[name](self.random, *[tuple(maps[i].shape) for i in reads])
        if rule is None:
            return
        values = [self.random.normal(size=s) / math.sqrt(max(1, math.prod(s[1:]))) for s in rule[0]]
        try:
            made = rule[2](*[maps[i] for i in reads], *map(torch.from_numpy, values))
        except RuntimeError:  # a window that exceeds the map
            return
        if min(made.shape[2:]) < 1 or max(made.shape[2:]) > MAX_MAP:
            return
        weights = {f"{len(self.steps)}.{name}.{i}": value for i, value in enumerate(values)}
        self.weights |= weights
        self.steps.append(Step(name, reads, tuple(weights), *rule[1:]))
        maps.append(made)

    def ours(self, weights: dict[str, Any], x: Any) -> Any:
        """The scores (N, classes) by magmath."""
        maps = [x]
        for step in self.steps:
            values = [weights[name] for name in step.weights]
            maps.append(step.ours(*[maps[i] for i in step.reads], *values))
        pooled = mm.concat([mm.mean(m, axis=(2, 3)) for m in maps], axis=1)
        return pooled @ weights["head"]

    def theirs(self, weights: dict[str, Any], x: Any) -> Any:
        """The scores (N, classes) by PyTorch."""
        maps = [x]
        for step in self.steps:
            values = [weights[name] for name in step.weights]
            maps.append(step.theirs(*[maps[i] for i in step.reads], *values))
        return torch.cat([m.mean((2, 3)) for m in maps], 1) @ weights["head"]

    def __repr__(self) -> str:
        return " ".join(f"{i}={s.name}{s.reads}" for i, s in enumerate(self.steps, 1))


def _one_of(random: Any, *choices: Any) -> Any:
    return choices[int(random.integers(len(choices)))]


# layers of one map --------------------------------------------------------------------------------


def _convolution(random: Any, x: Shape) -> Rule:
    groups = _one_of(random, *[g for g in (1, 1, 2, x[1]) if x[1] % g == 0])
    outputs = groups * int(random.integers(1, max(2, MAX_CHANNELS // groups + 1)))
    kernel = tuple(int(k) for k in random.integers(1, 6, size=2))
    stride, dilation = _one_of(random, 1, 1, 2, 3), _one_of(random, 1, 1, 2)
    padding = tuple(int(k) for k in random.integers(0, 4, size=2))
    bias = [(outputs,)] if random.random() < 0.5 else []

    def ours(x: Any, w: Any, *b: Any) -> Any:
        return fn.conv(x, w, *b, stride=stride, padding=padding, dilation=dilation, groups=groups)

    def theirs(x: Any, w: Any, *b: Any) -> Any:
        return F.conv2d(x, w, b[0] if b else None, stride, padding, dilation, groups)

    return [(outputs, x[1] // groups, *kernel), *bias], ours, theirs


def _transposed(random: Any, x: Shape) -> Rule:
    groups = _one_of(random, *[g for g in (1, 2, x[1]) if x[1] % g == 0])
    kernel = tuple(int(k) for k in random.integers(1, 5, size=2))
    stride = _one_of(random, 1, 2)
    padding, added = _one_of(random, 0, 1), int(random.integers(stride))
    outputs = int(random.integers(1, 4))

    def ours(x: Any, w: Any) -> Any:
        return fn.conv_transpose(
            x, w, stride=stride, padding=padding, output_padding=added, groups=groups
        )

    def theirs(x: Any, w: Any) -> Any:
        return F.conv_transpose2d(x, w, None, stride, padding, added, groups)

    return [(x[1], outputs, *kernel)], ours, theirs


def _batch_norm(_: Any, x: Shape) -> Rule:
    c = (x[1],)
    return (
        [c, c],
        lambda x, w, b: fn.batch_norm(x, *fn.batch_moments(x), w, b),
        lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
    )


def _constant_norm(_: Any, x: Shape) -> Rule:
    """Batch normalization in evaluation mode, which is folded into convolutions."""
    c = (x[1],)

    def theirs(x: Any, *vectors: Any) -> Any:
        m, v, w, b = [u[:, None, None] for u in vectors]
        return (x - m) / torch.sqrt(v * v + 0.1 + 1e-5) * w + b

    return [c, c, c, c], lambda x, m, v, w, b: fn.batch_norm(x, m, v * v + 0.1, w, b), theirs


def _group_norm(random: Any, x: Shape) -> Rule | None:
    groups = _one_of(random, *[g for g in (1, 2, 3, x[1]) if x[1] % g == 0])
    if math.prod(x[1:]) // groups == 1:  # one value, which is its mean
        return None
    c = (x[1],)
    return (
        [c, c],
        lambda x, w, b: fn.group_norm(x, groups, w, b),
        lambda x, w, b: F.group_norm(x, groups, w, b),
    )


def _channels_last_norm(_: Any, x: Shape) -> Rule | None:
    """Layer normalization over channels, as in ConvNeXt."""
    if x[1] == 1:
        return None
    c = (x[1],)
    return (
        [c, c],
        lambda x, w, b: mm.moveaxis(fn.layer_norm(mm.moveaxis(x, 1, -1), x.shape[1], w, b), -1, 1),
        lambda x, w, b: F.layer_norm(x.movedim(1, -1), (x.shape[1],), w, b).movedim(-1, 1),
    )


def _pooling(random: Any, _: Shape) -> Rule:
    kernel = tuple(int(k) for k in random.integers(1, 4, size=2))
    stride, padding = _one_of(random, 1, 2, 3), _one_of(random, 0, min(kernel) // 2)
    ceil = bool(random.random() < 0.3)
    if random.random() < 0.5:
        return (
            [],
            lambda x: fn.max_pool(x, kernel, stride, padding, ceil_mode=ceil),
            lambda x: F.max_pool2d(x, kernel, stride, padding, ceil_mode=ceil),
        )
    counts = bool(random.random() < 0.5)
    return (
        [],
        lambda x: fn.avg_pool(x, kernel, stride, padding, ceil_mode=ceil, count_include_pad=counts),
        lambda x: F.avg_pool2d(x, kernel, stride, padding, ceil, counts),
    )


def _adaptive(random: Any, x: Shape) -> Rule:
    size = tuple(int(random.integers(1, n + 1)) for n in x[2:])
    if random.random() < 0.5:
        return [], lambda x: fn.adaptive_max_pool(x, size), lambda x: F.adaptive_max_pool2d(x, size)
    return [], lambda x: fn.adaptive_avg_pool(x, size), lambda x: F.adaptive_avg_pool2d(x, size)


ACTIVATIONS: list[tuple[Function, Function]] = [
    (mm.relu, F.relu), (fn.relu6, F.relu6), (fn.silu, F.silu), (fn.hard_swish, F.hardswish),
    (fn.gelu, F.gelu), (fn.elu, F.elu), (fn.leaky_relu, F.leaky_relu), (fn.mish, F.mish),
    (mm.tanh, torch.tanh), (mm.abs, torch.abs), (mm.sigmoid, torch.sigmoid),
    (lambda x: mm.softmax(x, axis=1), lambda x: F.softmax(x, 1)),
]  # fmt: skip


def _activation(random: Any, _: Shape) -> Rule:
    return [], *_one_of(random, *ACTIVATIONS)


def _learned_slope(_: Any, x: Shape) -> Rule:
    return (
        [(x[1], 1, 1)],
        lambda x, a: mm.where(x > 0, x, a * x),
        lambda x, a: torch.where(x > 0, x, a * x),
    )


def _squeeze_excitation(random: Any, x: Shape) -> Rule:
    inner = int(random.integers(1, 4))
    return (
        [(x[1], inner), (inner, x[1])],
        lambda x, a, b: x * mm.sigmoid(mm.relu(mm.mean(x, axis=(2, 3)) @ a) @ b)[:, :, None, None],
        lambda x, a, b: x * torch.sigmoid(F.relu(x.mean((2, 3)) @ a) @ b)[:, :, None, None],
    )


def _attention(random: Any, x: Shape) -> Rule:
    """One head of attention of all pixels to all pixels."""
    c, d = x[1], int(random.integers(1, 5))

    def ours(x: Any, q: Any, k: Any, v: Any) -> Any:
        tokens = mm.matrix_transpose(mm.reshape(x, (*x.shape[:2], -1)))
        weights = mm.softmax((tokens @ q) @ mm.matrix_transpose(tokens @ k), axis=-1)
        return x + mm.reshape(mm.matrix_transpose(weights @ (tokens @ v)), x.shape)

    def theirs(x: Any, q: Any, k: Any, v: Any) -> Any:
        tokens = x.flatten(2).mT
        weights = ((tokens @ q) @ (tokens @ k).mT).softmax(-1)
        return x + (weights @ (tokens @ v)).mT.reshape(x.shape)

    return [(c, d), (c, d), (c, c)], ours, theirs


def _token_mixing(_: Any, x: Shape) -> Rule:
    n = math.prod(x[2:])
    return (
        [(n, n)],
        lambda x, w: mm.reshape(mm.reshape(x, (*x.shape[:2], -1)) @ w, x.shape),
        lambda x, w: (x.flatten(2) @ w).reshape(x.shape),
    )


def _resizing(random: Any, x: Shape) -> Rule:
    size = tuple(int(random.integers(1, min(2 * n, MAX_MAP) + 1)) for n in x[2:])
    if random.random() < 0.5:
        return [], lambda x: fn.interpolate(x, size), lambda x: F.interpolate(x, size)
    corners = bool(random.random() < 0.5)
    return (
        [],
        lambda x: fn.interpolate(x, size, mode="bilinear", align_corners=corners),
        lambda x: F.interpolate(x, size, mode="bilinear", align_corners=corners),
    )


def _padding(random: Any, x: Shape) -> Rule:
    mode = _one_of(random, "constant", "replicate", "reflect", "circular")
    most = min(3, min(x[2:]) - (mode == "reflect"))
    widths = tuple(int(n) for n in random.integers(0, most + 1, size=4))
    return [], lambda x: fn.pad(x, widths, mode), lambda x: F.pad(x, widths, mode)


def _shuffle(random: Any, x: Shape) -> Rule:
    groups = _one_of(random, *[g for g in (1, 2, 3, x[1]) if x[1] % g == 0])

    def ours(x: Any) -> Any:
        n, c, *space = x.shape
        parts = mm.reshape(x, (n, groups, c // groups, *space))
        return mm.reshape(mm.swapaxes(parts, 1, 2), x.shape)

    def theirs(x: Any) -> Any:
        return x.unflatten(1, (groups, -1)).transpose(1, 2).flatten(1, 2)

    return [], ours, theirs


def _space_to_depth(_: Any, x: Shape) -> Rule | None:
    if x[2] % 2 or x[3] % 2 or 4 * x[1] > MAX_CHANNELS:
        return None

    def ours(x: Any) -> Any:
        n, c, h, w = x.shape
        parts = mm.reshape(x, (n, c, h // 2, 2, w // 2, 2))
        return mm.reshape(mm.permute_dims(parts, (0, 1, 3, 5, 2, 4)), (n, 4 * c, h // 2, w // 2))

    return [], ours, lambda x: F.pixel_unshuffle(x, 2)


def _slice(random: Any, x: Shape) -> Rule:
    key = tuple(slice(int(random.integers(n)), None, int(random.integers(1, 3))) for n in x[1:])
    key = (slice(None), *key)
    return [], lambda x: x[key], lambda x: x[key]


def _flip(random: Any, _: Shape) -> Rule:
    axis = _one_of(random, 1, 2, 3)
    shift = int(random.integers(-3, 4))
    return (
        [],
        lambda x: mm.roll(mm.flip(x, axis=axis), shift, axis=axis),
        lambda x: torch.roll(torch.flip(x, (axis,)), shift, axis),
    )


LAYERS: dict[str, Callable[[Any, Shape], Rule | None]] = {
    "activation": _activation,
    "adaptive": _adaptive,
    "attention": _attention,
    "batch_norm": _batch_norm,
    "channels_last_norm": _channels_last_norm,
    "constant_norm": _constant_norm,
    "convolution": _convolution,
    "convolution_again": _convolution,  # more likely than others
    "flip": _flip,
    "group_norm": _group_norm,
    "learned_slope": _learned_slope,
    "padding": _padding,
    "pooling": _pooling,
    "resizing": _resizing,
    "shuffle": _shuffle,
    "slice": _slice,
    "space_to_depth": _space_to_depth,
    "squeeze_excitation": _squeeze_excitation,
    "token_mixing": _token_mixing,
    "transposed": _transposed,
}

# joins of two maps --------------------------------------------------------------------------------


def _concatenation(_: Any, x: Shape, y: Shape) -> Rule | None:
    if x[2:] != y[2:] or x[1] + y[1] > MAX_CHANNELS:
        return None
    return [], lambda x, y: mm.concat([x, y], axis=1), lambda x, y: torch.cat([x, y], 1)


def _residual(random: Any, x: Shape, y: Shape) -> Rule | None:
    """A sum, product or maximum, behind a projection to the same channels."""
    if x[2:] != y[2:]:
        return None
    join, joined = _one_of(
        random, (mm.add, torch.add), (mm.multiply, torch.mul), (mm.maximum, torch.maximum)
    )
    return (
        [(y[1], x[1], 1, 1)],
        lambda x, y, w: join(y, fn.conv(x, w)),
        lambda x, y, w: joined(y, F.conv2d(x, w)),
    )


def _gate(_: Any, x: Shape, y: Shape) -> Rule:
    """Channels scaled by a function of another map's means."""
    return (
        [(y[1], x[1])],
        lambda x, y, w: x * mm.tanh(mm.mean(y, axis=(2, 3)) @ w)[:, :, None, None],
        lambda x, y, w: x * torch.tanh(y.mean((2, 3)) @ w)[:, :, None, None],
    )


JOINS: dict[str, Callable[[Any, Shape, Shape], Rule | None]] = {
    "concatenation": _concatenation,
    "gate": _gate,
    "residual": _residual,
    "residual_again": _residual,
}
