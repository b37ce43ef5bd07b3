"""Comparison of sequences by the identity of their elements."""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_


def are_identical(some: Sequence[object], others: Sequence[object]) -> bool:
    """Return True if both sequences have the same objects in the same order."""
    return len(some) == len(others) and all(map(is_, some, others))
