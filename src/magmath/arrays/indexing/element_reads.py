"""Reading one element of an evaluated array, without a program.

`float(x[i])` in a loop reads elements one by one. If this process stores the array, the element is
read from its memory. Otherwise the values of a small array are fetched once, with its first
element, and kept with the array's data, which never change.
"""

from __future__ import annotations

from typing import Any

from magmath.core.call_effects import CALL_EFFECTS
from magmath.engine.array_sizes import MAX_BYTES_WITH_WORKERS
from magmath.engine.remote_array import RemoteArray, remote_array_of
from magmath.graph import Node
from magmath.ops.indexing.dynamic_slice import DYNAMIC_SLICE
from magmath.ops.leaves import INPUT, SCALAR


def element_of(node: Node) -> Any:
    """Return the value of a pending node of one element that an index selects from an evaluated
    array, as a number; None if the node is another one, or the array is not read in this way."""
    CALL_EFFECTS.count += 1
    if node.operation is not DYNAMIC_SLICE:
        return None
    x, *starts = node.inputs
    leaf = x.value if isinstance(x.value, Node) else x
    if leaf.operation is not INPUT or type(leaf.value) is not RemoteArray:
        return None
    axes, extents = node.attributes["axes"], node.attributes["extents"]
    if len(axes) != len(x.shape) or any(n is not None for n in extents):
        return None
    if any(start.operation is not SCALAR or start.value is None for start in starts):
        return None
    data = remote_array_of(leaf)
    if data.has_failed or data.pool.closed:
        return None
    values: Any = data.host_array
    if values is None:
        values = data.pool.local_tensor(data.array_id)
    if values is None:
        values = _fetch(data)
    if values is None:
        return None
    position = [0] * len(axes)
    for axis, start in zip(axes, starts, strict=True):
        position[axis] = start.value
    return values[tuple(position)].item()


def _fetch(data: RemoteArray) -> Any:
    """Return the values of a small array of other processes, from now on kept with its data; None
    for a larger one, or one in this process, whose memory may get other values."""
    if data.pool.is_inline:
        return None
    if data.fetched_tensor is None and data.nbytes <= MAX_BYTES_WITH_WORKERS:
        try:
            data.fetched_tensor = data.fetch()
        except Exception:  # of the array's run: the usual way raises it
            return None
    return data.fetched_tensor
