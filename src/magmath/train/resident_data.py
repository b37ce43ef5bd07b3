"""Data sets that are stored on the workers, for training and evaluation.

Inputs and targets are arrays, or tuples and dictionaries of arrays for modules with several inputs
and losses of several targets; the first axis of all arrays numbers the samples.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any, final

import numpy as np

from magmath.api import elementwise, reductions
from magmath.api.creation import asarray
from magmath.arrays.array import Array
from magmath.arrays.lazy_array import evaluate
from magmath.arrays.tree import Tree, flatten, unflatten
from magmath.core.dtypes import DType
from magmath.core.identity import are_identical
from magmath.engine import session
from magmath.errors import DataError
from magmath.graph import Node, Shape
from magmath.nn.abstract import AbstractArray

Samples = tuple[Any, Any, Array | None]
"""Inputs, targets, and the weights of the samples or None."""
PROBABILITY_ERROR = 1e-2
"""Maximum difference of the sum of a sample's probabilities from 1."""


@final
class ResidentData:
    """Inputs, targets and weights of samples, replicated so that every worker can read any sample.

    Each host has one copy if its workers share memory, otherwise each worker. `targets` is None if
    only outputs are computed, `weights` (N,) is None if all samples count alike. Floating point
    arrays and weights are converted to `dtype`; integers keep their types.
    """

    def __init__(
        self, operation: str, inputs: Any, targets: Any, dtype: DType, weights: Any = None
    ) -> None:
        self._given = _identity_of(inputs, targets, weights)
        self.checked: tuple[str, Callable[..., Any], Any] | None = None
        """The operation, the loss and the abstract outputs for which the data were checked."""
        self.dtype = dtype
        self.inputs = mapped(inputs, lambda x: _on_workers(x, dtype))
        self.targets_dtype: DType | None = None
        """The original element type of a single array of targets."""
        if not isinstance(targets, (tuple, dict)) and targets is not None:
            targets = asarray(targets)
            self.targets_dtype = targets.dtype
        self.targets = mapped(targets, lambda x: _on_workers(x, dtype))
        self.weights = (
            None if weights is None else _on_workers(asarray(weights, dtype=dtype), dtype)
        )
        self._leaves, self._tree = flatten((self.inputs, self.targets, self.weights))
        self.count = self._checked_count(operation)

    def _checked_count(self, operation: str) -> int:
        """Return the number of samples. Raises DataError if arrays have different numbers."""
        samples, _ = flatten(self.inputs)
        if not samples or any(x.ndim == 0 or x.shape[0] == 0 for x in samples):
            shapes = ", ".join([str(x.shape) for x in samples])
            raise DataError(
                f"{operation}: samples must be (N, …) with N ≥ 1, was given {shapes}; give arrays "
                f"whose first axis numbers the samples"
            )
        count: int = samples[0].shape[0]
        if any(x.shape[0] != count for x in samples):
            shapes = ", ".join([str(x.shape) for x in samples])
            raise DataError(
                f"{operation}: all inputs need the same number of samples, was given {shapes}; "
                f"the first axis of each numbers the samples"
            )
        for x in flatten(self.targets)[0]:
            if x.ndim == 0 or x.shape[0] != count:
                raise DataError(
                    f"{operation}: {count} samples need {count} targets, was given "
                    f"{x.shape}; give one target for each sample"
                )
        if self.weights is not None and self.weights.shape != (count,):
            raise DataError(
                f"{operation}: {count} samples need weights of shape ({count},), was "
                f"given {self.weights.shape}; give one number for each sample"
            )
        return count

    def is_of(self, inputs: Any, targets: Any, weights: Any = None) -> bool:
        """Return True if the data set was made from these array objects and they have not been
        updated in place."""
        identity, own_identity = _identity_of(inputs, targets, weights), self._given
        if identity is None or own_identity is None:
            return False
        return identity[1] == own_identity[1] and are_identical(identity[0], own_identity[0])

    @property
    def leaves(self) -> list[Node]:
        """The evaluated leaves of all arrays, inputs first."""
        return [x.evaluated_leaf() for x in self._leaves]

    @property
    def signature(self) -> Hashable:
        """The properties that a program depends on: structure, shapes, types and layouts."""
        arrays = [(x.shape, x.dtype, x.layout) for x in self.leaves]
        return self._tree, tuple(arrays)

    def batch(self, arrays: list[Array]) -> Samples:
        """Return other arrays, given in the order of `leaves`, nested as those of the data set."""
        return unflatten(self._tree, arrays)  # type: ignore[no-any-return]

    def abstract(self, count: int) -> Any:
        """Return abstract inputs for a batch of `count` samples."""
        return abstract_rows(self.inputs, count)


def abstract_rows(tree: Any, count: int) -> Any:
    """Return abstract arrays with `count` rows for arrays in tuples and dictionaries."""
    return mapped(tree, lambda x: AbstractArray((count, *x.shape[1:]), x.dtype))


