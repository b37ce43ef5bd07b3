"""Outputs, losses and metrics of a module in evaluation mode, by compiled functions."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, final

from magmath.api.manipulation import concat
from magmath.arrays.array import Array
from magmath.arrays.tree import flatten, unflatten
from magmath.core.bounded_memo import RecentlyUsed
from magmath.core.shapes import size_of
from magmath.engine.traces import tracing
from magmath.nn.abstract import call_module
from magmath.nn.mixed_precision import in_compute_type, precision
from magmath.nn.module import Module
from magmath.ops.indexing import dynamic_slice
from magmath.train.metric_choice import MetricFunction, name_of
from magmath.train.resident_data import ResidentData, Samples
from magmath.train.weighted_loss import WeightedLoss
from magmath.transform.compiled import compile

SCORING_ROWS = 4096
"""Maximum number of samples in one call of a module."""
SCORING_ELEMENTS = 1 << 22
"""Maximum number of elements of the inputs in one call of a module, unless a sample has more."""

KEPT_FUNCTIONS = 8
"""Sizes of parts, and sets of metrics, for which compiled functions are kept."""


@final
class Inference:
    """A module in evaluation mode, as compiled functions of a data set."""

    def __init__(
        self, module: Module, loss: Callable[[Any, Any], Array], precision: str | None
    ) -> None:
        self._module, self._loss, self._precision = module, loss, precision
        self._all = compile(partial(_outputs, module, precision))  # no reference to this object
        self._parts: RecentlyUsed[int, Callable[..., Any]] = RecentlyUsed(KEPT_FUNCTIONS)
        """By the number of samples."""
        self._scores: RecentlyUsed[Hashable, Callable[..., Any]] = RecentlyUsed(KEPT_FUNCTIONS)

    def is_of(
        self, module: Module, loss: Callable[[Any, Any], Array], precision: str | None
    ) -> bool:
        """Return True if this is the inference of these objects."""
        is_same = self._module is module and self._loss is loss
        return is_same and self._precision == precision

    def outputs(self, data: ResidentData, rows: int | None = None) -> Any:
        """Return the outputs for all samples, nested as the module nests them.

        rows   the maximum number of samples in one call of the module, by default as many as suit
               the size of a sample
        """
        rows = _rows(data) if rows is None else rows
        if data.count <= rows:
            return self._all(data.inputs)
        return _concatenated(
            [
                self._part(min(rows, data.count - first))(data.inputs, first)
                for first in range(0, data.count, rows)
            ]
        )

    def outputs_of_samples(self, data_sets: Iterable[ResidentData], rows: int | None) -> Samples:
        """Return the outputs, the targets and the weights of all samples; `rows`: see `outputs`."""
        sets = [(self.outputs(data, rows), data.targets, data.weights) for data in data_sets]
        outputs, targets, weights = [_concatenated(parts) for parts in zip(*sets, strict=True)]
        return outputs, targets, weights

    def score(self, samples: Samples, metrics: Mapping[str, MetricFunction]) -> dict[str, Any]:
        """Return the loss and the metrics over all samples, given as outputs, targets and the
        weights of the loss or None: numbers, or arrays if not 0-d."""
        is_weighted = samples[2] is not None
        key = is_weighted, *metrics.items()
        measured = self._scores.find(key)
        if measured is None:
            loss = _weighted(self._loss) if is_weighted else self._loss
            measured = compile(partial(_measured, loss, dict(metrics)))
            self._scores.store(key, measured)
        values = measured(*samples)
        return {
            name: value if value.ndim else float(value)
            for name, value in zip(("loss", *metrics), values, strict=True)
        }

    def _part(self, count: int) -> Callable[..., Any]:
        """Return a compiled function of inputs and a start: the outputs for `count` samples."""
        part = self._parts.find(count)
        if part is None:
            part = compile(partial(_outputs_of_part, self._module, self._precision, count))
            self._parts.store(count, part)
        return part


def _outputs(module: Module, name: str | None, inputs: Any) -> Any:
    """Return the outputs of a module in evaluation mode and in a precision."""
    with module.mode(False), precision(name):
        return call_module(module, inputs)


def _outputs_of_part(module: Module, name: str | None, count: int, inputs: Any, first: Any) -> Any:
    """Return the outputs for `count` samples from position `first` on."""
    leaves, tree = flatten(inputs)
    parts = [Array(dynamic_slice.dynamic_slice(x.node, 0, first.node, count)) for x in leaves]
    return _outputs(module, name, unflatten(tree, parts))


def _measured(
    loss: Callable[..., Array],
    metrics: Mapping[str, MetricFunction],
    outputs: Any,
    targets: Any,
    weights: Array | None,
) -> list[Array]:
    """Return the loss, which the weights of the samples multiply, followed by the metrics."""
    operands = in_compute_type(outputs), targets
    with tracing.calling(f"evaluate compiles the loss {name_of(loss)!r}"):
        values = [loss(*operands) if weights is None else loss(*operands, weights)]
    for name, metric in metrics.items():
        with tracing.calling(f"evaluate compiles the metric {name!r}"):
            values.append(metric(*operands))
    return values


def _weighted(loss: Callable[..., Array]) -> WeightedLoss:
    return WeightedLoss(loss, None, "validation=(x, y, weights)")


def _rows(data: ResidentData) -> int:
    """Return the number of samples for one call: activations need memory in proportion."""
    elements = sum(size_of(x.shape[1:]) for x in flatten(data.inputs)[0])
    return max(1, min(SCORING_ROWS, SCORING_ELEMENTS // max(elements, 1)))


def _concatenated(parts: Sequence[Any]) -> Any:
    """Return arrays, nested as in each part, whose first axis has the samples of all parts; None
    for parts that are None."""
    if len(parts) == 1:
        return parts[0]
    leaves = [flatten(part)[0] for part in parts]
    joined = [concat(list(column), axis=0) for column in zip(*leaves, strict=True)]
    return unflatten(flatten(parts[0])[1], joined)
