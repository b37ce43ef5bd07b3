"""Listeners: what a trainer tells during training. Callbacks and reporters are listeners."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, final

from magmath.errors import MagmathError
from magmath.train.history import EpochRecord
from magmath.train.reporter import Reporter

Owner = TypeVar("Owner", contravariant=True)


class Listener(Generic[Owner]):
    """Is told of the progress of a trainer, of the class `Owner`; each method does nothing here."""

    def on_train_begin(self, trainer: Owner, epochs: int, steps: int) -> None:
        """`fit` begins: so many epochs of so many steps."""

    def on_epoch_begin(self, trainer: Owner, epoch: int) -> None:
        """An epoch begins; the first one that the trainer ever runs is 0."""

    def on_step_end(self, trainer: Owner, done: int, loss: float, speed: float) -> None:
        """So many steps of this epoch are done, the last with this loss, at so many samples a
        second. Steps run on the workers without the controller, which is told now and then."""

    def on_epoch_end(self, trainer: Owner, record: EpochRecord) -> None:
        """An epoch has ended, validation included. `trainer.stop()` makes it the last one."""

    def on_train_end(self, trainer: Owner, finished: bool) -> None:
        """`fit` ends; `finished` is False where an exception (Ctrl-C too) ends it."""


@final
class Reporting(Listener[object]):
    """Tells a reporter."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter

    def on_train_begin(self, trainer: object, epochs: int, steps: int) -> None:
        """Training starts."""
        self._reporter.begin(epochs, steps)

    def on_step_end(self, trainer: object, done: int, loss: float, speed: float) -> None:
        """Steps are done."""
        self._reporter.step(done, loss, speed)

    def on_epoch_end(self, trainer: object, record: EpochRecord) -> None:
        """An epoch ended."""
        self._reporter.epoch(record)

    def on_train_end(self, trainer: object, finished: bool) -> None:
        """Training ended."""
        self._reporter.end()


@final
class _OfRecord(Listener[object]):
    """A plain function of the epoch's record."""

    def __init__(self, function: Callable[[EpochRecord], object]) -> None:
        self._function = function

    def on_epoch_end(self, trainer: object, record: EpochRecord) -> None:
        """Call the function."""
        self._function(record)


def as_listener(given: Any) -> Listener[Any]:
    """The callback, which is a listener; of a function of the epoch's record one that calls it."""
    if isinstance(given, Listener):
        return given
    if isinstance(given, type) or not callable(given):
        raise MagmathError(
            f"fit: a callback is an object such as mm.train.EarlyStopping(5), or a function of the "
            f"epoch's record; was given {given!r}"
        )
    return _OfRecord(given)
