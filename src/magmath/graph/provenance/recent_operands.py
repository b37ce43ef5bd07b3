"""Recent operands: arrays that records keep alive although nothing else refers to them.

In

    def loss(w):
        x = mm.asarray(next(batches))
        return mm.mean((x @ w) ** 2)

    value = loss(w)
    print(value)
    gradient = mm.grad(value, w)

nothing refers to the batch after the loss was printed, but its gradient needs it. A list of such
losses would keep every batch. So the records keep a limited number of bytes in total: beyond it,
the arrays that were read least recently are released.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import final
from weakref import ref

from magmath.graph.operation import Node

MAX_BYTES = 64 << 20
"""Bytes of all arrays that are kept. The parameters of a training loop have records of many steps,
which would keep all batches."""


@final
class KeptArray:
    """What keeps an array alive, as long as it exists itself and the limit of bytes allows it."""

    __slots__ = ("__weakref__", "leaf")

    def __init__(self, leaf: Node) -> None:
        self.leaf: Node | None = leaf


_kept: OrderedDict[int, tuple[ref[KeptArray], int]] = OrderedDict()
"""By the identities of leaves: what keeps them, and their bytes; the one that was read least
recently first."""
_lock = Lock()
_nbytes = 0
"""The bytes of all entries."""


def keep_recent(leaf: Node, nbytes: int) -> KeptArray | None:
    """Return what keeps an array alive for records that have just read it; None for an array of
    more than `MAX_BYTES`, one without value, and one whose memory is limited."""
    global _nbytes
    if nbytes > MAX_BYTES or not getattr(leaf.value, "may_be_kept", False):
        return None
    with _lock:
        entry = _kept.get(id(leaf))
        kept = None if entry is None else entry[0]()
        if kept is not None and kept.leaf is leaf:
            _kept.move_to_end(id(leaf))
            return kept
        _drop(id(leaf))
        kept = KeptArray(leaf)
        _kept[id(leaf)] = ref(kept), nbytes
        _nbytes += nbytes
        if _nbytes > MAX_BYTES:
            _release_oldest()
        return kept


def _release_oldest() -> None:
    """Drop the entries that no record refers to any more, and release the oldest other ones."""
    for key in [key for key, (kept, _) in _kept.items() if kept() is None]:
        _drop(key)
    while _nbytes > MAX_BYTES:
        oldest = next(iter(_kept))
        kept = _kept[oldest][0]()
        if kept is not None:
            kept.leaf = None
        _drop(oldest)


def _drop(key: int) -> None:
    global _nbytes
    _, nbytes = _kept.pop(key, (None, 0))
    _nbytes -= nbytes
