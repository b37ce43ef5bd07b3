"""The effects of functions of the namespace other than operations on arrays: values that they read,
and warnings.

A call with effects cannot be repeated by its operations alone
(`arrays/protocols/dispatch_cache.py`).
"""

from __future__ import annotations

from threading import local
from typing import final


@final
class _CallEffects(local):
    """The number of effects of the functions that a thread has called."""

    count = 0


CALL_EFFECTS = _CallEffects()
