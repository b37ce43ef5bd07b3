"""Normalization layers: over features, batches, groups of channels, and neighbouring channels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, final

from magmath.api.activations import stop_gradient
from magmath.api.creation import normal_shape
from magmath.api.data_types import astype
from magmath.arrays.array import Array
from magmath.core.dtypes import int64
from magmath.core.integers import require_integer
from magmath.core.real_numbers import require_number
from magmath.errors import OptionError, ShapeError
from magmath.nn.abstract import is_abstract_call
from magmath.nn.layer_input import layer_input
from magmath.nn.module import Module
from magmath.nn.normalization import (
    batch_moments,
    batch_norm,
    group_norm,
    instance_norm,
    layer_norm,
    local_response_norm,
    rms_norm,
)
from magmath.nn.variables import Buffer, Parameter, deferred, ones, zeros


def _checked_epsilon(layer: str, epsilon: float) -> float:
    """Return the number that a layer adds to variances. Raises OptionError for a number of channels
    in its place, which layers of PyTorch take."""
    if isinstance(epsilon, int) and epsilon:
        raise OptionError(
            f"{layer}: epsilon is a small number such as 1e-5, was given {epsilon}; the number of "
            f"channels is that of the input and needs no argument"
        )
    require_number(f"{layer}: epsilon", epsilon, 0)
    return epsilon


@final
class LayerNorm(Module):
    """Normalizes each sample to mean 0 and variance 1 over its last axes; times weight, plus bias.

    normalized_shape  the shape of those axes; by default the last axis
    affine            if True, the layer has weight and bias, of that shape
    """

    keeps_float32 = True

    def __init__(
        self,
        normalized_shape: int | Sequence[int] | None = None,
        epsilon: float = 1e-5,
        affine: bool = True,
    ) -> None:
        self.normalized_shape = (
            None if normalized_shape is None else normal_shape("LayerNorm", normalized_shape)
        )
        self.epsilon = _checked_epsilon("LayerNorm", epsilon)
        self.weight: Parameter | None = deferred(ones) if affine else None
        self.bias: Parameter | None = deferred(zeros) if affine else None

    def __call__(self, x: Array) -> Array:
        """(…, normalized) → the same shape."""
        shape = x.shape[-1:] if self.normalized_shape is None else self.normalized_shape
        self.materialize(weight=shape, bias=shape)
        return layer_norm(x, shape, self.weight, self.bias, self.epsilon)


@final
class RMSNorm(Module):
    """Divides each sample by the root of the mean of its squares over its last axes; times weight.

    normalized_shape  the shape of those axes; by default the last axis
    epsilon           added to the mean; by default the distance from 1 to the next number of the
                      input's type
    affine            if True, the layer has a weight, of that shape
    """

    keeps_float32 = True

    def __init__(
        self,
        normalized_shape: int | Sequence[int] | None = None,
        epsilon: float | None = None,
        affine: bool = True,
    ) -> None:
        self.normalized_shape = (
            None if normalized_shape is None else normal_shape("RMSNorm", normalized_shape)
        )
        self.epsilon = epsilon
        self.weight: Parameter | None = deferred(ones) if affine else None

    def __call__(self, x: Array) -> Array:
        """(…, normalized) → the same shape."""
        shape = x.shape[-1:] if self.normalized_shape is None else self.normalized_shape
        self.materialize(weight=shape)
        return rms_norm(x, shape, self.weight, self.epsilon)


@final
class BatchNorm(Module):
    """Normalizes each channel to mean 0 and variance 1 over the batch; times weight, plus bias.

    momentum         the share of the batch in the running mean and variance; None for the averages
                     of all batches, which `num_batches_tracked` counts
    epsilon          added to the variance
    affine           if True, the layer has weight and bias
    axis             the axis of the channels
    running_moments  if False, the layer has no running moments

    In training mode the moments are those of the whole batch, however it is distributed, and
    `running_mean` and `running_variance` (unbiased) move towards them by `momentum`. In evaluation
    mode the running moments are used, or without them those of the batch. Raises ShapeError for the
    moments of a batch with a single value of each channel, such as a last batch of one sample;
    `fit` raises it before the first step. Source: Ioffe and Szegedy (2015).
    """

    keeps_float32 = True
    num_batches_tracked: Buffer | None = None

    def __init__(
        self,
        momentum: float | None = 0.1,
        epsilon: float = 1e-5,
        affine: bool = True,
        axis: int = 1,
        running_moments: bool = True,
    ) -> None:
        if momentum is not None and not 0.0 <= momentum <= 1.0:
            raise OptionError(
                f"BatchNorm: momentum is a share between 0 and 1, was given {momentum}; the number "
                f"of channels is that of the input and needs no argument"
            )
        self.momentum = momentum
        self.epsilon = _checked_epsilon("BatchNorm", epsilon)
        self.axis = axis
        self.weight: Parameter | None = deferred(ones) if affine else None
        self.bias: Parameter | None = deferred(zeros) if affine else None
        self.running_mean: Buffer | None = deferred(zeros, Buffer) if running_moments else None
        self.running_variance: Buffer | None = deferred(ones, Buffer) if running_moments else None
        if running_moments and momentum is None:
            self.num_batches_tracked = deferred(zeros, Buffer)

    def __call__(self, x: Array) -> Array:
        """(N, channels, …) → the same shape."""
        if not -x.ndim <= self.axis < x.ndim:
            raise ShapeError(
                f"BatchNorm: takes (N, channels, …), with the channels at axis {self.axis}; was "
                f"given {x.shape}"
                "; move them there, or pass axis=…"
            )
        channels = (x.shape[self.axis],)
        self.materialize(
            weight=channels, bias=channels, running_mean=channels, running_variance=channels
        )
        self.materialize(dtype=int64, num_batches_tracked=())
        x = layer_input(
            "BatchNorm", x, self.weight if self.running_mean is None else self.running_mean
        )
        if self.training or self.running_mean is None or self.running_variance is None:
            count = x.size // max(channels[0], 1)
            self._check_count(x, count)
            mean, variance = batch_moments(x, self.axis)
            self._keep(mean, variance, count)
        else:
            mean, variance = self.running_mean, self.running_variance
        return batch_norm(
            x, mean, variance, self.weight, self.bias, axis=self.axis, epsilon=self.epsilon
        )

    def _check_count(self, x: Array, count: int) -> None:
        """Raise ShapeError if the moments of a batch would have no meaning."""
        if count < 2 and not is_abstract_call():
            sample_shape = [
                n for axis, n in enumerate(x.shape) if axis not in (0, self.axis % x.ndim)
            ]
            raise ShapeError(
                f"BatchNorm: needs more than one value of each channel, to compute the variance of "
                f"a batch; this batch has {x.shape[0]} samples of {math.prod(sample_shape)} "
                f"values, shape {x.shape}; if it is the last batch of an epoch, choose a batch "
                f"size that leaves no single sample, or leave it out by mm.data.Loader(…, "
                f"drop_last=True); otherwise use larger batches, or module.eval() for the moments "
                f"of a layer that keeps running ones"
            )

    def _keep(self, mean: Array, variance: Array, count: int) -> None:
        """Move the running moments towards those of the batch."""
        if self.running_mean is None or self.running_variance is None or not self.training:
            return
        unbiased = count / max(count - 1, 1)
        share: Any = self.momentum
        if self.num_batches_tracked is not None:
            batches = self.num_batches_tracked + 1
            self.num_batches_tracked.assign(batches)
            share = 1.0 / astype(batches, mean.dtype)
        for running, value in (
            (self.running_mean, mean), (self.running_variance, variance * unbiased)
        ):  # fmt: skip
            new = (1.0 - share) * running + share * stop_gradient(value)
            running.assign(astype(new, running.dtype, copy=False))


@final
class GroupNorm(Module):
    """Normalizes each group of channels of each image to mean 0 and variance 1; times weight, plus
    bias.

    groups   the number of groups, which must divide the channels
    epsilon  added to the variance
    affine   if True, the layer has weight and bias, (channels,)

    Source: Wu and He (2018).
    """

    keeps_float32 = True

    def __init__(self, groups: int, epsilon: float = 1e-5, affine: bool = True) -> None:
        self.groups = require_integer("GroupNorm: groups", groups, 1)
        self.epsilon = _checked_epsilon("GroupNorm", epsilon)
        self.weight: Parameter | None = deferred(ones) if affine else None
        self.bias: Parameter | None = deferred(zeros) if affine else None

    def __call__(self, x: Array) -> Array:
        """(N, channels, …) → the same shape."""
        if x.ndim < 2:
            raise ShapeError(
                f"GroupNorm: takes (N, channels, …), was given {x.shape}"
                "; move the channels to axis 1 with mm.moveaxis"
            )
        self.materialize(weight=(x.shape[1],), bias=(x.shape[1],))
        return group_norm(x, self.groups, self.weight, self.bias, self.epsilon)


@final
class InstanceNorm(Module):
    """Normalizes each channel of each image to mean 0 and variance 1.

    epsilon  added to the variance
    affine   if True, the result is multiplied by weight, plus bias, each (channels,)

    Source: Ulyanov et al. (2016).
    """

    keeps_float32 = True

    def __init__(self, epsilon: float = 1e-5, affine: bool = False) -> None:
        self.epsilon = _checked_epsilon("InstanceNorm", epsilon)
        self.weight: Parameter | None = deferred(ones) if affine else None
        self.bias: Parameter | None = deferred(zeros) if affine else None

    def __call__(self, x: Array) -> Array:
        """(N, channels, *space) → the same shape."""
        if x.ndim < 3:
            raise ShapeError(
                f"InstanceNorm: takes (N, channels, *space), was given {x.shape}"
                "; move the channels to axis 1 with mm.moveaxis"
            )
        self.materialize(weight=(x.shape[1],), bias=(x.shape[1],))
        return instance_norm(x, self.weight, self.bias, self.epsilon)


@final
class LocalResponseNorm(Module):
    """Divides by a power of the squares of neighbouring channels; see
    `functional.local_response_norm`.

    size   the number of neighbouring channels, the channel itself included
    alpha  the factor of the mean of squares
    beta   the exponent
    k      added to the mean of squares
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        self.size = require_integer("LocalResponseNorm: size", size, 1)
        self.alpha, self.beta, self.k = alpha, beta, k

    def __call__(self, x: Array) -> Array:
        """(N, channels, …) → the same shape."""
        return local_response_norm(x, self.size, self.alpha, self.beta, self.k)
