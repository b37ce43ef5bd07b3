"""The data of a trainer: stored on the workers, and checked against its module and its loss."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, Protocol, final
from weakref import ref

from magmath.core.bounded_memo import RecentlyUsed
from magmath.core.dtypes import DType
from magmath.core.identity import are_identical
from magmath.data.loader import Loader
from magmath.engine.user_line import warn_user
from magmath.errors import DataError, OptionError
from magmath.nn.losses import cross_entropy
from magmath.nn.module import Module
from magmath.parallel.strategy import Strategy
from magmath.train.feeds import EXAMPLE_ROWS, Feed, ResidentFeed, StreamFeed
from magmath.train.metric_choice import MetricFunction, Metrics, chosen_metrics
from magmath.train.resident_data import ResidentData, abstract_rows, check_no_batches

KEPT_DATA_SETS = 2  # the last ones of `fit` and `evaluate`, such as for training and validation
KEPT_OUTPUTS = 16  # signatures of data sets for which abstract outputs are kept


class DataTrainer(Protocol):
    """The attributes of a trainer with which its data are checked."""

    metrics: Metrics

    @property
    def module(self) -> Module:
        """The module that is trained."""

    @property
    def loss(self) -> Callable[..., Any]:
        """The loss of outputs and targets."""

    @property
    def dtype(self) -> DType:
        """The floating point type of the parameters."""

    def trace(self, inputs: Any, training: bool) -> Any:
        """Return abstract outputs for abstract inputs; makes the parameters."""


@final
class TrainerData:
    """The data sets that a trainer has on the workers, and the feeds of these and of loaders.

    The trainer owns this object, which refers to it weakly: the memory of a network is freed with
    its last reference.
    """

    def __init__(self, trainer: DataTrainer) -> None:
        self._owner = ref(trainer)
        self._data_sets: list[ResidentData] = []
        self._outputs: RecentlyUsed[Hashable, Any] = RecentlyUsed(KEPT_OUTPUTS)
        """Abstract outputs of the module whose parts are `_modules`."""
        self._modules: list[ref[Module]] = []

    @property
    def _trainer(self) -> DataTrainer:
        trainer = self._owner()
        assert trainer is not None, "the trainer owns its data"
        return trainer

    def training_feed(
        self,
        samples: tuple[Any, Any, Any],
        batch_size: int,
        shuffle: bool,
        strategy: Strategy,
        *,
        alone: bool,
        former: Feed | None,
    ) -> Feed:
        """Return the feed of `fit` for inputs, targets and weights.

        alone    True if each step is a run of its own
        former   the earlier feed of this call of `fit`, or None: labels of a loader for which it
                 was checked are not checked again

        Raises DataError for samples that do not fit each other, the module or the loss.
        """
        x, y, weights = samples
        if isinstance(x, Loader):
            if strategy.is_asynchronous:
                raise OptionError(
                    "fit: with the strategy 'asynchronous' each worker takes batches of its own "
                    "from the stored samples, was given a Loader; pass the arrays, fit(x, y), or "
                    "choose another strategy"
                )
            feed: Feed = self._stream_feed("fit", x, y, weights, former)
        else:
            data = self._data_set("fit", x, y, weights)
            multiple = strategy.batch_multiple
            feed = ResidentFeed(data, batch_size, shuffle, reads_order=alone, multiple=multiple)
            if feed.count < data.count:
                warn_user(
                    f"fit: {data.count - feed.count} of {data.count} samples are left out in each "
                    f"epoch, since {strategy.label} divides each batch into {multiple} equal "
                    f"parts; to use them all, choose a number of samples that is a multiple of "
                    f"{multiple}"
                )
        return self._checked("fit", feed, feed.batch_size, training=True)

    def validation_feed(self, validation: Any) -> Feed | None:
        """Return the feed of the validation data of `fit`, arrays or a loader; None for none."""
        if validation is None:
            return None
        if isinstance(validation, Loader):
            return self.evaluation_feed(validation, None)
        if not (isinstance(validation, (tuple, list)) and len(validation) in (2, 3)):
            count = f" of {len(validation)}" if isinstance(validation, (tuple, list)) else ""
            raise DataError(
                f"fit: validation must be (samples, targets), (samples, targets, weights) or a "
                f"Loader, was given {type(validation).__name__}{count}; write such as "
                f"validation=(x, y)"
            )
        return self.evaluation_feed(*validation)

    def evaluation_feed(self, x: Any, y: Any, weights: Any = None) -> Feed:
        """Return the feed of the samples, targets and weights to be evaluated. Raises DataError for
        samples that do not fit each other, the module or the loss."""
        if isinstance(x, Loader):
            feed: Feed = self._stream_feed("evaluate", x, y, weights)
        else:
            data = self._data_set("evaluate", x, y, weights)
            feed = ResidentFeed(data, EXAMPLE_ROWS, shuffle=False)
        return self._checked("evaluate", feed, EXAMPLE_ROWS, training=False)

    def unlabelled(self, operation: str, x: Any) -> ResidentData:
        """Return samples without targets on the workers, after the parameters have been made."""
        data = ResidentData(operation, x, None, self._trainer.dtype)
        self._abstract_outputs(data, EXAMPLE_ROWS, training=False)
        return data

    def unlabelled_feed(self, operation: str, loader: Loader) -> Feed:
        """Return the feed of a loader whose labels are not checked, after the parameters have been
        made."""
        feed = self._stream_feed(operation, loader, None, None)
        self._abstract_outputs(feed.example, EXAMPLE_ROWS, training=False)
        return feed

    def metrics_of(self, feed: Feed, rows: int, *, training: bool) -> Mapping[str, MetricFunction]:
        """Return the trainer's metrics, or the default ones, by name, for batches of `rows`
        samples."""
        trainer, data = self._trainer, feed.example
        outputs = self._abstract_outputs(data, rows, training)
        targets = abstract_rows(data.targets, min(rows, data.count))
        classifies = trainer.loss is cross_entropy
        return chosen_metrics(trainer.metrics, outputs, targets, classifies)

    def _data_set(self, operation: str, x: Any, y: Any, weights: Any) -> ResidentData:
        """Return the data on the workers; reuses a data set of the same arrays."""
        if y is None:
            check_no_batches(operation, x)
            raise DataError(f"{operation}: needs targets y for its samples, was given none")
        dtype = self._trainer.dtype
        for data in self._data_sets:
            if data.is_of(x, y, weights) and data.dtype is dtype:
                return data
        data = ResidentData(operation, x, y, dtype, weights)
        self._data_sets = [data, *self._data_sets][:KEPT_DATA_SETS]
        return data

    def _stream_feed(
        self, operation: str, loader: Loader, y: Any, weights: Any, former: Feed | None = None
    ) -> StreamFeed:
        """Return the feed of a loader. Raises OptionError if targets or weights are given too."""
        if y is not None:
            raise OptionError(f"{operation}: a Loader contains the targets; leave out y")
        if weights is not None:
            raise OptionError(
                f"{operation}: a Loader has no weights of samples; give arrays instead, or leave "
                f"out sample_weight"
            )
        return StreamFeed(operation, loader, self._trainer.dtype, former)

    def _checked(self, operation: str, feed: Feed, rows: int, *, training: bool) -> Feed:
        """Return the feed, after checking that inputs and targets fit module and loss."""
        data, loss = feed.example, self._trainer.loss
        outputs = self._abstract_outputs(data, rows, training)
        if data.checked != (operation, loss, outputs):
            if loss is cross_entropy:
                feed.check_classes(operation, outputs)
            data.checked = operation, loss, outputs
        return feed

    def _abstract_outputs(self, data: ResidentData, rows: int, training: bool) -> Any:
        """Return abstract outputs for a batch of at most `rows` samples of a data set; caches
        them until the module has other parts."""
        trainer, count = self._trainer, min(rows, data.count)
        modules = trainer.module.modules()
        if not are_identical([module() for module in self._modules], modules):
            self._outputs.clear()
            self._modules = list(map(ref, modules))
        key = data.signature, count, training
        outputs = self._outputs.find(key)
        if outputs is None or not trainer.module.is_built:
            outputs = trainer.trace(data.abstract(count), training)
            self._outputs.store(key, outputs)
        return outputs
