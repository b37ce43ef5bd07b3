"""Ownership of values: an array whose value nothing else references is written in its memory.

Python's reference counts tell, as for the donation of an array to a program
(`engine/lifetimes/donation.py`): pending expressions, records of gradients and other arrays
reference the leaf or its data. The counts of an owned value are measured when the module is
imported, since they differ between versions of Python.
"""

from __future__ import annotations

from sys import getrefcount
from typing import Any, Final, final

from magmath.arrays.lazy_array import LazyArray


@final
class _Leaf:
    """A leaf with data that nothing else references."""

    def __init__(self) -> None:
        self.value = object()


@final
class _Handle:
    """An array that refers to a leaf as its node and as its value."""

    def __init__(self) -> None:
        self._node = self._leaf = _Leaf()


def _counts(array: Any) -> tuple[int, int]:
    """Return the references to the leaf of an evaluated array, and to its data."""
    return getrefcount(array._node), getrefcount(array._node.value)


_OWNED: Final = _counts(_Handle())


def has_unshared_value(array: LazyArray) -> bool:
    """Return True if nothing but this array references its value, or the leaf that holds it."""
    return array._leaf is array._node and _counts(array) == _OWNED
