"""Data sets on the workers, as training and evaluation take them.

Inputs and targets are arrays, or tuples and dictionaries of arrays for modules with several inputs
and losses of several targets; all have the samples along their first axis.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from operator import is_
from typing import Any, final

from magmath.api import elementwise, statistics
from magmath.api.creation import asarray
from magmath.array.array import Array
from magmath.array.lazy_array import evaluate
from magmath.array.tree import flatten, unflatten
from magmath.core.dtypes import DType
from magmath.engine import session
from magmath.errors import DataError
from magmath.graph import Node
from magmath.nn.abstract import AbstractArray

PROBABILITY_ERROR = 1e-2
"""How far the probabilities of a sample may be from a sum of 1."""


@final
class DataSet:
    """Inputs and targets where every worker can take any sample: one copy a host, or one on each
    worker. `targets` is None where only outputs are wanted.

    Floating point arrays are converted to `dtype`; integers stay as they are.
    """

    def __init__(self, operation: str, inputs: Any, targets: Any, dtype: DType) -> None:
        self._given = _values_of(inputs, targets)
        self.checked = ""
        """The operation for which it was checked that the data fit module and loss."""
        self.inputs = _mapped(inputs, lambda x: _on_workers(x, dtype))
        self.targets_dtype: DType | None = None
        """The element type of a single array of targets, as it was given."""
        if not isinstance(targets, (tuple, dict)) and targets is not None:
            targets = asarray(targets)
            self.targets_dtype = targets.dtype
        self.targets = _mapped(targets, lambda x: _on_workers(x, dtype))
        self._leaves, self._tree = flatten((self.inputs, self.targets))
        samples, _ = flatten(self.inputs)
        if not samples or any(x.ndim == 0 or x.shape[0] == 0 for x in samples):
            shapes = ", ".join([str(x.shape) for x in samples])
            raise DataError(f"{operation}: samples must be (N, …) with N ≥ 1, was given {shapes}")
        self.count = samples[0].shape[0]
        if any(x.shape[0] != self.count for x in samples):
            shapes = ", ".join([str(x.shape) for x in samples])
            raise DataError(f"{operation}: all inputs need as many samples, was given {shapes}")
        for x in flatten(self.targets)[0] if targets is not None else ():
            if x.ndim == 0 or x.shape[0] != self.count:
                raise DataError(
                    f"{operation}: {self.count} samples need as many targets, was given {x.shape}"
                )

    def is_of(self, inputs: Any, targets: Any) -> bool:
        """True if it was made of these very arrays, which have not been updated in place since."""
        given = _values_of(inputs, targets)
        mine = self._given
        return given is not None and mine is not None and _all_same(given, mine)

    @property
    def leaves(self) -> list[Node]:
        """The leaves of all arrays, inputs first."""
        return [x.evaluated() for x in self._leaves if x is not None]

    @property
    def signature(self) -> Hashable:
        """What a program that reads the data depends on."""
        arrays = [(x.shape, x.dtype, x.layout) for x in self.leaves]
        return self._tree, tuple(arrays)

    def batch(self, arrays: list[Array]) -> tuple[Any, Any]:
        """Inputs and targets nested as these are, made of other arrays in the order of `leaves`."""
        found = iter(arrays)
        leaves = [None if x is None else next(found) for x in self._leaves]
        return unflatten(self._tree, leaves)  # type: ignore[no-any-return]

    def abstract(self, count: int) -> Any:
        """The inputs of a batch of so many samples, without values."""
        return _mapped(self.inputs, lambda x: AbstractArray((count, *x.shape[1:]), x.dtype))


def _mapped(tree: Any, function: Callable[[Any], Any]) -> Any:
    """A function of each array of tuples and dictionaries; a list is the values of an array."""
    if isinstance(tree, dict):
        return {key: _mapped(value, function) for key, value in tree.items()}
    if isinstance(tree, tuple) and not _is_number_row(tree):
        return tuple([_mapped(value, function) for value in tree])
    return None if tree is None else function(tree)


def _is_number_row(values: tuple[Any, ...]) -> bool:
    """True for a tuple of numbers, which is an array."""
    return bool(values) and all(isinstance(x, (bool, int, float)) for x in values)


def _on_workers(values: Any, dtype: DType) -> Array:
    array = asarray(values)
    if array.dtype.is_floating:
        array = asarray(array, dtype=dtype)
    return array.redistribute(session.engine().environment.whole(array.shape, shared=True))


def _values_of(*trees: Any) -> list[Any] | None:
    """The values of arrays, which are others after an update in place; None where something is not
    on the workers."""
    leaves, _ = flatten(trees)
    if not all(x is None or isinstance(x, Array) for x in leaves):
        return None
    return [None if x is None else x.evaluated() for x in leaves]


def _all_same(some: list[Any], others: list[Any]) -> bool:
    return len(some) == len(others) and all(map(is_, some, others))


def check_classes(operation: str, outputs: Any, data: DataSet) -> None:
    """Check the targets of cross-entropy: labels in range, or probabilities."""
    targets = data.targets
    single = isinstance(outputs, AbstractArray) and isinstance(targets, Array)
    if not single or len(outputs.shape) != 2:
        return
    if targets.ndim == 1 and not targets.dtype.is_integer:
        raise DataError(
            f"{operation}: labels must be integers, or (N, {outputs.shape[1]}) probabilities, was "
            f"given {data.targets_dtype}; convert them with mm.astype(labels, mm.int64)"
        )
    if targets.ndim == 1:
        _check_labels(operation, outputs.shape[1], targets)
    elif targets.ndim == 2:
        _check_probabilities(operation, targets)


def _check_probabilities(operation: str, targets: Array) -> None:
    low, totals = statistics.min(targets), statistics.sum(targets, axis=1)
    far = statistics.max(elementwise.abs(totals - 1))
    evaluate(low, far)
    if not (float(low) >= 0 and float(far) <= PROBABILITY_ERROR):
        raise DataError(
            f"{operation}: cross-entropy takes integer labels, or probabilities: numbers that are "
            f"not negative and have sum 1 for each sample; the least target is {float(low):.4g}, "
            f"and a sum differs from 1 by {float(far):.4g}; for other targets take "
            f'loss="mean_squared_error"'
        )


def _check_labels(operation: str, classes: int, labels: Array) -> None:
    low, high = int(statistics.min(labels)), int(statistics.max(labels))
    if low < 0 or high >= classes:
        raise DataError(
            f"{operation}: labels must lie in 0 … {classes - 1} (the network has {classes} "
            f"outputs), was given labels from {low} to {high}; mend the labels, or give the last "
            f"layer more units"
        )
