"""The mesh: worker numbers arranged as an n-dimensional grid with named axes.

A layout divides an array along the axes of a mesh. A mesh holds any workers of the pool in any
order, each at most once; position in the grid is row-major.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from operator import index
from typing import Any, final

from magmath.errors import LayoutError

_pool_size: Callable[[], int] = int  # 0 without a pool


def set_printed_pool_size(pool_size: Callable[[], int]) -> None:
    """Set the pool size for printing: a mesh of all workers of the pool prints without a worker
    list."""
    global _pool_size
    _pool_size = pool_size


def _require_integers(description: str, values: Any) -> tuple[int, ...]:
    """Convert lengths or worker numbers to Python integers. Raises LayoutError if they are not."""
    try:
        return tuple(map(index, values))
    except TypeError:
        raise LayoutError(
            f"Mesh: {description} must be integers, such as (2, 2), was given {values!r}"
        ) from None


@final
@dataclass(frozen=True, init=False, eq=False, repr=False)
class Mesh:
    """An immutable grid of workers.

    `shape`: length of each axis, at least one axis, each at least 1. `names`: one name per axis; by
    default the axis numbers. `workers`: the worker at each position, row-major; by default 0 … size
    - 1. Raises LayoutError if these contradict each other.
    """

    shape: tuple[int, ...]
    names: tuple[str, ...]
    workers: tuple[int, ...]

    def __init__(
        self,
        shape: int | Sequence[int],
        names: Sequence[str] | None = None,
        workers: Sequence[int] | None = None,
    ) -> None:
        lengths = _require_integers("shape", (shape,) if hasattr(shape, "__index__") else shape)
        if not lengths or min(lengths) < 1:
            raise LayoutError(
                f"Mesh needs one or more axes of length at least 1, not {lengths}"
                "; write such as mm.Mesh((2, 2))"
            )
        size = math.prod(lengths)
        numbers = tuple(range(size)) if workers is None else _require_integers("workers", workers)
        if len(numbers) != size:
            raise LayoutError(
                f"Mesh of shape {lengths} needs {size} workers, {len(numbers)} were given"
                "; name as many workers as the mesh has positions"
            )
        if len(set(numbers)) != size or min(numbers) < 0:
            raise LayoutError(
                f"Mesh needs worker numbers from 0 up, each at most once, not {numbers}"
                "; name each worker of the pool once"
            )
        object.__setattr__(self, "shape", lengths)
        object.__setattr__(self, "names", _checked_names(lengths, names))
        object.__setattr__(self, "workers", numbers)

    @cached_property
    def size(self) -> int:
        """The number of workers."""
        return len(self.workers)

    @cached_property
    def strides(self) -> tuple[int, ...]:
        """The distance in `workers` between neighbours along each axis."""
        return tuple([math.prod(self.shape[axis + 1 :]) for axis in range(self.ndim)])

    @cached_property
    def _position(self) -> dict[int, int]:
        return {worker: position for position, worker in enumerate(self.workers)}

    @cached_property
    def _hash(self) -> int:
        return hash((self.shape, self.names, self.workers))

    @staticmethod
    def line(count: int) -> Mesh:
        """Return the mesh of the workers 0 … count - 1 along one axis."""
        return _line(count)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def position(self, worker: int) -> int | None:
        """Return the position of `worker` in `workers`, or None if it is not in the mesh."""
        return self._position.get(worker)

    def coordinate(self, worker: int) -> tuple[int, ...] | None:
        """Return the coordinates of `worker` along each axis, or None if it is not in the mesh."""
        position = self._position.get(worker)
        if position is None:
            return None
        return tuple(position // s % n for s, n in zip(self.strides, self.shape, strict=True))

    def axis(self, axis: int | str) -> int:
        """Return the number of the axis with this name or (possibly negative) number."""
        if isinstance(axis, str):
            if axis in self.names:
                return self.names.index(axis)
        elif -self.ndim <= axis < self.ndim:
            return axis % self.ndim
        raise LayoutError(
            f"{self} has no axis {axis!r}; its axes are {', '.join(map(repr, self.names))}, "
            f"numbered from 0 to {self.ndim - 1}"
        )

    def flattened(self) -> Mesh:
        """Return the mesh of the same workers in the same order along one axis."""
        return self if self.ndim == 1 else Mesh((self.size,), None, self.workers)

    def encode(self) -> tuple[Any, ...]:
        """Return tuples of integers and strings, from which `decode` rebuilds an equal mesh."""
        return self.shape, self.names, self.workers

    @staticmethod
    def decode(encoded: Any) -> Mesh:
        """Rebuild the mesh from the result of `encode`. Raises LayoutError if it is malformed."""
        try:
            shape, names, workers = encoded
            return Mesh(tuple(shape), tuple(names), tuple(workers))
        except (TypeError, ValueError) as error:
            raise LayoutError(f"a malformed mesh cannot be decoded: {error}") from error

    def __eq__(self, other: Any) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, Mesh)
            and self._hash == other._hash
            and self.workers == other.workers
            and self.shape == other.shape
            and self.names == other.names
        )

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        # Built again, since the hash of a string differs between processes.
        return Mesh, (self.shape, self.names, self.workers)

    def __str__(self) -> str:
        axes = [
            str(length) if name == str(axis) else f"{name}={length}"
            for axis, (name, length) in enumerate(zip(self.names, self.shape, strict=True))
        ]
        return f"Mesh({' x '.join(axes)}{self.suffix})"

    __repr__ = __str__

    @property
    def suffix(self) -> str:
        """Text such as " on 4-7", empty if the mesh has all workers of the current pool in
        order."""
        if self.workers == tuple(range(max(self.size, _pool_size()))):
            return ""
        first, last = self.workers[0], self.workers[-1]
        if self.size > 2 and self.workers == tuple(range(first, last + 1)):
            return f" on {first}-{last}"
        return f" on {','.join(map(str, self.workers))}"


@lru_cache(maxsize=1024)
def _line(count: int) -> Mesh:
    return Mesh((count,))


def _checked_names(shape: tuple[int, ...], names: Sequence[str] | None) -> tuple[str, ...]:
    if names is None:
        return tuple(str(axis) for axis in range(len(shape)))
    each = [names] if isinstance(names, str) or not isinstance(names, Iterable) else list(names)
    are_strings = all(isinstance(name, str) for name in each)
    if not are_strings or len(each) != len(shape) or len(set(each)) != len(each):
        raise LayoutError(
            f"Mesh of {len(shape)} axes needs as many different names (strings), not {names!r}"
            "; give one name for each axis"
        )
    return tuple(each)
