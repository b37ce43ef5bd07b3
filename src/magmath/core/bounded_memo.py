"""What has been found out and is remembered, where `lru_cache` does not serve: because the key is
not what a function is called with, or looking it up has to be one access to a dict."""

from __future__ import annotations

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def store_bounded(known: dict[K, V], key: K, value: V, most: int) -> V:
    """Note a value, and forget all others where there would be more than `most`."""
    if len(known) >= most:
        known.clear()
    known[key] = value
    return value
