"""The user's own line, which every operation remembers for the errors that show later."""

from __future__ import annotations

import os
import sys
from types import FrameType

from magmath.graph.node import Line

_OWN_FILES: set[str] = set()
_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def user_line(inside: int = 1) -> Line:
    """The innermost line outside magmath: where the user wrote the operation. The caller knows that
    `inside` frames are magmath's, itself included."""
    frame: FrameType | None = sys._getframe(inside)
    while frame is not None:
        file = frame.f_code.co_filename
        if file not in _OWN_FILES:
            if not file.startswith(_HERE):
                return file, frame.f_lineno
            _OWN_FILES.add(file)
        frame = frame.f_back
    return None
