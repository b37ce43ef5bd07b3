"""A cache of the arrays that expressions have read last, which provenance keeps alive.

In

    def loss(w):
        x = mm.asarray(next(batches))
        return mm.mean((x @ w) ** 2)

    value = loss(w)
    print(value)
    gradient = mm.grad(value, w)

nothing refers to the batch after the loss was printed, but its gradient needs it. A list of such
losses would keep every batch, and so would the records of the parameters of a training loop. So
all records together keep the arrays that were read last.
"""

from __future__ import annotations

from functools import partial
from typing import final
from weakref import ref

from magmath.core.bounded_memo import RecentlyUsed
from magmath.core.module_locks import module_lock
from magmath.graph.operation import Node

MAX_BYTES = 64 << 20
"""Bytes of all arrays that are kept."""
MAX_OLDER_BYTES = 16 << 20
"""The same if more than `RECENT` arrays are kept. It is smaller, so that memory which is still in
the processor's cache is used again soon."""
RECENT = 8
OLDER_SHARE = 0.75
"""The share of `MAX_OLDER_BYTES` that is left when arrays are dropped. If only the excess was
dropped, all of them would be examined again for each further array, which takes as long as to
compute it."""


@final
class KeptArray:
    """A reference that keeps an array alive, as long as it exists itself and the limits allow
    it."""

    __slots__ = ("__weakref__", "leaf")

    def __init__(self, leaf: Node) -> None:
        self.leaf: Node | None = leaf


_entries: RecentlyUsed[int, tuple[ref[KeptArray], int]] = RecentlyUsed()
"""By the identities of leaves: the references that keep them alive, and their bytes."""
_lock = module_lock(__name__, "_lock")
"""Reentrant: a handler of a signal may compute as well, between any two lines."""
_nbytes = 0
"""At least the bytes of all entries."""


def keep_recent(leaf: Node, nbytes: int) -> KeptArray | None:
    """Return the entry that keeps an array alive for records that have just read it; None for an
    array of more than `MAX_BYTES`, one without value, and one whose memory is limited."""
    global _nbytes
    if nbytes > MAX_BYTES or not getattr(leaf.value, "can_be_kept", False):
        return None
    released: list[KeptArray] = []
    with _lock:
        entry = _entries.find(id(leaf))
        kept_array = None if entry is None else entry[0]()
        if kept_array is not None and kept_array.leaf is leaf:
            return kept_array
        kept_array = KeptArray(leaf)
        _nbytes += nbytes
        # The entry may replace that of an array that was freed.
        _entries.store(id(leaf), (ref(kept_array), nbytes))
        if _is_above(len(_entries), _nbytes):
            released = _remove_released()
    for x in released:
        x.leaf = None  # without the lock: it may free an array, whose finalizer may compute
    return kept_array


def _is_above(count: int, nbytes: int, share: float = 1.0) -> bool:
    """Return True if this number of arrays has more bytes than may be kept, or than `share` of
    that if some of them are not among the most recent ones."""
    return nbytes > (MAX_BYTES if count <= RECENT else share * MAX_OLDER_BYTES)


def _remove_released() -> list[KeptArray]:
    """Remove the entries that no record refers to any more, and the oldest ones beyond the limits,
    which are returned."""
    global _nbytes
    for key in [key for key, (reference, _) in list(_entries.items()) if reference() is None]:
        _entries.pop(key, None)
    dropped = _entries.drop_while(partial(_is_above, share=OLDER_SHARE), lambda entry: entry[1])
    _nbytes = sum([nbytes for _, nbytes in list(_entries.values())])
    return [kept_array for _, (reference, _) in dropped if (kept_array := reference()) is not None]
