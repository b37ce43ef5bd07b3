"""Values of computed arrays in this process: of whole leaves, and of small ones that it stores; and
the dependence of a trace on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from magmath.arrays.storage.failed_updates import undo_failed_updates
from magmath.core.call_effects import CALL_EFFECTS
from magmath.engine import session
from magmath.engine.array_sizes import MAX_BYTES_INLINE
from magmath.engine.remote_array import RemoteArray, remote_array_of
from magmath.engine.traces import tracing
from magmath.graph import Node, provenance_of, topological
from magmath.graph.provenance.provenance_chains import nodes_before
from magmath.ops import leaves

if TYPE_CHECKING:
    import torch


def fetch(leaf: Node) -> torch.Tensor:
    """Return the whole value of a leaf as a new PyTorch tensor on the CPU.

    If the run that computes it has failed, the failed updates in place that it has read are undone.
    """
    CALL_EFFECTS.count += 1
    data = remote_array_of(leaf)
    if data.pool.has_failures:
        session.engine().runs.restore([data])
    provenance = provenance_of(leaf)
    try:
        return data.fetch()
    except Exception as error:
        undo_failed_updates(() if provenance is None else nodes_before(provenance), error)
        raise


def small_local_array(leaf: Node) -> np.ndarray[Any, Any] | None:
    """Return the values of a small array that this process stores, for reading; otherwise None."""
    CALL_EFFECTS.count += 1
    data = leaf.value
    if type(data) is not RemoteArray or data.pool.closed or data.has_failed:
        return None
    return data.local_array() if data.nbytes <= MAX_BYTES_INLINE else None


def depend_on_value(node: Node) -> None:
    """Record that the function that is being traced depends on the value of a node, which its
    program does not read: a number in a shape or in an `if`, a mask whose elements are counted.

    An update in place of an array from which the value was computed makes it be traced again.
    """
    trace = tracing.current()
    assert trace is not None
    for x in topological((node,)):
        is_leaf = x.operation is leaves.INPUT and not isinstance(x.value, Node)
        provenance = provenance_of(x) if is_leaf else None
        for source in (x, *(() if provenance is None else nodes_before(provenance))):
            trace.depend_on_state(source)
            if isinstance(source.value, Node):
                trace.depend_on_state(source.value)
