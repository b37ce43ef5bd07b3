"""What the report of an error (`runtime/failures.py`) reads of it, in addition to its message."""

from __future__ import annotations

from magmath.graph import Node
from magmath.program.instructions import Instruction


def attach_user_line(error: Exception, origin: Instruction | Node | None) -> None:
    """Attach to an error the user's line that built the failing operation."""
    line = getattr(origin, "line", None)
    if line and not hasattr(error, "user_line"):
        error.user_line = f"{line[0]}:{line[1]}"  # type: ignore[attr-defined]


def set_in_step(error: Exception) -> None:
    """Record that this worker has completed the program in spite of an error, so that no other
    worker waits for it."""
    error.is_in_step = True  # type: ignore[attr-defined]
