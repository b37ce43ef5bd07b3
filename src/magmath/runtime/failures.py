"""Exceptions across processes: encoding in a worker, and re-raising in the controller.

Built-in exceptions and those of magmath keep their class (a table lookup by name: nothing is
imported or unpickled). The message gets the worker and the user's line. The worker's traceback is
attached as a note.
"""

from __future__ import annotations

import traceback
from typing import Final

from magmath.errors import LinAlgError, MagmathError, WorkerError, WorkerLost
from magmath.runtime.messages import Failure, truncate_text

_BUILTIN: Final[tuple[type[Exception], ...]] = (
    ArithmeticError, AssertionError, AttributeError, BufferError, EOFError, FileExistsError,
    FileNotFoundError, FloatingPointError, ImportError, IndexError, InterruptedError, KeyError,
    LookupError, MemoryError, ModuleNotFoundError, NameError, NotImplementedError, OSError,
    OverflowError, PermissionError, RecursionError, RuntimeError, TimeoutError, TypeError,
    ValueError, ZeroDivisionError,
)  # fmt: skip

_CLASSES: Final[dict[str, type[Exception]]] = {
    kind.__name__: kind for kind in (*_BUILTIN, LinAlgError, *MagmathError.__subclasses__())
}


def user_line_of(error: BaseException) -> str:
    """Return the user's line that built the failing operation, from the attribute `user_line`."""
    return str(getattr(error, "user_line", ""))


def add_user_line(error: Exception) -> None:
    """Add a note with the user's line that built the failing operation."""
    if line := user_line_of(error):
        error.add_note(f"in the operation built at {line}")


def failure_from(error: Exception, ticket: int, rank: int, host: str) -> Failure:
    """Return the Failure message of an exception that ended command `ticket`."""
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1] if frames else None
    site = f"{type(error).__name__} {last.filename}:{last.lineno}" if last else ""
    return Failure(
        ticket=ticket,
        rank=rank,
        host=truncate_text(host),
        kind=type(error).__name__,
        message=truncate_text(error),
        traceback=truncate_text("".join(traceback.format_exception(error))),
        line=truncate_text(user_line_of(error)),
        site=truncate_text(f"{site} {user_line_of(error)}"),
        secondary=isinstance(error, (WorkerLost, InterruptedError)),
        is_in_step=getattr(error, "is_in_step", False),
        origin=ticket,
    )


def exception_from(failure: Failure) -> Exception:
    """Rebuild the exception of a Failure, of its class if known, otherwise as WorkerError."""
    line = f", {failure.line}" if failure.line else ""
    message = f"{failure.message} [worker {failure.rank} on {failure.host}{line}]"
    kind = _CLASSES.get(failure.kind)
    error = WorkerError(f"{failure.kind}: {message}") if kind is None else kind(message)
    error.add_note(f"Traceback of worker {failure.rank}:\n{failure.traceback.rstrip()}")
    return error
