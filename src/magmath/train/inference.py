"""Outputs, losses and metrics of a module in evaluation mode, by compiled functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, final

from magmath.api.manipulation import concat
from magmath.arrays.array import Array
from magmath.arrays.tree import flatten, unflatten
from magmath.nn.abstract import call
from magmath.nn.module import Module
from magmath.ops import dynamic_slice
from magmath.train.dataset import DataSet
from magmath.train.measures import Metric
from magmath.transform.compiled import compile

SCORING_ROWS = 4096
"""Maximum number of samples in one call of a module."""


@final
class Inference:
    """A module in evaluation mode, as compiled functions of a data set."""

    def __init__(self, module: Module, loss: Callable[[Any, Any], Array]) -> None:
        self._module, self._loss = module, loss
        self._all = compile(self._outputs)
        self._parts: dict[int, Callable[..., Any]] = {}
        self._scores: dict[Any, Callable[..., Any]] = {}

    def outputs(self, data: DataSet) -> Any:
        """Return the outputs for all samples, nested as the module nests them."""
        if data.count <= SCORING_ROWS:
            return self._all(data.inputs)
        rows = range(0, data.count, SCORING_ROWS)
        parts = [
            self._part(min(SCORING_ROWS, data.count - first))(data.inputs, first) for first in rows
        ]
        leaves = [flatten(part)[0] for part in parts]
        joined = [concat(list(column), axis=0) for column in zip(*leaves, strict=True)]
        return unflatten(flatten(parts[0])[1], joined)

    def score(self, data: DataSet, metrics: Mapping[str, Metric]) -> dict[str, Any]:
        """Return the loss and the metrics over all samples, as numbers, or arrays if not 0-d."""
        key = tuple(metrics.items())
        if key not in self._scores:
            self._scores[key] = compile(partial(self._measured, dict(metrics)))
        found = self._scores[key](self.outputs(data), data.targets)
        return {
            name: value if value.ndim else float(value)
            for name, value in zip(("loss", *metrics), found, strict=True)
        }

    def _outputs(self, inputs: Any) -> Any:
        with self._module.mode(False):
            return call(self._module, inputs)

    def _part(self, count: int) -> Callable[..., Any]:
        """Return a compiled function of inputs and a start: the outputs for `count` samples."""
        if count not in self._parts:
            self._parts[count] = compile(partial(self._outputs_of_part, count))
        return self._parts[count]

    def _outputs_of_part(self, count: int, inputs: Any, first: Any) -> Any:
        leaves, tree = flatten(inputs)
        parts = [Array(dynamic_slice.window(x.node, 0, first.node, count)) for x in leaves]
        return self._outputs(unflatten(tree, parts))

    def _measured(self, metrics: Mapping[str, Metric], outputs: Any, targets: Any) -> list[Array]:
        found = [self._loss(outputs, targets)]
        return found + [metric(outputs, targets) for metric in metrics.values()]
