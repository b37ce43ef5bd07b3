"""Listeners: objects that a trainer notifies of events of training. Callbacks are listeners."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar, final

from magmath.core.unique_names import numbered
from magmath.errors import OptionError
from magmath.train.history import EpochRecord
from magmath.train.reporter import Reporter

TrainerType = TypeVar("TrainerType", contravariant=True)


class Listener(Generic[TrainerType]):
    """Receives the events of a trainer of the class `TrainerType`; the methods of this class do
    nothing."""

    def on_train_begin(self, trainer: TrainerType, epochs: int, steps: int) -> None:
        """`fit` begins to train for `epochs` epochs of `steps` steps each."""

    def on_epoch_begin(self, trainer: TrainerType, epoch: int) -> None:
        """An epoch begins; `epoch` counts all epochs of this trainer, from 0."""

    def on_step_end(self, trainer: TrainerType, done: int, loss: float, speed: float) -> None:
        """`done` steps of this epoch are complete; `loss` is that of the last one, `speed` the
        number of samples per second.

        It is called after each step, when the variables of the module have their new values. If no
        callback has this method, the workers run the steps of an epoch without the controller;
        otherwise each step is a message of its own, and a learning rate that it assigns is that of
        the next step. Asynchronous training always runs without the controller, and calls the
        method after several steps each.
        """

    def on_epoch_end(self, trainer: TrainerType, record: EpochRecord) -> None:
        """An epoch has ended, validation included. `trainer.stop()` makes it the last one."""

    def on_train_end(self, trainer: TrainerType, finished: bool) -> None:
        """`fit` ends, after the `on_train_begin` of this listener; `finished` is False if an
        exception, such as Ctrl-C, ended it."""

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed training needs, which checkpoints store after each epoch: numbers,
        strings, None and arrays, in lists, tuples and dictionaries."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state_dict` returned; called after `on_train_begin` if `fit` resumes
        from a checkpoint that has a state of this listener."""


@final
class Reporting(Listener[object]):
    """Passes the events to a reporter."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter

    def on_train_begin(self, trainer: object, epochs: int, steps: int) -> None:
        """Training starts."""
        self._reporter.begin(epochs, steps)

    def on_step_end(self, trainer: object, done: int, loss: float, speed: float) -> None:
        """Steps are complete."""
        self._reporter.step(done, loss, speed)

    def on_epoch_end(self, trainer: object, record: EpochRecord) -> None:
        """An epoch has ended."""
        self._reporter.epoch(record)

    def on_train_end(self, trainer: object, finished: bool) -> None:
        """Training ended."""
        self._reporter.end()


def has_step_callback(listeners: Sequence[Listener[Any]]) -> bool:
    """Return True if a callback has its own `on_step_end`. A reporter needs some of the steps
    only."""
    callbacks = [listener for listener in listeners if not isinstance(listener, Reporting)]
    return any(type(listener).on_step_end is not Listener.on_step_end for listener in callbacks)


@final
class _RecordFunction(Listener[object]):
    """Calls a function with the record of each epoch."""

    def __init__(self, function: Callable[[EpochRecord], object]) -> None:
        self._function = function

    def on_epoch_end(self, trainer: object, record: EpochRecord) -> None:
        """Call the function."""
        self._function(record)


def callback_list(callbacks: Any) -> list[Any]:
    """Return a sequence of callbacks, or a single one, as a list. A text is a single one, which
    `as_listener` refuses."""
    is_sequence = isinstance(callbacks, Iterable) and not isinstance(callbacks, str)
    return list(callbacks) if is_sequence else [callbacks]


def as_listener(callback: Any) -> Listener[Any]:
    """Return a callback unchanged, and a function of the epoch's record as a listener."""
    if isinstance(callback, Listener):
        return callback
    if isinstance(callback, type) or not callable(callback):
        raise OptionError(
            f"fit: a callback is an object such as mm.train.EarlyStopping(5), or a function of the "
            f"epoch's record; was given {callback!r}"
        )
    return _RecordFunction(callback)


def listener_names(listeners: Sequence[Listener[Any]]) -> list[str]:
    """Return a name for each listener, by which a checkpoint identifies its state: the class, and
    a number for further listeners of a class."""
    return numbered([type(listener).__name__ for listener in listeners])
