"""The user's line of an operation, kept in the errors of its execution."""

from __future__ import annotations

from magmath.graph import Node
from magmath.program.instructions import Instruction


def attach_user_line(error: Exception, origin: Instruction | Node | None) -> None:
    """Attach to an error the user's line that built the failing operation, for the report."""
    line = getattr(origin, "line", None)
    if line and not hasattr(error, "user_line"):
        error.user_line = f"{line[0]}:{line[1]}"  # type: ignore[attr-defined]
