"""Emitters: write operations in the language of `codegen/compiler.py`.

A native function receives each operand as an array of this worker's local shape, or as a scalar.
Element-wise operations need only an expression: `executor/fused_loops.py` joins neighbours into one
loop. The emitters in this module are for operations with their own loop structure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, final

import numpy as np

from magmath.core.dtypes import DType
from magmath.core.index_set import Tile
from magmath.core.shapes import Shape

if TYPE_CHECKING:
    import torch


@final
@dataclass(frozen=True, slots=True)
class NativeOperand:
    """A local array or number of a native function: the array's name there ("" for a literal), its
    shape and type.

    `value` is the expression for a number, "" for an array with dimensions. `address` is that of
    its first element in the binding for which the code is written: it shows which operands are
    parts of others, which is so in every binding.
    """

    name: str
    shape: Shape
    dtype: DType
    value: str = ""
    strides: tuple[int, ...] = ()  # in elements
    address: int = 0

    def at(self, indices: Sequence[str]) -> str:
        """Return the element at `indices` of a result of at least this many dimensions,
        broadcast."""
        if self.value:
            return self.value
        trailing = indices[len(indices) - len(self.shape) :]
        local = ("0" if n == 1 else i for i, n in zip(trailing, self.shape, strict=True))
        return f"{self.name}[{', '.join(local)}]"


@final
@dataclass(frozen=True, slots=True)
class NativeCall:
    """One instruction to be written: its result, operands and attributes, their tiles (by global
    index), and the shapes of the whole arrays.

    `number` returns an expression for an integer that may differ between workers, such as one that
    depends on a tile, so that the source is the same for all workers.

    `failure_record` returns the name of an array of two integers: code that finds invalid data sets
    the first to 1 and the second to a number that describes the error, and continues. The given
    function converts this number to an exception: native code raises nothing, since other workers
    may wait for it.
    """

    out: NativeOperand
    inputs: list[NativeOperand]
    attributes: Mapping[str, Any]
    failure_record: Callable[[Callable[[int], Exception]], str]
    number: Callable[[int], str]
    tile: Tile
    tiles: tuple[Tile, ...]  # the operands'
    shape: Shape = ()  # the result's global shape
    shapes: tuple[Shape, ...] = ()  # the operands'


@final
@dataclass
class Writer:
    """Source lines with indentation and fresh names."""

    lines: list[str] = field(default_factory=list)
    depth: int = 1
    counter: int = 0

    def line(self, text: str) -> None:
        """Append one line at the current depth."""
        self.lines.append("    " * self.depth + text)

    def name(self, prefix: str) -> str:
        """Return a new name."""
        self.counter += 1
        return f"{prefix}{self.counter}"

    @contextmanager
    def loops(self, shape: Shape, strides: Sequence[int] = ()) -> Iterator[list[str]]:
        """Write nested loops over a shape; yield the index names, one for each dimension.

        With the strides of an array, the loops follow the order of its elements in memory; the
        names are in the order of the dimensions all the same.
        """
        indices = [self.name("i") for _ in shape]
        for d in loop_order(shape, strides):
            self.line(f"for {indices[d]} in range({shape[d]}):")
            self.depth += 1
        yield indices
        self.depth -= len(shape)


def loop_order(shape: Shape, strides: Sequence[int] = ()) -> Sequence[int]:
    """Return the dimensions of nested loops over a shape, the outermost first: in the order in
    which an array with these strides stores its elements, if they are given."""
    dimensions = range(len(shape))
    return sorted(dimensions, key=lambda d: -strides[d]) if strides else dimensions


IndexVariables = Callable[[Sequence[str]], Sequence[str]]
OperandView = Callable[[NativeCall, "torch.Tensor"], "torch.Tensor | None"]
"""Returns the view of a local tensor whose elements an operation reads, or overwrites; None if no
view has them. It depends only on the call's attributes and tiles."""


