"""What the report of an error (`runtime/failures.py`) reads of it, in addition to its message."""

from __future__ import annotations


def attach_user_line(error: Exception, origin: object) -> None:
    """Attach to an error the user's line that built the failing operation: the attribute `line` of
    an instruction, a node or a check. Do nothing if it has none."""
    line = getattr(origin, "line", None)
    if line and not hasattr(error, "user_line"):
        error.user_line = f"{line[0]}:{line[1]}"  # type: ignore[attr-defined]


def set_in_step(error: Exception) -> None:
    """Record that this worker has completed the program in spite of an error, so that no other
    worker waits for it."""
    error.is_in_step = True  # type: ignore[attr-defined]
