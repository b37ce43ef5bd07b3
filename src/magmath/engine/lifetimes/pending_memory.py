"""A limit of the memory that the expressions of pending arrays hold.

A pending expression refers to the values that it reads. The sum of a large array is small, but its
expression holds the large array until the sum is computed, and a list of sums holds all arrays:

    for _ in range(1000):
        x = step(x)
        norms.append(mm.sum(x * x))

Whenever the memory of a pool's arrays has doubled, this module computes the pending arrays whose
expressions hold much more memory than their values need. So the memory in use is at most a constant
multiple of that of the arrays to which the user's code refers. As after any other evaluation,
gradients pass through a computed array only to operands that still exist.

An array that grows by updates holds more than its value needs too: `x += a * p` in a loop that
computes another `p` in each step would keep every `p`. So a long expression is computed if only it
references much memory (`has_excess`).

Arrays are not registered, which would slow down every operation: Python's garbage collector lists
its objects, in some hundredths of a second for each search.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from contextlib import suppress
from threading import get_ident
from typing import Protocol, final
from weakref import ref

from magmath.engine.array_handle import ArrayHandle
from magmath.engine.fallible_operations import is_fallible
from magmath.engine.lifetimes.kept_expressions import is_keeping_expressions
from magmath.engine.lifetimes.live_references import exclusive_arrays
from magmath.engine.remote_array import remote_array_of
from magmath.engine.traces import tracing
from magmath.errors import MemoryLimitError
from magmath.graph import Node, topological
from magmath.ops.leaves import INPUT

MIN_BYTES = 256 << 20
"""Bytes of all arrays up to which pending expressions may hold any part of them."""
GROWTH = 2
"""Factor by which the bytes of all arrays may grow between two searches."""
MAX_HELD_RATIO = 2
"""Bytes that only a pending expression may reference, relative to the bytes of its value."""


class EngineMemory(Protocol):
    """The attributes of an engine that this module uses."""

    @property
    def pool(self) -> PoolMemory:
        """Its pool."""

    def evaluate(self, nodes: Sequence[Node], /) -> list[Node]:
        """Return input leaves with the values of nodes."""


class PoolMemory(Protocol):
    """The attributes of a pool that this module uses."""

    @property
    def array_bytes(self) -> int:
        """The maximal bytes that the arrays use on a worker."""


@final
class PendingMemory:
    """The memory that pending expressions hold in one pool.

    room  bytes of new arrays until `limit_held_bytes` is due: then it is negative
    """

    def __init__(self, engine: EngineMemory) -> None:
        self._engine = engine
        self.room = MIN_BYTES
        self._bound = MIN_BYTES
        """The bytes of all arrays above which pending arrays are searched."""
        self._examined: ref[Node] | None = None
        """The deepest operand of the expression that was examined last."""

    def count_bytes(self, nbytes: int) -> None:
        """Count the bytes of arrays that were made."""
        self.room -= nbytes

    def limit_held_bytes(self) -> None:
        """Compute pending arrays that hold much memory, if the arrays of the pool have grown by
        `GROWTH` since the last search."""
        if tracing.current() is not None or is_keeping_expressions():
            return
        pool = self._engine.pool
        used = pool.array_bytes
        if used <= self._bound:
            self._bound = min(self._bound, max(MIN_BYTES, GROWTH * used))
            self.room = self._bound - used
            return
        self.room = sys.maxsize  # the search itself makes arrays, and must not start another one
        try:
            _compute_holders(self._engine)
        finally:
            self._bound = max(MIN_BYTES, GROWTH * pool.array_bytes)
            self.room = -1  # the caller refers to some expressions until it returns: examine again

    def has_excess(self, node: Node) -> bool:
        """Return True if an expression references much more memory than its value needs.

        Each examination walks along the whole expression, so several that are based on the same
        operand, as eight rolls of one board, are examined once.
        """
        operand = max(node.inputs, key=_depth)
        if self._examined is not None and self._examined() is operand:
            return False
        self._examined = ref(operand)
        exclusive_nodes = exclusive_arrays(topological((node,), pending=True))
        return sum([x.nbytes for x in exclusive_nodes]) > MAX_HELD_RATIO * node.nbytes


def _pending() -> list[ArrayHandle]:
    """Return the pending arrays of this thread, the shallowest expressions first."""
    thread, array_class = get_ident(), ArrayHandle
    arrays = [x for x in gc.get_objects() if issubclass(type(x), array_class)]
    # Arrays of other threads may have no attributes yet, and evaluated ones have no thread.
    own = [x for x in arrays if getattr(x, "thread", None) == thread]
    pending = [x for x in own if not (x.is_stale or x.is_computed)]
    return sorted(pending, key=lambda x: x.node.depth)


def _compute_holders(engine: EngineMemory) -> None:
    """Compute the pending arrays whose expressions hold much more memory than their values need.

    Excepted are those that read variables, or fail for some data, which then is reported where they
    are read.
    """
    for array in _pending():
        node = array.node
        if array.is_computed or node.reads_version:
            continue
        order = topological((node,))
        if any(x.reads_version or is_fallible(x) or _is_unknown(x) for x in order):
            continue
        values = [remote_array_of(x) for x in order if _has_value(x)]
        if any(x.pool is not engine.pool for x in values):
            continue
        held_bytes = sum([x.nbytes for x in set(values)])
        del order, values  # references count: `worthwhile_intermediates`
        if isinstance(node.value, Node):
            array.set_computed_of(node, node.value)
        elif held_bytes > MAX_HELD_RATIO * node.nbytes:
            with suppress(MemoryLimitError):
                (leaf,) = engine.evaluate((node,))
                array.set_computed_of(node, leaf)


def _depth(node: Node) -> int:
    return node.depth


def _is_unknown(node: Node) -> bool:
    """Return True for an argument of a function that is traced."""
    return node.is_leaf and node.value is None


def _has_value(node: Node) -> bool:
    return node.operation is INPUT or isinstance(node.value, Node)
