"""Element types, cases, and random draws, for the rows of the operation table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from cached_strategies import cached, lists
from magmath.core.dtypes import DType
from magmath.memory.torch_dtypes import to_torch

Shape = tuple[int, ...]

BOOL = ("bool",)
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = (*SIGNED, *UNSIGNED)
REAL_FLOATS = ("float16", "bfloat16", "float32", "float64")
COMPLEX = ("complex64", "complex128")
FLOATS = (*REAL_FLOATS, *COMPLEX)
REAL = (*INTEGERS, *REAL_FLOATS)
NUMERIC = (*REAL, *COMPLEX)
ANY = (*BOOL, *NUMERIC)
LAPACK = ("float32", "float64", *COMPLEX)

# The numbers that an operand is drawn from: low and high, and whether 0 is left out.
DOMAINS: dict[str, tuple[float, float, bool]] = {
    "any": (-4, 4, False),
    "nonzero": (-4, 4, True),
    "positive": (0.5, 4, True),
    "unit": (-0.875, 0.875, False),
    "above one": (1.125, 4, True),
    "factor": (-1.25, 1.25, True),
    "exponent": (0, 3, False),
    "count": (-2, 2, False),  # sums and products of these are exact in every type
}
EXACT = ("count",)


@dataclass(frozen=True)
class Case:
    """An operation's operands, as whole tensors, and its attributes."""

    operands: tuple[torch.Tensor, ...]
    attributes: Mapping[str, Any]

    def __repr__(self) -> str:
        operands = ", ".join(f"{list(x.shape)}:{x.dtype}" for x in self.operands)
        return f"Case({operands}; {dict(self.attributes)})"


@dataclass(frozen=True)
class Draws:
    """The random draws of a case: Hypothesis draws the structure, a seeded generator the numbers.

    With `smooth`, numbers are float64 and stay away from each other, from 0 and from integers, so
    that nothing jumps within a finite difference.
    """

    draw: st.DrawFn
    dtype: DType
    random: np.random.Generator
    smooth: bool = False
    made: Iterator[int] = field(default_factory=count)  # numbers the smooth operands

    def shape(self, least: int = 0, most: int = 3, extents: tuple[int, int] = (0, 6)) -> Shape:
        """A random shape of `least` to `most` dimensions."""
        low, high = (1, 3) if self.smooth else extents
        return tuple(self.draw(cached(lists, low, high, least, most)))

    def numbers(self, shape: Shape, domain: str = "any") -> torch.Tensor:
        """Numbers of the case's type from a domain."""
        if self.smooth:
            return torch.from_numpy(np.asarray(self._lattice(shape, domain)))
        if self.dtype.kind == "complex" and domain not in EXACT:
            values = self._real(shape, domain) + 1j * self._real(shape, "nonzero")
        else:
            values = self._real(shape, domain)
        return torch.from_numpy(np.asarray(values)).to(to_torch(self.dtype))

    def _real(self, shape: Shape, domain: str) -> Any:
        low, high, nonzero = DOMAINS[domain]
        if self.dtype.kind == "bool":
            return np.asarray(self.random.integers(0, 2, shape) > 0)
        whole = self.dtype.is_integer or domain in EXACT
        if self.dtype.kind == "uint":
            low = max(low, 0)
        scale = 1 if whole else 8
        values = self.random.integers(int(np.ceil(low * scale)), int(high * scale) + 1, shape)
        if nonzero:
            values = np.where(values == 0, scale, values)
        return np.asarray(values) if whole else np.asarray(values / scale, dtype=np.float64)

    def _lattice(self, shape: Shape, domain: str) -> Any:
        low, high, nonzero = DOMAINS[domain]
        low, high = max(low, -2.0), min(high, 2.0)
        points = np.arange(int(np.ceil(low * 100)), int(high * 100))
        if nonzero:
            points = points[np.abs(points) >= 30]
        size = int(np.prod(shape, dtype=np.int64))
        offset = 0.0023 * (next(self.made) % 4) + 0.00037
        return self.random.choice(points, size, replace=False).reshape(shape) * 0.01 + offset

    def positions(self, extent: int, count: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
        """`count` positions along an axis of this extent."""
        return torch.from_numpy(self.random.integers(0, max(extent, 1), count)).to(dtype)

    def stretched(self, shape: Shape) -> Shape:
        """A shape that broadcasts to `shape`."""
        start = self.draw(st.integers(0, len(shape)))
        return tuple(1 if self.draw(st.integers(0, 3)) == 0 else n for n in shape[start:])

    def axes(self, ndim: int) -> tuple[int, ...]:
        """Any of the axes, in order."""
        if not ndim:
            return ()
        return tuple(sorted(self.draw(cached(_some_of, ndim))))

    def bounds(self, shape: Shape) -> tuple[tuple[int, int, int], ...]:
        """A slice of each dimension."""
        return tuple(self.bound(extent) for extent in shape)

    def bound(self, extent: int) -> tuple[int, int, int]:
        """A slice, in full half of the time."""
        if self.draw(st.booleans()):
            return 0, extent, 1
        ends, steps = cached(_ends, extent), cached(st.sampled_from, (1, 1, 2, 3, -1, -2))
        return slice(self.draw(ends), self.draw(ends), self.draw(steps)).indices(extent)


def _some_of(ndim: int) -> st.SearchStrategy[set[int]]:
    return st.sets(st.integers(0, ndim - 1))


def _ends(extent: int) -> st.SearchStrategy[int | None]:
    return st.none() | st.integers(-extent - 1, extent + 1)


Draw = Callable[[Draws], Case]


@dataclass(frozen=True, repr=False)
class Row:
    """How one operation is tried: cases, element types, and the operands with a gradient.

    hermitian    its operand is a Hermitian matrix, of which a triangle is read: derivatives are
                 those along Hermitian matrices
    """

    draw: Draw
    dtypes: tuple[str, ...]
    slopes: tuple[int, ...] = ()
    hermitian: bool = False
