"""What the report of an error (`runtime/failures.py`) reads of it, in addition to its message."""

from __future__ import annotations

from magmath.graph import Node
from magmath.program.instructions import Instruction


def attach_user_line(error: Exception, origin: Instruction | Node | None) -> None:
    """Attach to an error the user's line that built the failing operation."""
    line = getattr(origin, "line", None)
    if line and not hasattr(error, "user_line"):
        error.user_line = f"{line[0]}:{line[1]}"  # type: ignore[attr-defined]


def mark_in_step(error: Exception) -> None:
    """Mark an error after which the worker is still in step with the others: it has taken part in
    all exchanges of the program."""
    error.is_in_step = True  # type: ignore[attr-defined]
