"""Records of invalid data that code without exceptions finds: native code, and kernels on GPUs."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import final

import torch

from magmath.executor.error_context import attach_user_line
from magmath.program.instructions import Instruction


@final
@dataclass(frozen=True)
class Fault:
    """The record in which code reports invalid data of an instruction."""

    record: torch.Tensor
    error: Callable[[int], Exception]
    instruction: Instruction

    def take(self) -> Exception | None:
        """Return the error if code has reported one since the last call, otherwise None."""
        is_noted, number = self.record.tolist()
        if not is_noted:
            return None
        self.record.zero_()
        error = self.error(number)
        attach_user_line(error, self.instruction)
        return error


def found_by(faults: Collection[Fault]) -> list[Exception]:
    """Return the errors that code has reported in records of one device since the last call; the
    host waits for the device once."""
    if not torch.stack([fault.record[0] for fault in faults]).any():
        return []
    return [error for fault in faults if (error := fault.take()) is not None]
