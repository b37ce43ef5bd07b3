"""The effects of functions of the namespace other than operations on arrays: values that they read,
and warnings.

A call with effects cannot be repeated by its operations alone
(`arrays/protocols/cached_functions.py`), unless all of them are recorded reads of numbers: then it
is repeated where the numbers are the same.
"""

from __future__ import annotations

from threading import local
from typing import Any, final

from magmath.core.scoped_value import ScopedValue


@final
class _CallEffects(local):
    """The number of effects of the functions that a thread has called."""

    count = 0


CALL_EFFECTS = _CallEffects()
NUMBERS_READ = ScopedValue[list[tuple[Any, bool | int | float | complex]] | None](None)
"""The numbers that the recorded call has read, each with the array; None if no call is recorded."""
