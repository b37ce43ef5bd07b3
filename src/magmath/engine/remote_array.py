"""The controller's handles on arrays that the workers store; leaves have them as values."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any, Final, final
from weakref import ref

import numpy as np
from msgspec import Struct

from magmath.core.dtypes import DType
from magmath.engine.called_function import called_function
from magmath.engine.traces import tracing
from magmath.engine.user_line import user_line_text
from magmath.errors import GradientError, TracingError, WorkerLost
from magmath.graph import Node, Shape
from magmath.layout import Layout
from magmath.ops.leaves import input_leaf

if TYPE_CHECKING:
    from torch import Tensor

    from magmath.runtime.array_registry import OwnerReference
    from magmath.runtime.pool import Pool
    from magmath.runtime.run_handle import RunHandle


OVERWRITTEN: Final = object()
"""The value of a leaf that stands for an array whose memory was reused."""
_reuses: Final = count(1)


@final
class RemoteArray(Struct, eq=False, weakref=True):
    """A handle on an array that the workers of a pool store.

    A small array that this process has made is sent to the workers when a program reads it. The
    array is released when the handle is garbage collected.
    """

    pool: Pool
    _array_id: int | None
    shape: Shape
    dtype: DType
    layout: Layout
    origin: RunHandle | None = None
    """The run that computed it."""
    host_array: np.ndarray[Any, Any] | None = None
    """The values, if this process has made them and has not given them to its own worker, or has
    found them in the memory of that worker."""
    fetched_tensor: Tensor | None = None
    """A copy of the values of other processes, for reading elements (`element_reads`)."""
    copies: dict[Layout, RemoteArray] = {}
    """Copies in other layouts, managed by the engine."""
    owner: OwnerReference | None = None
    reuse: int = 0
    """What identifies the values after its memory got other ones under the same id: negative,
    and different for each reuse in this process."""

    def __post_init__(self) -> None:
        if self._array_id is not None:
            self.owner = self.pool.track_owner(self, self._array_id)

    @property
    def array_id(self) -> int:
        """The id of the array in its pool, to which it is sent now if it was not before.

        It identifies the memory, not the values (`content_id`): repeated runs and writes of
        elements put others into it.
        """
        if self._array_id is None:
            assert self.host_array is not None
            line = "" if self.pool.is_inline else user_line_text()
            self._array_id = self.pool.store(self.host_array, self.layout, line)
            self.owner = self.pool.track_owner(self, self._array_id)
            if self.pool.is_inline:
                self.host_array = None  # programs may write into the worker's copy: that is read
        return self._array_id

    @property
    def content_id(self) -> int:
        """An integer that only these values have: the id of the array, until its memory is used
        again."""
        return self.reuse or self.array_id

    def mark_reused(self) -> None:
        """Record that the memory gets other values under the same id."""
        self.reuse = -next(_reuses)

    @property
    def is_sent(self) -> bool:
        """True if this process stores the values and has sent a copy of them to the workers."""
        is_stored_here = self.host_array is not None and not self.pool.is_inline
        return self._array_id is not None and is_stored_here

    @property
    def can_be_kept(self) -> bool:
        """True if records may keep the array alive: without a limit of memory."""
        return self.pool.memory_limit is None

    @property
    def has_failed(self) -> bool:
        """True if the run that computes the array is known to have failed."""
        array_id = self._array_id
        return array_id is not None and self.pool.has_failures and self.pool.has_failed(array_id)

    def local_array(self) -> np.ndarray[Any, Any] | None:
        """Return the values in the memory of this process, for reading; None if it does not store
        them all, or if the run that computes them is known to have failed."""
        if self.host_array is None and self.pool.is_inline and not self.has_failed:
            self.host_array = self.pool.local_array(self.array_id)
        return self.host_array

    def fetch(self) -> Tensor:
        """Return the whole array as a new tensor on the CPU. Raises WorkerLost if its pool has
        ended."""
        if self.pool.closed:
            raise lost_array_error(self)
        if self.host_array is not None:
            from torch import from_numpy

            return from_numpy(self.host_array.copy())
        return self.pool.get(self.array_id)

    @property
    def nbytes(self) -> int:
        """The bytes of the largest part that a worker stores."""
        return self.layout.max_local_size * self.dtype.itemsize

    def swap(self, other: RemoteArray) -> None:
        """Swap the arrays of this handle and another one."""
        self._array_id, other._array_id = other.array_id, self.array_id
        self.origin, other.origin = other.origin, self.origin
        self.reuse, other.reuse = other.reuse, self.reuse
        self.fetched_tensor = other.fetched_tensor = None
        self.host_array = other.host_array = None
        assert self.owner is not None
        assert other.owner is not None
        self.pool.swap_owners(self.owner, other.owner)


def leaf_of(data: RemoteArray) -> Node:
    """Return an input leaf for an array that the workers store."""
    return input_leaf(data.shape, data.dtype, data.layout, data)


def lost_array_error(data: RemoteArray) -> WorkerLost:
    """Return the error for an array of a pool that has ended, or is not the current one."""
    reason = data.pool.end_reason
    why = "is not the current one" if reason is None else f"has ended ({reason.split('; ')[0]})"
    return WorkerLost(
        f"an array of shape {data.shape} belongs to another pool, which {why}; make it again in "
        f"this pool (mm.init starts with no arrays)"
    )


def remote_array_of(leaf: Node) -> RemoteArray:
    """Return the data of an input or an evaluated node, or the current data of a variable.

    Raises TracingError for an argument of a function that is being traced, GradientError for an
    array whose memory was reused.
    """
    value = leaf.value.value if isinstance(leaf.value, Node) else leaf.value
    if type(value) is RemoteArray:
        return value
    if value is OVERWRITTEN:
        raise GradientError(
            "grad: the gradient needs the former value of an array that was updated in place; "
            "compute the gradient before the update, update a copy (mm.copy(x)), or compile the "
            "whole (mm.compile)"
        )
    variable = value() if isinstance(value, ref) else None
    if variable is None:
        raise no_value_error()
    data: RemoteArray = variable.stored
    return data


def no_value_error() -> TracingError:
    """Return the error for reading a value that does not exist: while a function is traced, or
    afterwards, of an array that was made then. It names the function of magmath that reads it."""
    function = called_function(2)
    subject = "" if function is None else f"{function}: "
    if tracing.current() is None:
        return TracingError(
            f"{subject}a value was requested of an array that was made while mm.compile traced a "
            "function (or fit, build, mm.vmap, mm.cond, mm.scan, mm.remat), and was stored outside "
            "of the function: it never has a value; return it from the function instead, or make "
            "it an mm.nn.Buffer"
        )
    occasion = tracing.occasion()
    if occasion is not None:
        return TracingError(
            f"{subject}a value was requested while {occasion}: its arguments have none then; use "
            "functions of mm (mm.where or mm.cond instead of if, mm.while_loop instead of while), "
            "or compute what needs values in a callback of fit"
        )
    return TracingError(
        f"{subject}a value was requested while mm.compile traces a function (or mm.vmap, mm.cond, "
        "mm.scan, mm.remat): its arguments have none then; return the array and use its value "
        "outside of the function; choose with mm.where or mm.cond instead of if, repeat with "
        "mm.while_loop instead of while; what must be known (in a shape, an axis, a range) is a "
        "Python number among the arguments of the compiled function"
    )
