"""Reports of invalid data by code that raises no exceptions: native code, and kernels of GPUs."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import final

import torch

from magmath.executor.error_context import attach_user_line
from magmath.program.instructions import Instruction


@final
@dataclass(frozen=True)
class FailureReport:
    """The record, (is reported, number), in which code reports invalid data of an instruction, and
    the exception of a number."""

    record: torch.Tensor
    error: Callable[[int], Exception]
    instruction: Instruction

    def take(self) -> Exception | None:
        """Return the error if code has reported one since the last call, otherwise None."""
        is_reported, number = self.record.tolist()
        if not is_reported:
            return None
        self.record.zero_()
        error = self.error(number)
        attach_user_line(error, self.instruction)
        return error


def read_errors(reports: Collection[FailureReport]) -> list[Exception]:
    """Return the errors that code has reported in records of one device since the last call; the
    host waits for the device once."""
    if not torch.stack([report.record[0] for report in reports]).any():
        return []
    return take_errors(reports)


def take_errors(reports: Collection[FailureReport]) -> list[Exception]:
    """Return the errors that code has reported since the last call."""
    return [error for report in reports if (error := report.take()) is not None]
