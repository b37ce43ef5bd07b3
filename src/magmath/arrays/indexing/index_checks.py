"""The check of indices at the line that uses them, if this process stores their values.

Other indices are checked where the elements are read or written, when the value is computed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from magmath.arrays.leaf_values import small_local_array
from magmath.engine.remote_array import RemoteArray
from magmath.engine.traces import tracing
from magmath.graph import Node
from magmath.ops.indexing.local_index import index_out_of_range
from magmath.ops.leaves import INPUT


def known_values(node: Node) -> np.ndarray[Any, Any] | None:
    """Return the values of a computed array, for reading, if this process stores them and traces no
    function; otherwise None."""
    leaf = node.leaf_or_self
    if leaf.operation is not INPUT or tracing.current() is not None:
        return None
    data = leaf.value
    values = data.host_array if type(data) is RemoteArray else None
    return small_local_array(leaf) if values is None else values


def check_indices(indices: Node, axis: int, extent: int) -> None:
    """Raise IndexError for an index that is out of range for an axis of an array, if the values of
    the indices are known here.

    A function that is traced may have the indices in a branch that is not taken. A repeated call
    (`arrays/protocols/cached_functions.py`) needs no check, since the operation has its own.
    """
    values = known_values(indices)
    if values is None or not values.size:
        return
    if values.dtype == np.int64 and np.maximum.reduce(values.view(np.uint64), axis=None) < extent:
        return  # a negative number is a large one without its sign
    if values.min() < -extent or values.max() >= extent:
        outside = values[(values < -extent) | (values >= extent)]
        raise index_out_of_range(int(outside.flat[0]), axis, extent)
