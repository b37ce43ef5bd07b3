"""The count of what functions of the namespace do besides operations on arrays.

A call that has read a value, or has warned, cannot be repeated by its operations alone
(`arrays/protocols/dispatch_cache.py`).
"""

from __future__ import annotations

from typing import final


@final
class _CallEffects:
    """The number of values read and warnings issued by this process."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


CALL_EFFECTS = _CallEffects()
