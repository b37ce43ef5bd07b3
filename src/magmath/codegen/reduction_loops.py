"""Loops of reductions in native code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from math import prod
from typing import Final, final

from magmath.codegen.emit import NativeCall, NativeOperand, Writer, combine, literal, loop_order
from magmath.core.dtypes import DType, float32, float64
from magmath.core.shapes import Shape

MAX_NAIVE: Final = 64
"""Number of float32 numbers that may be added one after the other, with few rounding errors."""
_MAX_ACCUMULATORS: Final = 1024
"""Number of results that are accumulated together: in memory that fits into the first cache."""


def emit_reduction(w: Writer, call: NativeCall, name: str, start: float) -> None:
    """Write the reduction of an operand over axes, in the order of its elements in memory.

    Results of adjacent elements are accumulated together, others one by one; long sums of float32
    in float64.
    """
    (x,), axis = call.inputs, call.attributes["axis"]
    is_long = prod([x.shape[d] for d in axis]) > MAX_NAIVE
    dtype = float64 if name == "sum" and call.out.dtype is float32 and is_long else call.out.dtype
    order = loop_order(x.shape, x.strides)
    together = _Accumulators(w, x.shape, _adjacent_results(x, axis, order), dtype)
    reduced = [d for d in order if d in axis]
    outer_dims = [d for d in order if d not in (*axis, *together.dimensions)]
    value = w.name("v")
    with _loops(w, x, outer_dims) as outer, together.tiles():
        with together.loops() as (accumulator, _):
            w.line(f"{accumulator} = {literal(start, dtype)}")
        with _joined_loops(w, x, reduced) as inner, together.loops() as (accumulator, adjacent):
            index_by_dim = {**outer, **inner, **adjacent}
            w.line(f"{value} = {x.at([index_by_dim[d] for d in range(len(x.shape))])}")
            w.line(f"{accumulator} = {combine(name, accumulator, value)}")
        with together.loops() as (accumulator, adjacent):
            index_by_dim = {**dict.fromkeys(axis, "0"), **outer, **adjacent}
            indices = _result_indices(call, [index_by_dim[d] for d in range(len(x.shape))])
            w.line(f"{call.out.at(indices)} = {accumulator}")


def _adjacent_results(x: NativeOperand, axis: Sequence[int], order: Sequence[int]) -> list[int]:
    """Return the dimensions of results whose elements are adjacent: the innermost ones that are
    not reduced, as far as one tile of accumulators has several of the outermost."""
    dimensions: list[int] = []
    size = 1
    for d in reversed(order):
        if x.shape[d] == 1:
            continue
        if d in axis or size > _MAX_ACCUMULATORS // 2:
            break
        dimensions.insert(0, d)
        size *= x.shape[d]
    return dimensions


@contextmanager
def _loops(w: Writer, x: NativeOperand, dimensions: Sequence[int]) -> Iterator[dict[int, str]]:
    """Write nested loops over some dimensions; yield their index names."""
    with w.loops(tuple([x.shape[d] for d in dimensions])) as indices:
        yield dict(zip(dimensions, indices, strict=True))


@contextmanager
def _joined_loops(
    w: Writer, x: NativeOperand, dimensions: Sequence[int]
) -> Iterator[dict[int, str]]:
    """Write nested loops over dimensions, one for those that are one dimension in memory: the index
    of the last of these runs over the elements of all."""
    extents = {d: x.shape[d] for d in dimensions if x.shape[d] != 1}
    for outer, inner in pairwise(tuple(extents)):
        if x.strides and x.strides[outer] == x.strides[inner] * x.shape[inner]:
            extents[inner] *= extents.pop(outer)
    with w.loops(tuple(extents.values())) as indices:
        yield dict.fromkeys(dimensions, "0") | dict(zip(extents, indices, strict=True))


@final
class _Accumulators:
    """The accumulators of a tile of results, in memory on the stack; without dimensions, one
    variable."""

    def __init__(self, w: Writer, shape: Shape, dimensions: Sequence[int], dtype: DType) -> None:
        self.dimensions = dimensions
        self._w, self._name = w, w.name("acc")
        self._extents = [shape[d] for d in dimensions]
        self._first, self._rows = "0", str(self._extents[0]) if dimensions else ""
        if dimensions:
            size = prod(self._extents[1:])
            self._height = min(self._extents[0], max(_MAX_ACCUMULATORS // max(size, 1), 1))
            nbytes = self._height * size * dtype.itemsize
            w.line(f"{self._name}: {dtype.name}[1] = stack({nbytes})")

    @contextmanager
    def tiles(self) -> Iterator[None]:
        """Write a loop over the tiles, which divide the first dimension, if there are several."""
        if not self.dimensions or self._height == self._extents[0]:
            yield
            return
        w, extent = self._w, self._extents[0]
        self._first, self._rows = w.name("i"), w.name("n")
        w.line(f"for {self._first} in range(0, {extent}, {self._height}):")
        w.depth += 1
        w.line(f"{self._rows} = min({self._height}, {extent} - {self._first})")
        yield
        w.depth -= 1

    @contextmanager
    def loops(self) -> Iterator[tuple[str, dict[int, str]]]:
        """Write nested loops over a tile; yield an accumulator and the indices of its result."""
        if not self.dimensions:
            yield self._name, {}
            return
        w = self._w
        row = w.name("i")
        w.line(f"for {row} in range({self._rows}):")
        w.depth += 1
        with w.loops(tuple(self._extents[1:])) as inner:
            number = row
            for index, extent in zip(inner, self._extents[1:], strict=True):
                number = f"({number}) * {extent} + {index}"
            indices = [f"{self._first} + {row}", *inner]
            yield f"{self._name}[{number}]", dict(zip(self.dimensions, indices, strict=True))
        w.depth -= 1


def _result_indices(call: NativeCall, indices: Sequence[str]) -> list[str]:
    axis = call.attributes["axis"]
    if call.attributes["keepdims"]:
        return ["0" if d in axis else index for d, index in enumerate(indices)]
    return [index for d, index in enumerate(indices) if d not in axis]
