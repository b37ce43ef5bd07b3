"""Recent operands: arrays that records keep alive although nothing else refers to them.

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

from collections import OrderedDict
from threading import RLock
from typing import final
from weakref import ref

from magmath.graph.operation import Node

MAX_BYTES = 64 << 20
"""Bytes of all arrays that are kept."""
MAX_OLDER_BYTES = 16 << 20
"""Bytes of all arrays with which more than `RECENT` are kept: the memory of the others, which is in
the processor's cache, is used again."""
RECENT = 8


@final
class KeptArray:
    """What keeps an array alive, as long as it exists itself and the limits allow it."""

    __slots__ = ("__weakref__", "leaf")

    def __init__(self, leaf: Node) -> None:
        self.leaf: Node | None = leaf


_entries: OrderedDict[int, tuple[ref[KeptArray], int]] = OrderedDict()
"""By the identities of leaves: what keeps them, and their bytes; the one that was read least
recently first."""
_lock = RLock()  # a handler of a signal may compute as well, between any two lines
_nbytes = 0
"""At least the bytes of all entries."""


def keep_recent(leaf: Node, nbytes: int) -> KeptArray | None:
    """Return what keeps an array alive for records that have just read it; None for an array of
    more than `MAX_BYTES`, one without value, and one whose memory is limited."""
    global _nbytes
    if nbytes > MAX_BYTES or not getattr(leaf.value, "can_be_kept", False):
        return None
    released: list[KeptArray] = []
    with _lock:
        entry = _entries.get(id(leaf))
        kept = None if entry is None else entry[0]()
        if kept is not None and kept.leaf is leaf:
            _entries.move_to_end(id(leaf))
            return kept
        kept = KeptArray(leaf)
        _nbytes += nbytes
        _entries.pop(id(leaf), None)  # of an array that does not exist any more
        _entries[id(leaf)] = ref(kept), nbytes
        if _nbytes > (MAX_BYTES if len(_entries) <= RECENT else MAX_OLDER_BYTES):
            released = _released()
    for x in released:
        x.leaf = None  # without the lock: it may free an array, whose finalizer may compute
    return kept


def _released() -> list[KeptArray]:
    """Remove the entries that no record refers to any more, and the oldest ones beyond the limits,
    which are returned."""
    global _nbytes
    entries = list(_entries.items())
    existing = [(key, kept, n) for key, (reference, n) in entries if (kept := reference())]
    _nbytes = sum([n for _, _, n in existing])
    count = len(existing)
    oldest: list[KeptArray] = []
    for _, kept, nbytes in existing:
        if _nbytes <= (MAX_BYTES if count <= RECENT else MAX_OLDER_BYTES):
            break
        oldest.append(kept)
        _nbytes -= nbytes
        count -= 1
    remaining = {key for key, _, _ in existing[len(oldest) :]}
    for key, _ in entries:
        if key not in remaining:
            _entries.pop(key, None)
    return oldest
