"""The user's memory manager: a flat block of pooled memory of a chosen kind.

It has the kinds of MagmaDNN's `MemoryManager<T>(size, memory_type, device_id)`: HOST, DEVICE,
MANAGED (a copy on either side, synchronized by explicit calls) and CUDA_MANAGED (unified memory).
Blocks are allocated from one heap per device, are reference counted, and return to their heap when
the last reference is closed or collected.
"""

from __future__ import annotations

import operator
import weakref
from collections import deque
from collections.abc import Iterable
from enum import Enum
from types import TracebackType
from typing import Any, Self, final

import torch
from torch import Tensor

from magmath.core.debugging import debugging
from magmath.core.dtypes import DType, as_dtype
from magmath.core.module_locks import module_lock
from magmath.core.resources import memory_share
from magmath.errors import DeviceError, IndexingError, ShapeError, StateError
from magmath.memory.chunk_sources import ChunkSource, PrivateSource
from magmath.memory.heap import Block, Heap
from magmath.memory.torch_dtypes import as_tensor, to_torch
from magmath.memory.unified import ManagedSource, cuda_runtime, host_view

_CHUNK_BYTES = 16 << 20


@final
class MemoryKind(Enum):
    """The location of memory, and how its copies are synchronized."""

    HOST = "host"
    DEVICE = "device"
    MANAGED = "managed"
    CUDA_MANAGED = "cuda_managed"


def available_kinds() -> tuple[MemoryKind, ...]:
    """Return the kinds of memory that this machine has."""
    if not torch.cuda.is_available():
        return (MemoryKind.HOST,)
    if cuda_runtime() is None:
        return (MemoryKind.HOST, MemoryKind.DEVICE, MemoryKind.MANAGED)
    return tuple(MemoryKind)


@final
class MemoryManager:
    """`count` elements of `dtype`, uninitialized.

    `kind`: a MemoryKind or its name; `device`: the number of the CUDA device, for all kinds but
    HOST. Use it in a `with` statement, `close` it, or let it be collected.

    Raises DeviceError for a kind or device that the machine lacks, ShapeError for a negative count,
    TypeError for one that is not an integer. Indices that are no integers raise TypeError too.
    """

    def __init__(
        self,
        count: int,
        dtype: DType | str | type = "float32",
        kind: MemoryKind | str = MemoryKind.HOST,
        device: int = 0,
    ) -> None:
        self.count = _check_element_count(count)
        self.dtype = as_dtype(dtype)
        self.kind = _check_kind(kind, device)
        self.device = device
        with _lock:
            _release_dropped()
            self._attach(_Allocation(self.nbytes, self.kind, device))

    def _attach(self, allocation: _Allocation) -> None:
        """Make this manager a reference to an allocation. Call under `_lock`."""
        self._allocation = allocation
        allocation.references += 1
        self._finalizer = weakref.finalize(self, _dropped.append, allocation)
        self._finalizer.atexit = False

    @property
    def nbytes(self) -> int:
        """The size of one copy in bytes."""
        return self.count * self.dtype.itemsize

    @property
    def closed(self) -> bool:
        """True if this reference has been closed."""
        return not self._finalizer.alive

    @property
    def references(self) -> int:
        """The number of managers that share this memory."""
        with _lock:
            _release_dropped()
            return self._allocation.references

    def share(self) -> MemoryManager:
        """Return another manager of the same memory, which is freed when the last manager is
        closed."""
        other = object.__new__(MemoryManager)
        other.count, other.dtype = self.count, self.dtype
        other.kind, other.device = self.kind, self.device
        with _lock:
            self._check_open()
            other._attach(self._allocation)
        return other

    def close(self) -> None:
        """Release this reference. Tensors obtained from it must not be used afterwards."""
        self._finalizer()

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def host(self) -> Tensor:
        """The elements as a flat host tensor, a view. DeviceError for kind DEVICE."""
        return self._view("host")

    @property
    def on_device(self) -> Tensor:
        """The elements as a flat tensor on the CUDA device, a view. DeviceError for kind HOST."""
        return self._view("device")

    def get(self, index: int) -> bool | int | float | complex:
        """Return element `index` (for MANAGED memory, of the host copy). Raises IndexError if
        outside."""
        value: bool | int | float | complex = self._main()[self._checked_index(index)].item()
        return value

    def set(self, index: int, value: bool | int | float | complex) -> None:
        """Set element `index` (for MANAGED memory, of the host copy). Raises IndexError as
        `get`."""
        self._main()[self._checked_index(index)].fill_(value)

    def copy_from(self, source: Any) -> None:
        """Set all elements from another manager, a tensor, or any value that torch converts to one.

        Element types are converted; for MANAGED memory the host copy is read and written. Raises
        ShapeError if `source` has another number of elements.
        """
        values = source._main() if isinstance(source, MemoryManager) else as_tensor(source)
        self._check_count("copy_from", values.numel())
        self._main().copy_(values.reshape(-1))

    def copy_to(self, target: MemoryManager | Tensor) -> None:
        """Write all elements into another manager or a tensor, as `copy_from`."""
        values = target._main() if isinstance(target, MemoryManager) else target
        self._check_count("copy_to", values.numel())
        values.copy_(self._main().view(values.shape))

    def sync(self, source: str = "host") -> None:
        """Synchronize host and device; call it after one of them has written.

        MANAGED: copies the side `source`, "host" or "device", over the other. CUDA_MANAGED: waits
        until the device has completed its work. Other kinds have one side and need nothing.
        """
        if source not in ("host", "device"):
            raise DeviceError(
                f'sync copies from "host" or "device", not {source!r}; pass one of these'
            )
        self._check_open()
        if self.kind is MemoryKind.MANAGED:
            target = "device" if source == "host" else "host"
            self._view(target).copy_(self._view(source))
        elif self.kind is MemoryKind.CUDA_MANAGED:
            torch.cuda.synchronize(self.device)

    @staticmethod
    def statistics() -> dict[str, dict[str, int]]:
        """Return the counters of each heap ("host", "cuda:0", "cuda_managed:0") by name."""
        with _lock:
            _release_dropped()
            return {name: heap.statistics() for name, heap in _heaps.items()}

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        device = "" if self.kind is MemoryKind.HOST else f", device {self.device}"
        state = ", closed" if self.closed else ""
        return f"<MemoryManager of {self.count} {self.dtype}, {self.kind.name}{device}{state}>"

    def _main(self) -> Tensor:
        """Return the elements on the side that Python reads and writes: the host, if it has
        them."""
        return self._view("device" if self.kind is MemoryKind.DEVICE else "host")

    def _view(self, side: str) -> Tensor:
        self._check_open()
        memory = self._allocation.sides.get(side)
        if memory is None:
            raise DeviceError(
                f"{self} has no copy on the {side}; use memory of kind MANAGED or CUDA_MANAGED, "
                f"or use copy_to"
            )
        return memory.view(to_torch(self.dtype))

    def _check_open(self) -> None:
        if self.closed:
            raise StateError(f"{self} is closed: its memory is back in the pool; make a new one")

    def _checked_index(self, index: int) -> int:
        try:
            index = operator.index(index)
        except TypeError:
            raise TypeError(
                f"index {index!r} of {self} is no integer; pass one from 0 to {self.count - 1}"
            ) from None
        if not 0 <= index < self.count:
            raise IndexingError(
                f"index {index} is outside {self}; it has 0 to {self.count - 1}"
                "; pass an index in this range"
            )
        return index

    def _check_count(self, operation: str, count: int) -> None:
        if count != self.count:
            raise ShapeError(
                f"{operation}: {self} has {self.count} elements, the other has {count}; they must "
                f"be equal"
            )


