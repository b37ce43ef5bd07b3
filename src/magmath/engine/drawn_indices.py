"""Indices that a program draws at random: whether they can be out of range.

Their values are not known before a run, but their range is: it follows from the operations, such as
a remainder, and from the numbers of the run. A run whose indices are all in range cannot fail for
them, so it may overwrite what it updates (`engine/fallible_operations.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple, TypeAlias, final

import numpy as np

from magmath.core.dtypes import DType, bfloat16, integer_bounds
from magmath.core.type_aliases import Number
from magmath.graph import Graph, Node, topological
from magmath.graph.operation import OperandCheck
from magmath.ops.leaves import CONSTANT, SCALAR
from magmath.ops.type_rules import numpy_name

Range: TypeAlias = tuple[Any, Any]
"""The least and the largest value that the elements of an array may have: numbers of NumPy."""
Ranges: TypeAlias = Sequence[Range | None]
"""The ranges of the operands of a node; None: unknown."""

_MAX_INTEGER = 1 << 62
"""Up to this absolute value, results in float64 tell that those in int64 do not overflow."""
_SELECTIONS = frozenset((
    "dynamic_slice", "permute_dims", "redistribute", "reshape", "slice", "sort", "take",
    "take_along",
))  # fmt: skip
"""Operations whose elements are those of their first operand."""
_MONOTONIC = frozenset((
    "add", "ceil", "clamp_max", "clamp_min", "floor", "maximum", "minimum", "multiply", "negative",
    "subtract", "trunc",
))  # fmt: skip
"""Operations that are monotonic in each operand, if the others are fixed: their extreme values are
those for extreme operands."""
_POSITIONS = frozenset(("argsort", "argmax", "argmin"))
"""Operations whose elements are positions along an axis."""


@final
class _Step(NamedTuple):
    """The range of a node's elements from those of its inputs.

    Nodes are given by their positions in the graph: a reference to one would keep the arrays from
    which it is computed.
    """

    position: int
    reads: Sequence[int]
    range_of: Callable[[Ranges], Range | None]


@final
class DrawnIndices:
    """The indices that a program draws at random.

    graph    a graph of operations that have kernels
    drawn    the indices (`UncheckedOperands`)
    numbers  the leaves of the program's numbers, in order
    """

    def __init__(
        self, graph: Graph, drawn: Sequence[tuple[Node, int]], numbers: Sequence[Node]
    ) -> None:
        position = {node: i for i, node in enumerate(graph.nodes)}
        needed = topological([node.inputs[i] for node, i in drawn])
        self._steps = [
            _Step(position[x], [position[y] for y in x.inputs], _range_rule(x))
            for x in needed
            if x.operation is not SCALAR
        ]
        self._checks: list[tuple[int, OperandCheck]] = []
        """The positions of the indices in the graph, and their checks."""
        for node, i in drawn:
            checked = node.operation.checked
            assert checked is not None
            assert checked.check is not None
            self._checks.append((position[node.inputs[i]], checked.check(node, i)))
        bounds = _numbers_of_ranges(needed)
        self._leaves = [
            (i, position[x], np.dtype(numpy_name(x.dtype)))
            for i, x in enumerate(numbers)
            if x in bounds
        ]
        self._last: tuple[list[Number] | None, bool] = (None, True)
        """The last numbers, and whether the indices were in range."""

    def can_be_out_of_range(self, numbers: Sequence[Number]) -> bool:
        """Return True unless all indices are in range in a run with these numbers."""
        read = [numbers[i] for i, _, _ in self._leaves]
        last, result = self._last
        if read != last:
            result = self._has_unknown_or_outside(read)
            self._last = read, result
        return result

    def _has_unknown_or_outside(self, numbers: Sequence[Number]) -> bool:
        ranges: dict[int, Range | None] = {}
        for (_, position, dtype), number in zip(self._leaves, numbers, strict=True):
            value = np.asarray(number, dtype)
            ranges[position] = value, value
        with np.errstate(all="ignore"):
            for position, reads, range_of in self._steps:
                ranges[position] = range_of([ranges.get(x) for x in reads])
        return not all(
            _is_in_range(ranges.get(position), check) for position, check in self._checks
        )


def _is_in_range(indices: Range | None, check: OperandCheck) -> bool:
    """Return False for indices whose range is unknown or has a number that makes the check fail."""
    if indices is None:
        return False
    try:
        check(np.stack(indices))
    except IndexError:
        return False
    return True


def _numbers_of_ranges(nodes: Sequence[Node]) -> set[Node]:
    """Return the numbers that ranges depend on: not the seeds and streams of generators."""
    return {x for node in nodes if not node.operation.is_random for x in node.inputs}


# rules --------------------------------------------------------------------------------------------


def _range_rule(node: Node) -> Callable[[Ranges], Range | None]:
    """Return the function from the ranges of a node's inputs to the range of its elements."""
    known = _known_range(node)
    if known is not None:
        return lambda _: known
    name, node_dtype = node.operation.name, node.dtype
    if name in _SELECTIONS:
        return lambda ranges: ranges[0]
    if name == "concat":
        return _union
    if name == "remainder":
        return _range_of_remainder
    if node.dtype is bfloat16:
        return lambda _: None
    if name == "astype":
        return lambda ranges: _converted(ranges[0], node_dtype)
    if name in _MONOTONIC:
        reference, attributes = node.operation.reference, dict(node.attributes)
        return lambda ranges: _range_of_monotonic(reference, attributes, node_dtype, ranges)
    return lambda _: None


