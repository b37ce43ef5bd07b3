"""Bounded memos, for cases in which `lru_cache` is unsuitable because the key is not the arguments
of a function: a plain dict for cheap values, and a least-recently-used one for expensive ones."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar, final

K = TypeVar("K")
V = TypeVar("V")


def store_bounded(memo: dict[K, V], key: K, value: V, max_entries: int) -> V:
    """Store a value and return it; clear the memo first if it has `max_entries`.

    The lookup is a single dict access.
    """
    if len(memo) >= max_entries:
        memo.clear()
    memo[key] = value
    return value


@final
class RecentlyUsed(OrderedDict[K, V]):
    """A memo that drops the least recently used entry when it has more than `max_entries`.

    Without `max_entries`, its owner drops entries by another measure (`drop_while`).
    """

    def __init__(self, max_entries: float = math.inf) -> None:
        super().__init__()
        self.max_entries = max_entries

    def find(self, key: K) -> V | None:
        """Return the value of a key, which becomes the most recently used one, or None."""
        value = self.get(key)
        if value is not None:
            try:  # noqa: SIM105  `suppress` takes longer
                self.move_to_end(key)
            except KeyError:  # another thread has dropped it
                pass
        return value

    def store(self, key: K, value: V) -> K | None:
        """Store a value as the most recently used one; return the key of a dropped entry, or
        None."""
        self[key] = value
        self.move_to_end(key)
        return self.popitem(last=False)[0] if len(self) > self.max_entries else None

    def drop_while(
        self, is_excessive: Callable[[int, int], bool], size: Callable[[V], int]
    ) -> list[tuple[K, V]]:
        """Drop the least recently used entries as long as their number and the sum of the sizes of
        their values are excessive; return the dropped ones."""
        total = sum([size(value) for value in list(self.values())])  # a signal may store others
        dropped: list[tuple[K, V]] = []
        while self and is_excessive(len(self), total):
            dropped.append(self.popitem(last=False))
            total -= size(dropped[-1][1])
        return dropped

    @property
    def newest(self) -> V | None:
        """The most recently used value, or None."""
        return next(reversed(self.values()), None)
