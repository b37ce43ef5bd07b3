"""PyTorch's normalizations."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import magmath as mm
from magmath.interop.reading_torch.aten_types import Operator, first_of_several
from magmath.nn import functional as f


def _normalized_by(
    x: mm.Array, weight: Any, bias: Any, mean: mm.Array, variance: mm.Array, epsilon: float
) -> mm.Array:
    return f.batch_norm(x, mean, variance, weight, bias, epsilon=epsilon)


def _batch_norm_functional(
    x: mm.Array,
    weight: mm.Array | None,
    bias: mm.Array | None,
    running_mean: mm.Array,
    running_variance: mm.Array,
    training: bool,
    momentum: float,
    epsilon: float,
) -> tuple[Any, ...]:
    """Return the outputs, the moments that are saved for gradients, and the new running moments."""
    if not training:
        outputs = _normalized_by(x, weight, bias, running_mean, running_variance, epsilon)
        return outputs, None, None, running_mean, running_variance
    mean, variance = f.batch_moments(x)
    count = x.size // x.shape[1]
    unbiased = variance * (count / max(count - 1, 1))
    running_moments = [
        mm.astype(old + momentum * (new - old), old.dtype, copy=False)
        for old, new in ((running_mean, mean), (running_variance, unbiased))
    ]
    return _normalized_by(x, weight, bias, mean, variance, epsilon), None, None, *running_moments


def _batch_norm_of_batch(
    x: mm.Array, weight: Any, bias: Any, training: bool, momentum: float, epsilon: float
) -> tuple[Any, ...]:
    return _normalized_by(x, weight, bias, *f.batch_moments(x), epsilon), None, None


def _batch_norm_running(
    x: mm.Array, weight: Any, bias: Any, mean: Any, variance: Any, momentum: float, epsilon: float
) -> tuple[Any, ...]:
    return _normalized_by(x, weight, bias, mean, variance, epsilon), None, None


def _batch_norm(
    x: mm.Array,
    weight: Any,
    bias: Any,
    mean: Any,
    variance: Any,
    training: bool,
    momentum: float,
    epsilon: float,
    cudnn: bool = False,
) -> mm.Array:
    if training or mean is None:
        mean, variance = f.batch_moments(x)
    return _normalized_by(x, weight, bias, mean, variance, epsilon)


def _layer_norm(
    x: mm.Array,
    shape: Sequence[int],
    weight: Any = None,
    bias: Any = None,
    epsilon: float = 1e-5,
    cudnn: bool = True,
) -> mm.Array:
    return f.layer_norm(x, tuple(shape), weight, bias, epsilon)


def _group_norm(
    x: mm.Array,
    groups: int,
    weight: Any = None,
    bias: Any = None,
    epsilon: float = 1e-5,
    cudnn: bool = True,
) -> mm.Array:
    return f.group_norm(x, groups, weight, bias, epsilon)


def _native_group_norm(
    x: mm.Array, weight: Any, bias: Any, n: int, c: int, size: int, groups: int, epsilon: float
) -> tuple[Any, ...]:
    return f.group_norm(x, groups, weight, bias, epsilon), None, None


def _instance_norm(
    x: mm.Array,
    weight: Any,
    bias: Any,
    mean: Any,
    variance: Any,
    of_inputs: bool,
    momentum: float,
    epsilon: float,
    cudnn: bool = False,
) -> mm.Array:
    if not of_inputs and mean is not None:
        return _normalized_by(x, weight, bias, mean, variance, epsilon)
    if isinstance(mean, mm.Variable):  # an update that torch.export does not record
        axes = tuple(range(2, x.ndim))
        count = prod(x.shape[2:])
        means, variances = mm.mean(x, axis=axes), mm.var(x, axis=axes)
        unbiased = variances * (count / max(count - 1, 1))
        for running, new in ((mean, means), (variance, unbiased)):
            following = running + momentum * (mm.mean(new, axis=0) - running)
            running.assign(mm.astype(following, running.dtype, copy=False))
    return f.instance_norm(x, weight, bias, epsilon)


def _rms_norm(
    x: mm.Array, shape: Sequence[int], weight: Any = None, epsilon: float | None = None
) -> mm.Array:
    return f.rms_norm(x, tuple(shape), weight, epsilon)


NORMALIZATION: dict[str, Operator] = {
    "batch_norm": _batch_norm,
    "_native_batch_norm_legit_functional": _batch_norm_functional,
    "_native_batch_norm_legit": _batch_norm_of_batch,
    "_native_batch_norm_legit_no_training": _batch_norm_running,
    "layer_norm": _layer_norm,
    "native_layer_norm": first_of_several(_layer_norm),
    "group_norm": _group_norm,
    "native_group_norm": _native_group_norm,
    "instance_norm": _instance_norm,
    "rms_norm": _rms_norm,
}
