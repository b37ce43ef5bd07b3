"""The controller's registry of the arrays on the workers: layouts and types, failures, owners."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, final
from weakref import ref

from magmath.core.byte_sizes import block_bytes
from magmath.core.dtypes import DType
from magmath.errors import WorkerError
from magmath.layout import Layout
from magmath.runtime.failures import exception_from
from magmath.runtime.messages import Failure


@final
class OwnerReference(ref[Any]):
    """A weak reference to the owner of an array; the array is released when the owner is collected.

    Its callback is a built-in method of a deque, so Ctrl-C cannot interrupt it.
    """

    __slots__ = ("array_id",)
    array_id: int


@final
class ArrayRegistry:
    """The layout and type of each array, by its id.

    known      layouts and types
    failures   the failures of arrays whose run or transfer is known to have failed
    unreported the tickets of failed transfers whose failures no use of an array has raised yet
    gone       references to collected owners, whose arrays `release_collected` releases
    """

    def __init__(self, release: Callable[[int], object]) -> None:
        self.known: dict[int, tuple[Layout, DType]] = {}
        self.failures: dict[int, Failure] = {}
        self.unreported: set[int] = set()
        self.gone: deque[OwnerReference] = deque()
        self._owners: dict[int, OwnerReference] = {}
        self._release = release

    @property
    def nbytes(self) -> int:
        """The maximal bytes that the arrays use on a worker; failed ones need none."""
        known = self.known
        if self.failures:
            known = {key: known[key] for key in known.keys() - self.failures.keys()}
        arrays = list(known.values())
        return sum([block_bytes(x.max_local_size * dtype.itemsize) for x, dtype in arrays])

    def require(self, operation: str, array_id: int) -> tuple[Layout, DType]:
        """Return the layout and type of an array. Raises WorkerError for an unknown one, and the
        failure of the run or transfer that should have produced it."""
        known = self.known.get(array_id)
        if known is None:
            raise WorkerError(
                f"{operation}: array {array_id} is not in this pool: it was released, it was "
                f"donated to a run, or it belongs to another pool"
            )
        if array_id in self.failures:
            raise self.reported_error(self.failures[array_id])
        return known

    def reported_error(self, failure: Failure) -> Exception:
        """Return the exception of a failure, which the caller raises."""
        self.unreported.discard(failure.origin)
        return exception_from(failure)

    def raise_unreported(self) -> None:
        """Raise the failure of a transfer that no use of an array has raised; those of released
        arrays affect nothing."""
        self.release_collected()
        for failure in self.failures.values():
            if failure.origin in self.unreported:
                raise self.reported_error(failure)

    def release(self, array_id: int) -> None:
        """Release an array on the workers. Thread-safe, also in finalizers."""
        if self.known.pop(array_id, None) is not None:
            self.failures.pop(array_id, None)
            self._release(array_id)

    def track_owner(self, owner: object, array_id: int) -> OwnerReference:
        """Release an array when its owner is collected."""
        reference = self._owners[array_id] = OwnerReference(owner, self.gone.append)
        reference.array_id = array_id
        return reference

    def swap_owners(self, owner: OwnerReference, other: OwnerReference) -> None:
        """Swap the arrays of two owners."""
        owner.array_id, other.array_id = other.array_id, owner.array_id
        self._owners[owner.array_id], self._owners[other.array_id] = owner, other

    def release_collected(self) -> None:
        """Release the arrays of collected owners. Thread-safe."""
        gone = self.gone
        while gone:
            try:
                owner = gone.popleft()
            except IndexError:  # another thread has taken it
                return
            self._owners.pop(owner.array_id, None)
            self.release(owner.array_id)

    def mark_failed(self, array_ids: Sequence[int], failure: Failure) -> None:
        """Record the failure of arrays that are still referenced."""
        known = [array_id for array_id in array_ids if array_id in self.known]
        self.failures.update(dict.fromkeys(known, failure))

    def clear(self) -> None:
        """Remove all records, after the workers have ended."""
        self.known.clear()
        self._owners.clear()
        self.gone.clear()
        self.failures.clear()
        self.unreported.clear()
