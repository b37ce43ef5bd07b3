"""The choice of metrics of training, by name or as functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

from magmath.arrays.array import Array
from magmath.core.unique_names import numbered
from magmath.errors import DataError, OptionError
from magmath.nn.abstract import AbstractArray
from magmath.nn.metrics import METRICS, top_k
from magmath.parallel.strategy import DELAYS

RESERVED = ("loss", "validation_loss", DELAYS)
"""The names of other figures of an epoch."""
MetricFunction = Callable[[Any, Any], Array]
"""A function of (outputs, targets), or a `nn.metrics.Metric`."""
Metrics = Sequence[str | MetricFunction] | None
"""Metrics by name or as functions; None for accuracy of classifiers."""


def metric_functions(metrics: Sequence[str | MetricFunction]) -> dict[str, MetricFunction]:
    """Return metrics by name. A function has its own name, with a number if that is taken.

    Raises OptionError for unknown names.
    """
    if isinstance(metrics, str) or callable(metrics):
        raise OptionError(f"fit: metrics are a list, such as [{metrics!r}]; was given {metrics!r}")
    distinct = {m if isinstance(m, str) else id(m): m for m in metrics}.values()
    functions = [m if callable(m) else _named(str(m)) for m in distinct]
    names = numbered([name_of(m) for m in distinct], RESERVED)
    return dict(zip(names, functions, strict=True))


@cache
def _named(name: str) -> MetricFunction:
    """Return the metric of a name in METRICS, or of a name such as "top_3_accuracy"; the same
    object each time, since steps are compiled for their metrics."""
    if name in METRICS:
        return METRICS[name]
    top = re.fullmatch(r"top_(\d+)_accuracy", name)
    if top is None:
        raise OptionError(
            f"fit: metric {name!r} is not known; there are {', '.join(METRICS)}, top_k_accuracy "
            f"with a number for k, and any function of (outputs, targets)"
        )
    return top_k(int(top[1]))


def name_of(measure: str | Callable[..., Any]) -> str:
    """Return the name of a metric or loss, or of the function that a partial object calls."""
    while isinstance(measure, partial):
        measure = measure.func
    name: str = (
        measure
        if isinstance(measure, str)
        else getattr(measure, "__name__", type(measure).__name__)
    )
    return name


def chosen_metrics(
    requested: Sequence[str | MetricFunction] | None, outputs: Any, targets: Any, classifies: bool
) -> Mapping[str, MetricFunction]:
    """Return the requested metrics for the abstract outputs and targets of a batch; by default
    (None) accuracy for classifiers, otherwise none.

    A classifier has outputs (N, classes), and cross-entropy as the loss or integer labels as
    targets. Raises DataError if accuracy is requested by name and there are no classes.
    """
    single = isinstance(outputs, AbstractArray) and isinstance(targets, AbstractArray)
    classes = single and len(outputs.shape) == 2 and outputs.shape[1] > 1
    labels = single and len(targets.shape) == 1 and targets.dtype.is_integer
    if requested is None:
        return metric_functions(["accuracy"] if classes and (labels or classifies) else [])
    if "accuracy" in requested and not (
        classes and (labels or targets.shape[1:] == outputs.shape[1:])
    ):
        raise DataError(
            "metrics: accuracy needs outputs (N, classes) of two classes or more, and integer "
            f"labels or a number for each class as targets; the outputs are {outputs}, the targets "
            f"{targets}; leave `metrics` out"
        )
    return metric_functions(requested)
