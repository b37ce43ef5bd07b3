"""Clears the frames of a traceback, so that a stored exception holds no references to arrays."""

from __future__ import annotations

import traceback


def clear_frames(error: BaseException) -> None:
    """Clear the local variables of the finished functions through which an exception came, and
    those of the exceptions during whose handling it was raised.

    A notebook keeps the last exception, and with it these functions. Their lists of nodes would
    count as references of user code.
    """
    raised: BaseException | None = error
    while raised is not None:
        traceback.clear_frames(raised.__traceback__)
        raised = raised.__context__
