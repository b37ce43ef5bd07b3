"""The name of the function that user code has called, for messages of inner functions."""

from __future__ import annotations

import sys
from types import FrameType

from magmath.engine.user_line import is_library, is_own


def called_function(inside: int) -> str | None:
    """Return the name of the outermost function or class of magmath among the calling frames up to
    that of user code; None if user code itself is the caller.

    The innermost `inside` frames, the caller's included, are left out.
    """
    name = None
    frame: FrameType | None = sys._getframe(inside)
    while frame is not None:
        file = frame.f_code.co_filename
        owner, _, function = frame.f_code.co_qualname.rpartition(".")
        if is_own(file):
            if function in ("__init__", "__call__"):
                name = owner if owner != "KeywordHints" else name
            elif "<locals>" not in owner:  # others are wrappers of public functions
                name = function
        elif not is_library(file):
            break
        frame = frame.f_back
    return None if name is None or name.startswith("_") else name
