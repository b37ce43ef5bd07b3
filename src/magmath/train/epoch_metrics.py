"""Metrics over the steps of an epoch, as parts of the training step.

A function of outputs and targets is averaged over the samples: each step reports its value. A
`nn.metrics.Metric` has counts, such as hits and samples, which each step adds to their sums; the
figure follows from the sums, so it is that of all samples together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, final

from magmath.api.creation import variable, zeros
from magmath.api.data_types import astype
from magmath.api.searching import where
from magmath.array.array import Array
from magmath.array.variable import Variable
from magmath.core.dtypes import int64
from magmath.core.promotion import get_default_dtype
from magmath.engine import tracing
from magmath.errors import ShapeError
from magmath.graph import Node
from magmath.nn.metrics import Metric as CountedMetric
from magmath.ops import elementwise as e
from magmath.ops.leaves import constant
from magmath.train.measures import Metric


class EpochMetric(Protocol):
    """A metric of an epoch, whose steps are traced."""

    def trace(self, outputs: Any, targets: Any, number: Node) -> Node | None:
        """Compute what a step reports; `number` is that of the step in the epoch. None for a metric
        that steps do not report."""

    def figure(self, reported: Sequence[float], weights: Sequence[int]) -> Any:
        """The figure of an epoch, of what its steps have reported; `weights` are their samples."""


def epoch_metric(name: str, metric: Metric) -> EpochMetric:
    """The metric of this name over the steps of an epoch."""
    if isinstance(metric, CountedMetric):
        return _Counted(name, metric)
    return _Averaged(name, metric)


@final
class _Averaged:
    """The mean over the samples of a function's values."""

    def __init__(self, name: str, metric: Metric) -> None:
        self._name = name
        self._metric = metric

    def trace(self, outputs: Any, targets: Any, number: Node) -> Node | None:
        """The value for a batch. Raises ShapeError unless it is 0-d."""
        value = self._metric(outputs, targets)
        if not isinstance(value, Array) or value.shape != ():
            shape = value.shape if isinstance(value, Array) else type(value).__name__
            raise ShapeError(
                f"fit: a metric must be a 0-d array, {self._name} is {shape}; compute it after "
                f"training: {self._name}(net.predict(x), y)"
            )
        return _floating(value)

    def figure(self, reported: Sequence[float], weights: Sequence[int]) -> Any:
        """The mean."""
        return weighted_mean(reported, weights)


@final
class _Counted:
    """The figure that follows from the sums of counts; a list where it is an array."""

    def __init__(self, name: str, metric: CountedMetric) -> None:
        self._name = name
        self._metric = metric
        self._sums: list[Variable] = []
        self._is_reported = True

    def trace(self, outputs: Any, targets: Any, number: Node) -> Node | None:
        """Add the counts of a batch, and compute the figure until now."""
        counts = self._metric.counts(outputs, targets)
        if not self._sums:
            with tracing.suspended():
                self._sums = [
                    variable(f"{self._name}.{i}", zeros(x.shape, dtype=x.dtype), dtype=x.dtype)
                    for i, x in enumerate(counts)
                ]
        is_first = Array(e.call("equal", number, constant(0, int64)))
        for total, count in zip(self._sums, counts, strict=True):
            total.assign(where(is_first, count, total + count))
        figure = self._metric.result(*self._sums)
        self._is_reported = figure.shape == ()
        return _floating(figure) if self._is_reported else None

    def figure(self, reported: Sequence[float], weights: Sequence[int]) -> Any:
        """What the last step has reported."""
        return reported[-1] if self._is_reported else self._metric.result(*self._sums).tolist()


def _floating(value: Array) -> Node:
    return (value if value.dtype.is_floating else astype(value, get_default_dtype())).node


def weighted_mean(values: Sequence[float], weights: Sequence[int]) -> float:
    """The mean of values of so many samples each."""
    total = sum(v * w for v, w in zip(values, weights, strict=False))
    return total / max(sum(weights[: len(values)]), 1)
