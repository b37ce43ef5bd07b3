"""The line of user code that wrote an operation, which nodes store for later error messages."""

from __future__ import annotations

import os
import sys
import warnings
from types import CodeType, FrameType

from magmath.core.bounded_memo import store_bounded
from magmath.graph.operation import Line

_OWN_FILES: set[str] = set()
_MAX_LINES = 4096
_lines: dict[tuple[int, int], tuple[CodeType, Line]] = {}  # by code (kept alive) and position
_LIBRARY = os.path.dirname(os.__file__) + os.sep
_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def user_line(inside: int = 1) -> Line:
    """Return the innermost line outside magmath, where the user wrote the operation.

    The innermost `inside` frames, the caller's included, are known to be magmath's.
    """
    frame: FrameType | None = sys._getframe(inside)
    while frame is not None:
        code = frame.f_code
        file = code.co_filename
        if file not in _OWN_FILES:
            known = _lines.get((id(code), frame.f_lasti))
            if known is not None:
                return known[1]
            if not (is_own(file) or is_library(file)):
                return _stored_line(code, frame)
            _OWN_FILES.add(file)
        frame = frame.f_back
    return None


def user_line_text() -> str:
    """Return the line as text, file:number; empty if no user code is known."""
    line = user_line(2)
    return "" if line is None else f"{line[0]}:{line[1]}"


def warn_user(message: str) -> None:
    """Warn at the innermost line outside magmath."""
    file, number = user_line(2) or (__file__, 1)
    warnings.warn_explicit(message, UserWarning, file, number)


def is_own(file: str) -> bool:
    """Return True for files of magmath."""
    return file.startswith(_HERE)


def is_library(file: str) -> bool:
    """Return True for files of Python's standard library, through which magmath may call itself."""
    return file.startswith(_LIBRARY) and "site-packages" not in file


def _stored_line(code: CodeType, frame: FrameType) -> Line:
    """Return and cache the line of a frame: computing it takes long in long functions."""
    line = code.co_filename, frame.f_lineno
    store_bounded(_lines, (id(code), frame.f_lasti), (code, line), _MAX_LINES)
    return line