def _known_range(node: Node) -> Range | None:
    """Return the range of elements that does not depend on those of the inputs."""
    name, attributes = node.operation.name, node.attributes
    if node.operation is CONSTANT:
        value = np.asarray(attributes["value"])
        return value, value
    if name == "iota":
        return _positions(node.shape[attributes["axis"]])
    if name == "random_permutation":
        return _positions(attributes["below"])
    if name in _POSITIONS:
        return _positions(node.inputs[0].shape[attributes["axis"]])
    if name == "random_bits" and node.dtype.is_integer:
        return np.asarray(0), np.asarray(integer_bounds(node.dtype)[1])
    if name == "random_uniform" and node.dtype is not bfloat16:
        zero = np.zeros((), numpy_name(node.dtype))
        return zero, np.nextafter(zero + 1, zero)
    return None


def _positions(extent: int) -> Range:
    return np.asarray(0), np.asarray(max(0, extent - 1))


def _union(ranges: Ranges) -> Range | None:
    known = [x for x in ranges if x is not None]
    if len(known) < len(ranges):
        return None
    return min(x[0] for x in known), max(x[1] for x in known)


def _range_of_remainder(ranges: Ranges) -> Range | None:
    divisor = ranges[1]
    if divisor is None or not divisor[0] > 0 or divisor[1].dtype.kind not in "iu":
        return None
    return np.asarray(0), divisor[1] - 1


def _converted(range_: Range | None, dtype: DType) -> Range | None:
    """Return the range of values that are converted to another type, if it has all of them."""
    if dtype.kind == "bool":
        return np.asarray(False), np.asarray(True)
    if range_ is None or not _can_represent(range_, dtype):
        return None
    low, high = (x.astype(numpy_name(dtype)) for x in range_)
    return low, high


def _range_of_monotonic(
    reference: Callable[..., Any], attributes: Mapping[str, Any], dtype: DType, ranges: Ranges
) -> Range | None:
    """Return the range of an operation that is monotonic in each operand; None if it overflows."""
    known = [x for x in ranges if x is not None]
    if len(known) < len(ranges):
        return None
    corners = [*product(*known)]
    if dtype.kind == "complex" or any(x.dtype.kind == "c" for corner in corners for x in corner):
        return None
    estimates = [np.float64(reference(*map(float, x), **attributes)) for x in corners]
    if not _can_represent(estimates, dtype):
        return None
    values = [np.asarray(reference(*x, **attributes), numpy_name(dtype)) for x in corners]
    return min(values), max(values)


def _can_represent(values: Sequence[Any], dtype: DType) -> bool:
    """Return False for values of which an integer type may lack one, and for infinity and nan."""
    if not dtype.is_integer:
        return all(map(np.isfinite, values))
    least, largest = integer_bounds(dtype)
    least, largest = max(least, -_MAX_INTEGER), min(largest, _MAX_INTEGER)
    return all(least <= x <= largest for x in values)
