"""PyTorch's computation of a module of magmath: one rule per class, so that one translator converts
all networks. The rules are written with PyTorch's functions only; weights are copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from magmath import nn
from magmath.nn.zoo.googlenet import GoogLeNet
from magmath.nn.zoo.inception import InceptionV3
from magmath.nn.zoo.mobilenet import MobileNetV2
from magmath.nn.zoo.resnet import BasicBlock, Bottleneck, ResNet

ACTIVATIONS: dict[Any, Callable[[torch.Tensor], torch.Tensor]] = {
    "linear": lambda x: x,
    "relu": torch.relu,
    "tanh": torch.tanh,
}


class Counterpart:
    """A module's counterpart, with its variables as tensors by path."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        variables = [*module.named_parameters(), *module.named_buffers()]
        self.tensors = {path: torch.from_numpy(v.numpy().copy()) for path, v in variables}
        self._by_variable = {id(v): self.tensors[path] for path, v in variables}
        self.parameters = {path: self.tensors[path] for path, _ in module.named_parameters()}
        for tensor in self.parameters.values():
            tensor.requires_grad_(True)

    def __call__(self, x: Any) -> Any:
        """The outputs for NumPy inputs."""
        return self.run(self.module, torch.from_numpy(np.asarray(x)))

    def of(self, variable: Any) -> Any:
        """The tensor of a variable, or None."""
        return None if variable is None else self._by_variable[id(variable)]

    def run(self, m: Any, x: Any) -> Any:
        """The outputs of a module within."""
        return RULES[type(m)](self, m, x)

    def chain(self, modules: Any, x: Any) -> Any:
        """The outputs of modules in sequence."""
        for m in modules:
            x = self.run(m, x)
        return x


def _convolution(t: Counterpart, m: Any, x: Any) -> Any:
    function = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[m.space]
    groups = x.shape[1] if m.groups == "depthwise" else m.groups
    padding = m.padding
    y = function(x, t.of(m.weight), t.of(m.bias), m.stride, padding, m.dilation, groups)
    return ACTIVATIONS[m.activation](y)


def _transposed(t: Counterpart, m: Any, x: Any) -> Any:
    function = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}[m.space]
    y = function(x, t.of(m.weight), t.of(m.bias), m.stride, m.padding)
    return ACTIVATIONS[m.activation](y)


def _batch_norm(t: Counterpart, m: Any, x: Any) -> Any:
    mean, variance = t.of(m.running_mean), t.of(m.running_variance)
    return F.batch_norm(
        x, mean, variance, t.of(m.weight), t.of(m.bias), m.training, m.momentum, m.epsilon
    )


def _max_pool(t: Counterpart, m: Any, x: Any) -> Any:
    return F.max_pool2d(x, m.kernel, m.stride, m.padding, m.dilation, m.ceil_mode)


def _avg_pool(t: Counterpart, m: Any, x: Any) -> Any:
    return F.avg_pool2d(x, m.kernel, m.stride, m.padding, m.ceil_mode, m.count_include_pad)


def _basic_block(t: Counterpart, m: Any, x: Any) -> Any:
    y = torch.relu(t.chain((m.conv1, m.norm1), x))
    y = t.chain((m.conv2, m.norm2), y)
    return torch.relu(y + (x if m.shortcut is None else t.run(m.shortcut, x)))


def _bottleneck(t: Counterpart, m: Any, x: Any) -> Any:
    y = torch.relu(t.chain((m.conv1, m.norm1), x))
    y = torch.relu(t.chain((m.conv2, m.norm2), y))
    y = t.chain((m.conv3, m.norm3), y)
    return torch.relu(y + (x if m.shortcut is None else t.run(m.shortcut, x)))


def _resnet(t: Counterpart, m: Any, x: Any) -> Any:
    x = torch.relu(t.chain((m.conv, m.norm), x))
    x = x if m.pool is None else t.run(m.pool, x)
    return t.chain((*m.stages, m.average, m.dense), x)


def _googlenet(t: Counterpart, m: Any, x: Any) -> Any:
    x = t.chain((m.stem, m.inception3), x)
    maps = []
    for inception_module in m.inception4:
        x = t.run(inception_module, x)
        maps.append(x)
    scores = t.chain((m.pool, m.inception5, m.head), x)
    if not (m.auxiliary and m.training):
        return scores
    return scores, t.run(m.auxiliary[0], maps[0]), t.run(m.auxiliary[1], maps[3])


def _inception(t: Counterpart, m: Any, x: Any) -> Any:
    x = t.chain((m.stem, m.maps35, m.maps17), x)
    scores = t.chain((m.maps8, m.head), x)
    return (scores, t.run(m.auxiliary, x)) if m.auxiliary and m.training else scores


def _residual(t: Counterpart, m: Any, x: Any) -> Any:
    return t.run(m.body, x) + (x if m.shortcut is None else t.run(m.shortcut, x))


def _dropout(t: Counterpart, m: Any, x: Any) -> Any:
    assert m.rate == 0 or not m.training, "masks are not compared"
    return x


RULES: dict[type, Callable[[Counterpart, Any, Any], Any]] = {
    nn.Sequential: lambda t, m, x: t.chain(m.layers, x),
    nn.Parallel: lambda t, m, x: torch.cat([t.run(b, x) for b in m.branches], m.axis),
    nn.Residual: _residual,
    nn.Conv1d: _convolution,
    nn.Conv2d: _convolution,
    nn.Conv3d: _convolution,
    nn.ConvTranspose2d: _transposed,
    nn.BatchNorm: _batch_norm,
    nn.Dense: lambda t, m, x: ACTIVATIONS[m.activation](
        F.linear(x, t.of(m.weight).T, t.of(m.bias))
    ),
    nn.MaxPool2d: _max_pool,
    nn.AvgPool2d: _avg_pool,
    nn.AdaptiveAvgPool2d: lambda t, m, x: F.adaptive_avg_pool2d(x, m.size),
    nn.GlobalAvgPool: lambda t, m, x: x.mean(tuple(range(2, x.ndim))),
    nn.LocalResponseNorm: lambda t, m, x: F.local_response_norm(x, m.size, m.alpha, m.beta, m.k),
    nn.Flatten: lambda t, m, x: x.flatten(m.start_axis),
    nn.ReLU: lambda t, m, x: torch.relu(x),
    nn.ReLU6: lambda t, m, x: F.relu6(x),
    nn.Dropout: _dropout,
    BasicBlock: _basic_block,
    Bottleneck: _bottleneck,
    ResNet: _resnet,
    GoogLeNet: _googlenet,
    InceptionV3: _inception,
    MobileNetV2: lambda t, m, x: t.chain((m.stem, m.blocks, m.last, m.head), x),
}
