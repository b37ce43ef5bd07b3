"""Feeds: the sources of the batches of a training step.

`ResidentFeed` has a data set on the workers, from which each step selects its batch; an epoch is
one run of many steps. `StreamFeed` sends the batches of a `data.Loader` to the workers one by one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, final

import numpy as np

from magmath.arrays.array import Array
from magmath.core.dtypes import DType, int64
from magmath.core.integers import require_integer, require_seed
from magmath.data.loader import Loader
from magmath.engine import session
from magmath.engine.traces.stream_ranges import ORDER_STREAMS
from magmath.errors import DataError
from magmath.graph import Node, Shape, apply
from magmath.layout import Layout
from magmath.ops import creation
from magmath.ops import elementwise as e
from magmath.ops.indexing import dynamic_slice, gather_scatter
from magmath.ops.leaves import constant, input_leaf, scalar
from magmath.train.resident_data import (
    ResidentData,
    Samples,
    are_labels,
    check_classes,
    check_labels,
)

EXAMPLE_ROWS = 2
"""Samples that represent a batch in abstract calls, which determine shapes."""


@final
class FeedRun(NamedTuple):
    """A run of several steps on the same operands.

    operands           the leaves of the arrays that the steps read
    samples_per_step   the number of samples in each step
    steps              the number of steps
    """

    operands: list[Node]
    samples_per_step: int
    steps: int


class Feed(Protocol):
    """The batches of a training step."""

    @property
    def count(self) -> int:
        """The number of samples in an epoch."""

    @property
    def batch_size(self) -> int:
        """The number of samples in all batches but the last."""

    @property
    def signature(self) -> Hashable:
        """The properties that the program of a step depends on."""

    @property
    def example(self) -> ResidentData:
        """A data set whose inputs and targets have the types and shapes of a batch."""

    def placeholders(self, samples_per_step: int) -> list[Node]:
        """Return new leaves for the operands of a step with a batch of this size."""

    def leaves_sent_later(self, placeholders: Sequence[Node]) -> Sequence[Node]:
        """Return those of the leaves whose arrays are not on the workers before a run."""

    def batch(
        self,
        placeholders: Sequence[Node],
        samples_per_step: int,
        step: Node,
        epoch: Node,
        seed: Node,
    ) -> Samples:
        """Return the samples of this step of an epoch, as expressions of the leaves."""

    def runs(self, epoch: int, seed: int) -> Iterator[FeedRun]:
        """Yield the runs of the epoch with this number, in the order of this seed."""

    def data_sets(self) -> Iterator[ResidentData]:
        """Yield data sets that contain all samples in total."""

    def check_classes(self, operation: str, outputs: Any) -> None:
        """Check the targets of cross-entropy. Raises DataError."""


def sample_order(count: int, *, epoch: int = 0, seed: int = 0) -> Array:
    """Return the order (count,), int64, in which `fit` takes its samples in an epoch, from 0.

    `seed`: that of the network, otherwise that of the pool. Another framework that takes these
    batches sees the same samples in every step.
    """
    count = require_integer("sample_order: count", count, 0)
    epoch = require_integer("sample_order: epoch", epoch, 0)
    seed = require_seed("sample_order: seed", seed)
    return Array(_order(count, constant(epoch, int64), constant(seed, int64)))


def _order(count: int, epoch: Node, seed: Node) -> Node:
    stream = e.add(epoch, constant(ORDER_STREAMS, int64))
    return apply(creation.PERMUTATION, seed, stream, shape=(count,), dtype=int64, below=count)


@final
class ResidentFeed:
    """Batches of a data set on the workers, in a new order in each epoch if `shuffle`.

    reads_order   the order is computed once for each epoch, and is an operand of the steps. By
                  default each run computes it, which is slow for runs of one step
    multiple      the number of equal parts into which a strategy divides batches: of the last one
                  of an epoch, the samples beyond a multiple are left out
    """

    def __init__(
        self,
        data: ResidentData,
        batch_size: int,
        shuffle: bool,
        *,
        reads_order: bool = False,
        multiple: int = 1,
    ) -> None:
        self.example = data
        self.batch_size, self.count = min(batch_size, data.count), data.count
        if multiple <= data.count <= batch_size:
            self.batch_size = self.count = data.count - data.count % multiple
        elif data.count > batch_size and batch_size % multiple == 0:  # or the strategy refuses it
            self.count -= data.count % batch_size % multiple
        self._given_batch_size = batch_size
        self._shuffle = shuffle
        self._reads_order = shuffle and reads_order

    def divided(self, multiple: int) -> ResidentFeed:
        """Return the feed of the same data for a strategy that divides batches into this number of
        parts."""
        return ResidentFeed(
            self.example,
            self._given_batch_size,
            self._shuffle,
            reads_order=self._reads_order,
            multiple=multiple,
        )

    @property
    def signature(self) -> Hashable:
        """The properties that the program of a step depends on."""
        counts = self.count, self.batch_size
        return "resident", self.example.signature, *counts, self._shuffle, self._reads_order

    def placeholders(self, samples_per_step: int) -> list[Node]:
        """Return leaves for the whole data set, and for the order if it is read."""
        leaves = self.example.leaves
        placeholders = [input_leaf(x.shape, x.dtype, x.layout, None) for x in leaves if x.layout]
        if self._reads_order:
            layout = self._layout_of_order()
            placeholders.append(input_leaf(layout.shape, int64, layout, None))
        return placeholders

    def leaves_sent_later(self, placeholders: Sequence[Node]) -> Sequence[Node]:
        """Return the leaf of the order if it is read."""
        return placeholders[-1:] if self._reads_order else ()

    def batch(
        self,
        placeholders: Sequence[Node],
        samples_per_step: int,
        step: Node,
        epoch: Node,
        seed: Node,
    ) -> Samples:
        """Return the samples of this step, in the epoch's order."""
        if self._reads_order:
            *placeholders, order = placeholders
        elif self._shuffle:
            order = _order(self.example.count, epoch, seed)
        else:
            order = creation.iota((self.example.count,), 0)
        start = self._start(samples_per_step, step)
        index = dynamic_slice.dynamic_slice(order, 0, start, samples_per_step)
        return self.example.batch([Array(gather_scatter.take(x, index, 0)) for x in placeholders])

    def _start(self, samples_per_step: int, step: Node) -> Node:
        """Return the position of the batch in the order of the samples."""
        if samples_per_step != self.batch_size:
            return constant(self.count - samples_per_step, int64)
        return e.multiply(step, constant(samples_per_step, int64))

    def runs(self, epoch: int, seed: int) -> Iterator[FeedRun]:
        """Yield one run of all full batches, and one of the rest."""
        leaves = self.example.leaves
        if self._reads_order:
            order = Array(_order(self.example.count, scalar(epoch, int64), scalar(seed, int64)))
            leaves.append(order.redistribute(self._layout_of_order()).evaluated_leaf())
        yield FeedRun(leaves, self.batch_size, self.count // self.batch_size)
        if remaining := self.count % self.batch_size:
            yield FeedRun(leaves, remaining, 1)

    def _layout_of_order(self) -> Layout:
        return session.engine().environment.replicated((self.example.count,), shared=True)

    def data_sets(self) -> Iterator[ResidentData]:
        """Yield the data set."""
        yield self.example

    def check_classes(self, operation: str, outputs: Any) -> None:
        """Check the targets of cross-entropy. Raises DataError."""
        check_classes(operation, outputs, self.example)


@final
class StreamFeed:
    """Batches of a loader, which are sent to the workers when their step begins.

    former   an earlier feed; labels for which it was checked are not checked again
    """

    def __init__(
        self, operation: str, loader: Loader, dtype: DType, former: Feed | None = None
    ) -> None:
        self._operation, self._loader, self._dtype = operation, loader, dtype
        self.count = loader.count
        self.batch_size = min(loader.batch_size, loader.count)
        rows = min(EXAMPLE_ROWS, self.batch_size)
        samples, targets = [np.zeros((rows, *x.shape[1:]), x.dtype) for x in loader.example]
        self.example = ResidentData(operation, samples, targets, dtype)
        self._labels = loader.source.labels
        if isinstance(former, StreamFeed) and former._labels is self._labels:
            self.example.checked = former.example.checked

    @property
    def signature(self) -> Hashable:
        """The properties that the program of a step depends on."""
        return "stream", self.example.signature, self.count, self.batch_size

    def placeholders(self, samples_per_step: int) -> list[Node]:
        """Return leaves for a batch."""
        replicated = session.engine().environment.replicated
        shapes = [((samples_per_step, *x.shape[1:]), x.dtype) for x in self.example.leaves]
        return [
            input_leaf(shape, dtype, replicated(shape, shared=True), None)
            for shape, dtype in shapes
        ]

    def leaves_sent_later(self, placeholders: Sequence[Node]) -> Sequence[Node]:
        """Return all leaves."""
        return placeholders

    def batch(
        self,
        placeholders: Sequence[Node],
        samples_per_step: int,
        step: Node,
        epoch: Node,
        seed: Node,
    ) -> Samples:
        """Return the operands themselves."""
        return self.example.batch([Array(leaf) for leaf in placeholders])

    def runs(self, epoch: int, seed: int) -> Iterator[FeedRun]:
        """Yield one run for each batch of the loader, which has its own order.

        Raises DataError for a batch whose samples have another shape or type than the example.
        """
        needed = _sample_types(self.example)
        for data in self._resident(self._loader.epoch(epoch)):
            given = _sample_types(data)
            if given != needed:
                raise DataError(
                    f"{self._operation}: a batch of the loader has samples and targets of "
                    f"{_text(given)}, the first sample of its source is {_text(needed)}; give all "
                    f"batches of an epoch one shape and type, and change transforms between "
                    f"epochs, in on_epoch_begin"
                )
            yield FeedRun(data.leaves, data.count, 1)

    def data_sets(self) -> Iterator[ResidentData]:
        """Yield the batches in the order of the loader's source."""
        return self._resident(self._loader.in_order())

    def _resident(self, batches: Iterator[tuple[Any, Any]]) -> Iterator[ResidentData]:
        for samples, targets in batches:
            yield ResidentData(self._operation, samples, targets, self._dtype)

    def check_classes(self, operation: str, outputs: Any) -> None:
        """Check the labels of all samples of the loader. Raises DataError."""
        labels = np.asarray(self._labels)  # of all samples: conversion would take memory and time
        if labels.dtype.kind in "biu" and are_labels(outputs, labels.shape):
            check_labels(operation, outputs.shape[1], int(labels.min()), int(labels.max()))


def _sample_types(data: ResidentData) -> list[tuple[Shape, DType]]:
    """Return the shape and type of a sample in each array of a data set."""
    return [(x.shape[1:], x.dtype) for x in data.leaves]


def _text(types: list[tuple[Shape, DType]]) -> str:
    return ", ".join(f"{dtype} {shape}" for shape, dtype in types)
