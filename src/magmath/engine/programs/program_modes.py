"""The modes in which programs run: those of training steps differ from those of other programs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, final


@final
@dataclass(frozen=True, slots=True)
class ProgramModes:
    """How a program runs (`Program`).

    flushes_denormals  denormal numbers count as zero, unless the pool keeps them
    reports_late       a GPU may overwrite variables before it reports invalid data; for callers
                       that restore them
    """

    flushes_denormals: bool = False
    reports_late: bool = False

    def of_training(self) -> ProgramModes:
        """Return these modes for a training step."""
        return replace(self, flushes_denormals=True)


DEFAULT_MODES: Final = ProgramModes()
RESTORED_TRAINING: Final = ProgramModes(flushes_denormals=True, reports_late=True)
"""A step of `fit`, which restores the variables after a failure."""
