"""Loader: batches of samples and targets, prepared by background threads.

A batch depends on the seed, the number of the epoch and the number of the batch only: these seed
its generator, so order and values are the same for any number of threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from time import perf_counter
from typing import Any, Protocol, final

import numpy as np
import numpy.typing as npt

from magmath.core.integers import require_integer, require_seed
from magmath.core.keyword_hints import KeywordHints
from magmath.core.resources import processor_count
from magmath.data.thread_tuning import BATCHES_AHEAD, ThreadTuning
from magmath.data.transforms import Transform, apply_transforms
from magmath.errors import DataError


class Source(Protocol):
    """Samples by their number."""

    @property
    def labels(self) -> npt.NDArray[Any]:
        """The labels or other targets of all samples, (N, …)."""

    def read(
        self, indices: npt.NDArray[np.int64], generator: np.random.Generator
    ) -> npt.NDArray[Any]:
        """Return these samples, such as images (N, C, H, W); called by several threads at once."""


@final
class _Arrays:
    """Samples in memory."""

    def __init__(self, arrays: tuple[Any, ...]) -> None:
        if len(arrays) != 2:
            raise DataError(
                f"Loader: needs a pair of arrays (samples, targets), was given {len(arrays)}"
                "; give what belongs to a sample as further columns of its targets"
            )
        self._samples, self.labels = map(np.asarray, arrays)
        shapes = self._samples.shape, self.labels.shape
        if not (shapes[0] and shapes[1] and shapes[0][0] == shapes[1][0]):
            raise DataError(
                f"Loader: needs samples (N, …) and as many targets (N, …), was given shapes "
                f"{shapes[0]} and {shapes[1]}"
                "; give one target for each sample"
            )
        self._is_image = self._samples.ndim == 4

    def read(
        self, indices: npt.NDArray[np.int64], generator: np.random.Generator
    ) -> npt.NDArray[Any]:
        chosen = self._samples[indices]
        return chosen.astype(np.float32, copy=False) if self._is_image else chosen


def _in_batch_type(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return values in the type of batches: int64 for integers, otherwise float32. Raises DataError
    for others than real numbers, and for integers beyond int64."""
    if values.dtype.kind in "cmMSU":
        raise DataError(
            f"Loader: batches are real numbers, was given {values.dtype}; convert the values, "
            f"complex ones to features, np.stack([x.real, x.imag], axis=1)"
        )
    if values.dtype == np.uint64 and values.size and values.max() > np.iinfo(np.int64).max:
        raise DataError(
            f"Loader: integers of batches are int64, which does not hold {values.max()}; give "
            f"smaller ones, or floating point numbers"
        )
    return np.ascontiguousarray(values, np.int64 if values.dtype.kind in "biu" else np.float32)


Batch = tuple[npt.NDArray[Any], npt.NDArray[Any]]


