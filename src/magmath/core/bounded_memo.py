"""A bounded memo in a plain dict, for cases in which `lru_cache` is unsuitable: the key is not the
arguments of a function, or the lookup must be a single dict access."""

from __future__ import annotations

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def store_bounded(known: dict[K, V], key: K, value: V, most: int) -> V:
    """Store a value and return it; clear the memo first if it has `most` entries."""
    if len(known) >= most:
        known.clear()
    known[key] = value
    return value
