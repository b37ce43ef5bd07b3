"""The number of steps that an optimizer has taken, on which its learning rates may depend.

The controller counts most steps when it starts their run. How many steps are taken in a branch of
`cond` or in a loop depends on values, so a variable counts these on the workers. A run that goes on
after Ctrl-C ends between two steps; its steps are counted when the number is read.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Protocol, final
from weakref import WeakKeyDictionary

from magmath.api.creation import variable
from magmath.arrays.variables.variable import Variable, assign
from magmath.core.dtypes import int64
from magmath.engine.run_numbers import advance, reserve_for_run
from magmath.engine.traces import tracing
from magmath.graph import Node
from magmath.optim.states import is_of_current_pool


class UnfinishedRun(Protocol):
    """The method of a run that counts its steps."""

    def wait_for_steps(self) -> int:
        """Wait for the end of the run; return the number of steps that it has taken."""


@final
class StepCount:
    """The number of steps of an optimizer: `started`, which the controller counts, and those that
    the workers count."""

    def __init__(self) -> None:
        self.started = 0
        self._unfinished: list[UnfinishedRun] = []
        self._taken: Variable | None = None
        self._last_read = 0
        """The value of `_taken` when it was last read, from which another pool continues."""
        self._known: WeakKeyDictionary[Node, int] = WeakKeyDictionary()
        """Nodes of values of `_taken` in traced functions, and by how much they exceed its value at
        the start of the run."""

    @property
    def value(self) -> int:
        """All steps so far; waits for runs if the workers count some, or if Ctrl-C has stopped
        some."""
        self._count_unfinished()
        if self._taken is not None and is_of_current_pool(self._taken):
            with tracing.suspended():
                self._last_read = int(self._taken)
        return self.started + self._last_read

    def reserve(self, steps: int) -> None:
        """Count the steps of the next run, unless that fails."""
        self._count_unfinished()
        reserve_for_run(self, "started", steps)

    def add_unfinished(self, run: UnfinishedRun) -> None:
        """Count the steps of a run that goes on after Ctrl-C."""
        self._unfinished.append(run)

    def _count_unfinished(self) -> None:
        for run in [*self._unfinished]:
            steps = run.wait_for_steps()
            with suppress(ValueError):  # another thread has counted them
                self._unfinished.remove(run)
                advance(self, "started", steps)

    def restore(self, count: int) -> None:
        """Continue after this number of steps."""
        self._unfinished.clear()
        self.started, self._last_read = count, 0
        if self._taken is not None:
            with tracing.suspended():
                self._taken.assign(0)

    def taken_in_run(self) -> int | None:
        """Return how many steps the workers count in a run before this line of a traced function;
        None if that depends on values."""
        if self._taken is None:
            return 0
        node = self._taken.node
        if node in (self._taken.leaf, self._taken.current_version):
            return 0
        return self._known.get(node)

    def count_on_workers(self) -> None:
        """Let a run count a step if it executes this line of a traced function."""
        before = self.taken_in_run()
        if self._taken is None or not is_of_current_pool(self._taken):
            with tracing.suspended():
                self._taken = variable("steps", self._last_read, dtype=int64)
        assign([(self._taken, self._taken.node + 1)])
        if before is not None:
            self._known[self._taken.node] = before + 1
