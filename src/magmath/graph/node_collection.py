"""The collection of new nodes, by which a trace knows which nodes the traced function has made.

`make_node` makes nodes by `operation.new_node`. That is `Node` itself, except while a thread
collects its new nodes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from magmath.core.module_locks import module_lock
from magmath.core.scoped_value import ScopedValue
from magmath.graph import operation
from magmath.graph.operation import Node

_collections = ScopedValue[tuple[set[Node], ...]](())
"""The sets to which the blocks of `collecting_new_nodes` of a thread add new nodes."""
_block_count = 0
"""The number of these blocks in all threads. Without one, `make_node` looks for no sets."""
_count_lock = module_lock(__name__, "_count_lock")
"""Reentrant: a handler of a signal may trace as well."""


@contextmanager
def collecting_new_nodes() -> Iterator[set[Node]]:
    """Return a set to which `make_node` adds the nodes that this thread makes in this block."""
    new_nodes = set[Node]()
    with _collections.replaced((*_collections.value, new_nodes)):
        _count_blocks(1)
        try:
            yield new_nodes
        finally:
            _count_blocks(-1)


def _count_blocks(change: int) -> None:
    global _block_count
    with _count_lock:
        _block_count += change
        operation.new_node = _collected_node if _block_count else Node


def _forget_other_threads() -> None:
    """Count only the blocks of this thread, the only one that a forked process has."""
    _count_blocks(len(_collections.value) - _block_count)


os.register_at_fork(after_in_child=_forget_other_threads)


def _collected_node(*fields: Any) -> Node:
    node = Node(*fields)
    for nodes in _collections.value:
        nodes.add(node)
    return node
