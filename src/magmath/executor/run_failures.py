"""The failures of a run on one worker, which are raised when no other worker waits for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import torch

from magmath.executor.error_context import set_in_step
from magmath.executor.failure_report import FailureReport, read_errors
from magmath.program.instructions import Instruction


@final
class RunFailures:
    """The failures of a program's runs on this worker: of calls, and those that kernels of a GPU
    report in its memory, which is read after a run.

    device  the GPU; None if kernels must raise errors themselves
    errors  the failures of the run so far
    """

    def __init__(self, device: torch.device | None = None) -> None:
        self.device = device
        self.errors: list[Exception] = []
        self._reports: dict[tuple[int, int], FailureReport] = {}
        self._may_be_unread = False

    def record_of(
        self, instruction: Instruction, error: Callable[[int], Exception], check_number: int
    ) -> torch.Tensor | None:
        """Return the record of one of several checks of an instruction; None without a device."""
        if self.device is None:
            return None
        key = id(instruction), check_number
        if key not in self._reports:
            record = torch.zeros(2, dtype=torch.int64, device=self.device)
            self._reports[key] = FailureReport(record, error, instruction)
        return self._reports[key].record

    def begin(self) -> None:
        """Before a run, clear what an earlier run that has failed otherwise has left."""
        self.errors.clear()
        if self._may_be_unread:
            for report in self._reports.values():
                report.record.zero_()
        self._may_be_unread = self.device is not None

    def read(self) -> None:
        """Add the failures that kernels of a GPU have reported."""
        if self._reports:
            self.errors += read_errors(self._reports.values())

    def raise_first(self) -> None:
        """Raise the first failure of a completed run."""
        if self.device is not None:
            self.read()
            self._may_be_unread = False
        if self.errors:
            first = self.errors[0]
            self.errors.clear()
            set_in_step(first)
            raise first