@final
@dataclass(frozen=True, slots=True)
class IndexMap:
    """The native form of an operation whose every element is one element of its first operand.

    `view` returns the operand as a view of the result's shape, if one exists. Otherwise `prepare`
    writes the code before the loop and returns the function from the result's indices to the
    operand's; None if no native form exists. The operation joins the loop of its neighbours, like
    element-wise ones.
    """

    prepare: Callable[[Writer, NativeCall], IndexVariables | None]
    view: OperandView | None = None


@final
@dataclass(frozen=True, slots=True)
class PartUpdate:
    """The native form of an operation that overwrites a part of its first operand by its second
    one.

    The overwritten part joins the loop of its neighbours if it is a `view` of the result; otherwise
    `emit` writes the operation alone.
    """

    view: OperandView
    emit: Emitter


Emitter: TypeAlias = Callable[[Writer, NativeCall], bool | None]
"""Writes an operation; returns False if it has no native form for these operands."""
NativeForm: TypeAlias = str | Mapping[str, str] | IndexMap | PartUpdate | Emitter
"""How an operation is written: a scalar expression such as "({0} + {1})", one for each kind of the
result's type, an `IndexMap`, a `PartUpdate`, or an emitter."""


def emit_failure(
    w: Writer, call: NativeCall, wrong: str, value: str, error: Callable[[int], Exception]
) -> None:
    """Write code that reports `value` as invalid data if `wrong`; the caller writes the next line,
    indented, to continue after that."""
    record = call.failure_record(error)
    w.line(f"if {wrong}:")
    w.line(f"    {record}[0] = 1")
    w.line(f"    {record}[1] = {value}")


def literal(value: float | int | bool, dtype: DType) -> str:
    """Return a scalar of exactly this type in generated source."""
    if dtype.kind == "bool":
        return repr(bool(value))
    if dtype.kind in ("int", "uint") and value in (float("inf"), float("-inf")):
        limits = np.iinfo(dtype.name)
        return f"np.{dtype.name}({limits.max if value > 0 else limits.min})"
    return f"np.{dtype.name}({_number_text(value)})"


def _number_text(value: float) -> str:
    if value != value:
        return "np.nan"
    if value in (float("inf"), float("-inf")):
        return "np.inf" if value > 0 else "-np.inf"
    return repr(value)


_COMBINE = {
    "sum": "add_in_any_order({acc}, {x})",
    "prod": "multiply_in_any_order({acc}, {x})",
    "max": "np.maximum({acc}, {x})",
    "min": "np.minimum({acc}, {x})",
    "any": "{acc} or {x}",
    "all": "{acc} and {x}",
}


def combine(reduction: str, accumulated: str, value: str) -> str:
    """Return the expression that reduces two values."""
    return _COMBINE[reduction].format(acc=accumulated, x=value)


def emit_reshape(w: Writer, call: NativeCall) -> None:
    """Write a copy of an operand in C order: loops over the result, with counters for the operand's
    position."""
    (x,) = call.inputs
    counters = [w.name("k") for _ in x.shape]
    for counter in counters:
        w.line(f"{counter} = 0")
    with w.loops(call.out.shape) as indices:
        w.line(f"{call.out.at(indices)} = {x.at(counters)}")
        _advance(w, counters, x.shape)


def _advance(w: Writer, counters: Sequence[str], shape: Shape) -> None:
    """Write the increment of a multi-index in C order, carrying from the last dimension to the
    first."""
    depth = w.depth
    for counter, extent in zip(reversed(counters), reversed(shape), strict=True):
        w.line(f"{counter} += 1")
        w.line(f"if {counter} == {extent}:")
        w.depth += 1
        w.line(f"{counter} = 0")
    w.depth = depth


def emit_copy(
    w: Writer, out: NativeOperand, x: NativeOperand, reduction: str | None = None
) -> None:
    """Write a copy of an operand, unless it has the result's memory; with a reduction, combine it
    with the result."""
    if x.name == out.name and reduction is None:
        return
    with w.loops(out.shape) as indices:
        value, target = x.at(indices), out.at(indices)
        w.line(f"{target} = {combine(reduction, target, value) if reduction else value}")
