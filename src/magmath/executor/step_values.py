"""Collects the values that the steps of a run emit, and returns them in the order of the steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

import numpy as np
from torch import Tensor


@final
class StepValues:
    """A row of numbers for each step of a run.

    width     the numbers of a step; the last one is at least 0
    allocate  returns memory of a number of bytes, as uint8
    """

    def __init__(self, width: int, allocate: Callable[[int], Tensor]) -> None:
        self.width, self._allocate = width, allocate
        self._rows = np.empty((0, width))
        self._reported = 0

    def start(self, steps: int) -> None:
        """Begin a run; calls `allocate` if more steps than before need memory."""
        if len(self._rows) < steps:
            nbytes = 8 * self.width * steps
            memory = self._allocate(nbytes)[:nbytes].numpy()
            self._rows = memory.view(np.float64).reshape(steps, self.width)
        self._reported = 0

    def clear(self) -> None:
        """Mark all steps as unfinished."""
        self._rows[:, -1] = -1.0

    def set(self, step: int, values: Sequence[float]) -> None:
        """Store the values of a step."""
        row = self._rows[step]
        row[:-1] = values[:-1]
        row[-1] = values[-1]  # after the others: it marks the step as finished

    def prefix(self) -> tuple[int, list[float]]:
        """Return the number of steps before the first unfinished one, and their values that were
        not reported yet."""
        finished = self._reported
        while finished < len(self._rows) and self._rows[finished, -1] >= 0:
            finished += 1
        return finished, self.take_unreported(finished)

    def take_unreported(self, finished: int) -> list[float]:
        """Return the values of the steps before step `finished` that were not reported yet; they
        are reported now."""
        first, self._reported = self._reported, finished
        return self._rows[first:finished].reshape(-1).tolist()

    def before(self, finished: int) -> list[float]:
        """Return the values of the steps before step `finished`."""
        return self._rows[:finished].reshape(-1).tolist()