def mapped(tree: Any, function: Callable[[Any], Any]) -> Any:
    """Apply a function to each array in tuples and dictionaries; a list is an array's values."""
    if isinstance(tree, dict):
        return {key: mapped(value, function) for key, value in tree.items()}
    if isinstance(tree, tuple) and not _is_number_row(tree):
        return tuple([mapped(value, function) for value in tree])
    return None if tree is None else function(tree)


def _is_number_row(values: tuple[Any, ...]) -> bool:
    """Return True for a tuple of numbers, which counts as an array."""
    return bool(values) and all(isinstance(x, (bool, int, float)) for x in values)


def _on_workers(values: Any, dtype: DType) -> Array:
    """Return an array that all workers can read, floating point numbers in this type."""
    whole = session.engine().environment.replicated
    if isinstance(values, np.ndarray):  # without a copy in another layout
        array = asarray(values, layout=whole(values.shape, shared=True))
    else:
        array = asarray(values)
    if array.dtype.is_floating:
        array = asarray(array, dtype=dtype)
    return array.redistribute(whole(array.shape, shared=True))


def _identity_of(*values: Any) -> tuple[list[Node], Tree] | None:
    """Return the leaves of nested arrays, which differ after an in-place update, and the nesting.

    Returns None if a value is not an array on the workers.
    """
    arrays, tree = flatten(values)
    if not all(isinstance(x, Array) for x in arrays):
        return None
    return [x.evaluated_leaf() for x in arrays], tree


def check_classes(operation: str, outputs: Any, data: ResidentData) -> None:
    """Check the targets of cross-entropy: labels in range, or probabilities. Those of other shapes
    are left to the loss."""
    targets = data.targets
    if not (isinstance(targets, Array) and isinstance(outputs, AbstractArray)):
        return
    if len(outputs.shape) < 2:  # neither labels nor probabilities belong to them
        return
    if are_labels(outputs, targets.shape):
        if not targets.dtype.is_integer:
            raise DataError(
                f"{operation}: labels must be integers, or {_probabilities(outputs)}, was given "
                f"{data.targets_dtype}; convert them with mm.astype(labels, mm.int64)"
            )
        low, high = reductions.min(targets), reductions.max(targets)
        evaluate(low, high)
        check_labels(operation, outputs.shape[1], int(low), int(high))
    elif targets.shape[1:] == outputs.shape[1:]:
        _check_probabilities(operation, targets)
    elif targets.shape[1:] == (1, *outputs.shape[2:]):
        raise DataError(
            f"{operation}: labels must be {targets.ndim - 1}-D, or {_probabilities(outputs)}, was "
            f"given shape {targets.shape}; give labels[:, 0]"
        )


def are_labels(outputs: Any, targets: Shape) -> bool:
    """Return True for abstract outputs (N, classes, …) and targets (N, …)."""
    return (
        isinstance(outputs, AbstractArray)
        and len(outputs.shape) >= 2
        and len(targets) == len(outputs.shape) - 1
        and targets[1:] == outputs.shape[2:]
    )


def _probabilities(outputs: AbstractArray) -> str:
    """Return what probabilities for these outputs are, for messages."""
    return f"({', '.join(['N', *map(str, outputs.shape[1:])])}) probabilities"


def _check_probabilities(operation: str, targets: Array) -> None:
    """Raise DataError unless the targets of each sample are probabilities with sum 1."""
    low, totals = reductions.min(targets), reductions.sum(targets, axis=1)
    deviation = reductions.max(elementwise.abs(totals - 1))
    evaluate(low, deviation)
    if not (float(low) >= 0 and float(deviation) <= PROBABILITY_ERROR):
        raise DataError(
            f"{operation}: cross-entropy takes integer labels, or probabilities: numbers that are "
            f"not negative and have sum 1 for each sample; the least target is {float(low):.4g}, "
            f"and a sum differs from 1 by {float(deviation):.4g}; for other targets take "
            f'loss="mean_squared_error"'
        )


def check_labels(operation: str, classes: int, low: int, high: int) -> None:
    """Check that labels, from the least to the greatest one, are less than the number of classes.
    Raises DataError."""
    if low < 0 or high >= classes:
        raise DataError(
            f"{operation}: labels must be in 0 … {classes - 1} (the network has {classes} "
            f"outputs), was given labels from {low} to {high}; correct the labels, or give the "
            f"last layer more units"
        )


def check_no_batches(operation: str, x: Any) -> None:
    """Raise DataError for batches (x, y) in a list, an iterator or PyTorch's DataLoader, in place
    of samples."""
    is_list = isinstance(x, list) and bool(x) and isinstance(x[0], (tuple, list))
    has_pairs = is_list and len(x[0]) == 2 and all(hasattr(part, "shape") for part in x[0])
    is_loader = hasattr(x, "dataset") and hasattr(x, "batch_size")
    if has_pairs or is_loader or isinstance(x, Iterator):
        raise DataError(
            f"{operation}: needs arrays of all samples and targets, fit(x, y, batch_size=n), or "
            f"mm.data.Loader((x, y), n), was given batches in a {type(x).__name__}; join them: "
            f"x = np.concatenate([x for x, _ in batches]), or take the steps in a loop of your own "
            f"with mm.parallel.CompiledStep"
        )
