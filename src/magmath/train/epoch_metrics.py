"""Metrics over the steps of an epoch, computed in the training step.

A function of outputs and targets is averaged over the samples: each step reports its value. A
`nn.metrics.Metric` has counts, such as hits and samples, which each step adds to their sums; its
value is computed from the sums, so it is that for all samples of the epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, final

from magmath.api.creation import variable, zeros
from magmath.api.data_types import astype
from magmath.api.searching import where
from magmath.arrays.array import Array
from magmath.arrays.variables.variable import Variable
from magmath.core.dtypes import int64
from magmath.core.promotion import get_default_dtype
from magmath.engine.traces import tracing
from magmath.errors import ShapeError
from magmath.graph import Node
from magmath.nn.metrics import Metric as CountedMetric
from magmath.ops import elementwise as e
from magmath.ops.leaves import constant
from magmath.train.metric_choice import MetricFunction


class EpochMetric(Protocol):
    """A metric of an epoch, traced as a part of the step."""

    def begin(self) -> None:
        """Begin an epoch of steps that were traced without their numbers."""

    def trace(self, outputs: Any, targets: Any, number: Node | None) -> Node | None:
        """Return the node of the value that a step reports; None if steps do not report the metric.

        `number` is the number of the step in the epoch; None if steps do not end in their order.
        """

    def figure(self, reported: Sequence[float], weights: Sequence[int]) -> Any:
        """Return the value for an epoch from the values that its steps reported.

        `weights` are the numbers of samples of the steps.
        """


def epoch_metric(name: str, metric: MetricFunction) -> EpochMetric:
    """Return a metric over the steps of an epoch."""
    if isinstance(metric, CountedMetric):
        return _Counted(name, metric)
    return _Averaged(name, metric)


@final
class _Averaged:
    """The mean of a function's values over the samples."""

    def __init__(self, name: str, metric: MetricFunction) -> None:
        self._name = name
        self._metric = metric

    def begin(self) -> None:
        pass

    def trace(self, outputs: Any, targets: Any, number: Node | None) -> Node | None:
        """Return the node of the value for a batch. Raises ShapeError unless it is 0-d."""
        value = self._metric(outputs, targets)
        if not isinstance(value, Array) or value.shape != ():
            shape = value.shape if isinstance(value, Array) else type(value).__name__
            raise ShapeError(
                f"fit: a metric must be a 0-d array, {self._name} is {shape}; compute it after "
                f"training: {self._name}(net.predict(x), y)"
            )
        return _floating(value)

    def figure(self, reported: Sequence[float], weights: Sequence[int]) -> Any:
        """Return the mean over the samples."""
        return weighted_mean(reported, weights)


@final
class _Counted:
    """A metric computed from sums of counts; its value is a list if it is not 0-d."""

    def __init__(self, name: str, metric: CountedMetric) -> None:
        self._name = name
        self._metric = metric
        self._sums: list[Variable] = []
        self._is_reported = True

    def begin(self) -> None:
        for total in self._sums:
            total.assign(zeros(total.shape, dtype=total.dtype))

    def trace(self, outputs: Any, targets: Any, number: Node | None) -> Node | None:
        """Add the counts of a batch, and return the node of the value so far if it is 0-d."""
        counts = self._metric.counts(outputs, targets)
        if not self._sums:
            with tracing.suspended():
                self._sums = [
                    variable(f"{self._name}.{i}", zeros(x.shape, dtype=x.dtype), dtype=x.dtype)
                    for i, x in enumerate(counts)
                ]
        for total, count in zip(self._sums, counts, strict=True):
            total.assign(total + count if number is None else _sum_from(number, total, count))
        figure = self._metric.result(*self._sums)
        self._is_reported = figure.shape == () and number is not None
        return _floating(figure) if self._is_reported else None

    def figure(self, reported: Sequence[float], weights: Sequence[int]) -> Any:
        """Return the value that the last step reported, or compute it from the sums."""
        return reported[-1] if self._is_reported else self._metric.result(*self._sums).tolist()


def _sum_from(number: Node, total: Variable, count: Array) -> Array:
    """Return the sum with a count, or the count alone in step 0."""
    return where(Array(e.call("equal", number, constant(0, int64))), count, total + count)


def _floating(value: Array) -> Node:
    return (value if value.dtype.is_floating else astype(value, get_default_dtype())).node


def weighted_mean(values: Sequence[float], weights: Sequence[int]) -> float:
    """Return the mean of values, weighted by their numbers of samples."""
    total = sum(v * w for v, w in zip(values, weights, strict=False))
    return total / max(sum(weights[: len(values)]), 1)