@final
class _Allocation:
    """The memory of one or more managers: a block for each side. Created under `_lock`."""

    def __init__(self, nbytes: int, kind: MemoryKind, device: int) -> None:
        self.references = 0
        self.sides: dict[str, Tensor] = {}
        self._blocks: list[tuple[Heap, Block]] = []
        try:
            self._allocate(nbytes, kind, device)
        except BaseException:
            self.free()
            raise

    def free(self) -> None:
        """Return the blocks to their heaps."""
        for heap, block in self._blocks:
            heap.free(block)

    def _allocate(self, nbytes: int, kind: MemoryKind, device: int) -> None:
        holder = f"MemoryManager, {kind.name}"
        if kind in (MemoryKind.HOST, MemoryKind.MANAGED):
            self._add("host", "host", nbytes, holder)
        if kind in (MemoryKind.DEVICE, MemoryKind.MANAGED):
            self._add("device", f"cuda:{device}", nbytes, holder)
        if kind is MemoryKind.CUDA_MANAGED:
            self._add("device", f"cuda_managed:{device}", nbytes, holder)
            self.sides["host"] = host_view(self.sides["device"])

    def _add(self, side: str, name: str, nbytes: int, holder: str) -> None:
        heap = _heap(name)
        block = heap.allocate(nbytes, holder)
        self.sides[side] = heap.local(block)
        self._blocks.append((heap, block))


# State of all managers of the process. A manager may be collected at any time, also while its own
# thread holds the lock, so its finalizer does not lock: it appends the allocation to a queue.
_lock = module_lock(__name__, "_lock")
_heaps: dict[str, Heap] = {}
_dropped: deque[_Allocation] = deque()


def _release_dropped() -> None:
    """Process dropped references, and free allocations without references. Call under `_lock`."""
    while _dropped:
        allocation = _dropped.popleft()
        allocation.references -= 1
        if allocation.references == 0:
            allocation.free()


def _heap(name: str) -> Heap:
    if name not in _heaps:
        kind, _, number = name.partition(":")
        source: ChunkSource
        if kind == "cuda_managed":
            source = ManagedSource(torch.device(f"cuda:{number}"))
        else:
            source = PrivateSource(torch.device("cpu" if kind == "host" else name))
        limit = memory_share(1) if kind == "host" else None
        _heaps[name] = Heap(
            source, chunk_bytes=_CHUNK_BYTES, limit=limit, should_fill=debugging().fill
        )
    return _heaps[name]


def _check_element_count(count: int) -> int:
    try:
        number = operator.index(count)
    except TypeError:
        raise TypeError(
            f"MemoryManager: count must be an integer, was given {count!r}; it comes first, "
            f"before the element type and the kind: MemoryManager(1000, 'float32', kind)"
        ) from None
    if number < 0:
        raise ShapeError(f"MemoryManager: count must be at least 0, was given {number}")
    return number


def _check_kind(kind: MemoryKind | str, device: int) -> MemoryKind:
    try:
        requested = MemoryKind(kind.lower() if isinstance(kind, str) else kind)
    except ValueError:
        raise DeviceError(
            f"memory kind {kind!r} is not known; the kinds are {_names(MemoryKind)}"
        ) from None
    available = available_kinds()
    if requested not in available:
        raise DeviceError(
            f"memory of kind {requested.name} needs a CUDA device; this machine has kinds: "
            f"{_names(available)}"
        )
    if requested is not MemoryKind.HOST and not 0 <= device < torch.cuda.device_count():
        raise DeviceError(
            f"memory of kind {requested.name}: there is no device {device}; this machine has "
            f"{torch.cuda.device_count()} CUDA devices, numbered from 0"
        )
    return requested


def _names(kinds: Iterable[MemoryKind]) -> str:
    return ", ".join(kind.name for kind in kinds)