@final
class Loader(metaclass=KeywordHints):
    """Batches of (samples, targets), for `fit` or for a user's own loop.

    source      a pair of arrays, samples (N, …), such as images (N, C, H, W), and labels (N,) or
                other targets (N, …); or an `ImageFolder`
    batch_size  samples in a batch; the last batch of an epoch may have fewer
    transforms  functions of (batch, generator), applied in this order; see `data.transforms`. They
                apply in `fit`, and also in `evaluate` and `predict`, there as in epoch 0. For
                random augmentation in training only, evaluate with a loader without it
    shuffle     draw a new order for each epoch
    seed        seed of the orders and of the transforms
    threads     background threads; 0 prepares each batch when it is requested; by default the
                number is found while batches are used: at first one for each processor of this
                process, at most 4, then more while the loop waits for batches
    drop_last   leave out a last batch with fewer samples in each epoch; `predict` and `evaluate`
                use all samples

    `loader.epoch(n)` iterates over the batches of epoch n. The first iteration over the loader
    itself gives epoch 0, each further one the next epoch. Integers, such as labels and tokens, are
    int64; other numbers, and all images, are float32.

    Raises DataError for arrays that do not match, OptionError for numbers out of range.
    """

    def __init__(
        self,
        source: Source | tuple[Any, Any],
        batch_size: int = 32,
        *,
        transforms: Sequence[Transform] = (),
        shuffle: bool = True,
        seed: int = 0,
        threads: int | None = None,
        drop_last: bool = False,
    ) -> None:
        self.source: Source = _Arrays(source) if isinstance(source, tuple) else source
        if not (hasattr(self.source, "labels") and hasattr(self.source, "read")):
            raise DataError(
                f"Loader: needs a pair of arrays (samples, targets), an ImageFolder, or an object "
                f"with `labels` and `read`, was given {type(source).__name__}; pass such as "
                f"Loader((x, y))"
            )
        self.batch_size = require_integer("Loader: batch_size", batch_size, 1)
        self.transforms = tuple(transforms)
        self.shuffle = shuffle
        self.seed = require_seed("Loader: seed", seed)
        initial = min(processor_count(), 4) if threads is None else threads
        self._threads = require_integer("Loader: threads", initial, 0)
        self._tuning = ThreadTuning(self._threads) if threads is None else None
        self.drop_last = drop_last
        self._next = 0
        if not len(self.source.labels):
            raise DataError(
                "Loader: needs at least one sample, was given none"
                "; check the selection of the samples"
            )
        if not len(self):
            raise DataError(
                f"Loader: drop_last=True leaves no batch: there are {len(self.source.labels)} "
                f"samples for batches of {self.batch_size}; give a smaller batch_size"
            )

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        count = len(self.source.labels)
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)

    def __repr__(self) -> str:
        return (
            f"Loader({self.count} samples in {len(self)} batches of {self.batch_size}, "
            f"{self.threads} threads)"
        )

    @property
    def threads(self) -> int:
        """The number of background threads at present."""
        return self._threads if self._tuning is None else self._tuning.threads

    @property
    def count(self) -> int:
        """The number of samples in an epoch."""
        count = len(self.source.labels)
        return len(self) * self.batch_size if self.drop_last else count

    @property
    def labels(self) -> npt.NDArray[Any]:
        """The labels or other targets of all samples of the source, (N, …)."""
        return _in_batch_type(np.asarray(self.source.labels))

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """The shape of a sample after the transforms, (C, H, W) of an image."""
        return self.example[0].shape[1:]

    @property
    def example(self) -> Batch:
        """A batch of the first sample of the source, after the transforms as they are now."""
        return self._batch(0, 0, np.zeros(1, np.int64))

    def __iter__(self) -> Iterator[Batch]:
        number, self._next = self._next, self._next + 1
        return self.epoch(number)

    def epoch(self, number: int) -> Iterator[Batch]:
        """Return an iterator over the batches of the epoch with this number, in order.

        An exception in a thread is raised when its batch is requested. Closing the iterator, or
        deleting its last reference, ends the threads.
        """
        order = np.arange(len(self.source.labels))
        if self.shuffle:
            order = np.random.default_rng((self.seed, number)).permutation(order)
        return self._batches(number, order[: self.count])

    def in_order(self) -> Iterator[Batch]:
        """Return an iterator over batches of all samples in the order of the source, transformed as
        those of epoch 0. `predict` and `evaluate` take these, so `drop_last` does not apply."""
        return self._batches(0, np.arange(len(self.source.labels)))

    def _batches(self, epoch: int, order: npt.NDArray[np.int64]) -> Iterator[Batch]:
        """Return an iterator over the batches of the samples with these numbers."""
        starts = range(0, len(order), self.batch_size)
        parts = [order[start : start + self.batch_size] for start in starts]
        if not self.threads:
            return (self._batch(epoch, i, part) for i, part in enumerate(parts))
        return self._prefetched(epoch, parts)

    def _batch(self, epoch: int, number: int, indices: npt.NDArray[np.int64]) -> Batch:
        """Return batch `number` of an epoch: the samples with these indices."""
        # From 1: NumPy ignores zeros at the end, and (seed, epoch) is the seed of the order.
        generator = np.random.default_rng((self.seed, epoch, number + 1))
        samples = self.source.read(indices, generator)
        samples = apply_transforms(self.transforms, samples, generator)
        targets = np.asarray(self.source.labels)[indices]
        return _in_batch_type(np.asarray(samples)), _in_batch_type(targets)

    def _prefetched(self, epoch: int, batches: list[npt.NDArray[np.int64]]) -> Iterator[Batch]:
        """Yield the batches in order, while the next ones are prepared."""
        parts = iter(enumerate(batches))
        waiting: deque[Future[Batch]] = deque()
        count = self.threads
        executors = [ThreadPoolExecutor(count, "magmath-loader")]
        last = perf_counter()
        if self._tuning is not None:
            self._tuning.begin_epoch()
        try:
            for number, part in parts:
                waiting.append(executors[-1].submit(self._batch, epoch, number, part))
                while len(waiting) > BATCHES_AHEAD * count:
                    wait_start = perf_counter()
                    batch = waiting.popleft().result()
                    if self._tuning is not None:
                        now = perf_counter()
                        self._tuning.record(now - wait_start, now - last)
                        last = now
                    yield batch
                if count != self.threads:  # what waits in the former one is still prepared
                    executors[-1].shutdown(wait=False)
                    count = self.threads
                    executors.append(ThreadPoolExecutor(count, "magmath-loader"))
            while waiting:
                yield waiting.popleft().result()
        finally:
            for executor in executors:
                executor.shutdown(wait=True, cancel_futures=True)
