"""Counts of Python references, which show whether other code still uses an object."""

from __future__ import annotations

from collections.abc import Sequence
from sys import getrefcount
from typing import Any, Final


def references(items: Sequence[Any]) -> list[int]:
    """Return the number of references to each item, `COUNTING` more than those outside the
    sequence and its caller."""
    return [getrefcount(item) for item in items]


COUNTING: Final = references([object()])[0]
"""The count of an object that only the sequence references."""
