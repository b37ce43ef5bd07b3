"""Set functions of the array API: the unique elements of an array, and membership in another.

The array is sorted, and each element that differs from the previous one begins a group. The number
of groups depends on the values, so these functions compute and count them
(`arrays/indexing/masks.py`). NaN differs from every number, including NaN.
"""

from __future__ import annotations

from functools import cached_property, partial, reduce
from typing import NamedTuple, final

from magmath.api.complex_order import complex_argsort
from magmath.arrays.array import Array, as_array
from magmath.arrays.indexing.masks import Counted, count_mask
from magmath.arrays.inputs.operands import promoted_nodes
from magmath.arrays.protocols.cached_functions import dispatch_cached
from magmath.core.dtypes import bool_, int64
from magmath.core.type_aliases import Number
from magmath.engine.user_line import user_line
from magmath.errors import OptionError
from magmath.graph import Node, apply
from magmath.ops import elementwise as e
from magmath.ops.concatenation import CONCAT
from magmath.ops.creation import full, iota
from magmath.ops.cumulative import CUMULATIVE_SUM
from magmath.ops.indexing.gather_scatter import PUT, take
from magmath.ops.leaves import constant
from magmath.ops.manipulation import reshape
from magmath.ops.slicing import slice_along
from magmath.ops.sort.searchsorted import SEARCHSORTED
from magmath.ops.sort.sorting import ARGSORT, SORT

MAX_COMPARED = 8
"""Largest number of elements that are compared one by one, which takes less time than a search."""
MAX_PACKED = 1 << 31
"""Number of elements below which two positions are packed into one int64."""


@final
class UniqueAll(NamedTuple):
    """The result of `unique_all`."""

    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array


@final
class UniqueCounts(NamedTuple):
    """The result of `unique_counts`."""

    values: Array
    counts: Array


@final
class UniqueInverse(NamedTuple):
    """The result of `unique_inverse`."""

    values: Array
    inverse_indices: Array


@final
class EqualGroups:
    """The elements of an array in order, and the positions at which groups of equal ones begin."""

    def __init__(self, name: str, x: Array, equal_nan: bool = False) -> None:
        self.equal_nan = equal_nan
        flat = reshape(as_array(name, x).node, (x.size,))
        self.shape = x.shape
        self.size = x.size
        self.flat = flat
        if flat.dtype.kind == "complex":
            self.sorted = take(flat, self.order, 0)
        else:
            self.sorted = apply(SORT, flat, axis=0, descending=False, line=user_line())
        self.begins_group = self._begins_group()

    @cached_property
    def beginnings(self) -> Counted:
        """The counted mask of the elements that begin a group."""
        counted = count_mask(self.begins_group)
        self.begins_group = counted.node
        return counted

    @cached_property
    def order(self) -> Node:
        """The positions that sort the array; nan comes last."""
        if self.flat.dtype.kind == "complex":
            return complex_argsort(self.flat, 0, False)
        return apply(ARGSORT, self.flat, axis=0, descending=False, line=user_line())

    def _begins_group(self) -> Node:
        """Return True for each ordered element that begins a group."""
        if not self.size:
            return full((0,), constant(False, bool_))
        later = slice_along(self.sorted, 0, 1, self.size)
        former = slice_along(self.sorted, 0, 0, self.size - 1)
        differs = e.call("not_equal", later, former)
        if self.equal_nan and self.flat.dtype.kind in ("float", "complex"):
            number = e.call("logical_not", e.call("isnan", former))
            differs = e.call("logical_and", differs, number)
        return apply(CONCAT, full((1,), constant(True, bool_)), differs, axis=0)

    def values(self) -> Array:
        """Return the first element of each group."""
        return Array(self.beginnings.compress(self.sorted))

    def indices(self) -> Array:
        """Return the position in the array of each group's first occurrence; the sort is stable."""
        return Array(self.beginnings.compress(self.order))

    def counts(self) -> Array:
        """Return the sizes of the groups: the distances between their beginnings."""
        starts, groups = self.beginnings.compress(iota((self.size,), 0)), self.beginnings.total
        ends = full((min(groups, 1),), constant(self.size, int64))
        stops = apply(CONCAT, slice_along(starts, 0, min(groups, 1), groups), ends, axis=0)
        return Array(e.subtract(stops, starts))

    def inverse(self) -> Array:
        """Return the group number of each element of the array.

        The distributed sort of pairs (position, group number) brings the numbers into the order of
        the elements.
        """
        begun = apply(CUMULATIVE_SUM, e.astype(self.begins_group, int64), axis=0)
        group = e.subtract(begun, constant(1, int64))
        if self.size < MAX_PACKED:
            pairs = e.add(e.multiply(self.order, constant(MAX_PACKED, int64)), group)
            ordered = apply(SORT, pairs, axis=0, descending=False)
            numbers = e.call("remainder", ordered, constant(MAX_PACKED, int64))
        else:
            empty = full((self.size,), constant(0, int64))
            numbers = apply(PUT, empty, group, self.order, axes=(0,), at=0)
        return Array(reshape(numbers, self.shape))


def unique_all(x: Array) -> UniqueAll:
    """Return the different elements of x in order, the position of the first occurrence of each in
    x (flattened), the number of the one that each element of x equals (of x's shape), and the
    counts."""
    groups = EqualGroups("unique_all", x)
    return UniqueAll(groups.values(), groups.indices(), groups.inverse(), groups.counts())


def unique_counts(x: Array) -> UniqueCounts:
    """Return the different elements of x in order, and their counts."""
    groups = EqualGroups("unique_counts", x)
    return UniqueCounts(groups.values(), groups.counts())


def unique_inverse(x: Array) -> UniqueInverse:
    """Return the different elements of x in order, and the number of the one that each element of x
    equals."""
    groups = EqualGroups("unique_inverse", x)
    return UniqueInverse(groups.values(), groups.inverse())


def unique_values(x: Array) -> Array:
    """Return the different elements of x in order."""
    return EqualGroups("unique_values", x).values()


@dispatch_cached
def isin(
    element: Array | Number,
    test_elements: Array | Number,
    assume_unique: bool = False,
    invert: bool = False,
    *,
    kind: str | None = None,
) -> Array:
    """Return whether each element is in the others, or with `invert` is not, in the first shape.

    One of the operands may be a number. NaN is never a member. NumPy's `kind` has no effect.
    """
    if kind not in (None, "sort", "table"):
        raise OptionError(f'isin: kind is "sort", "table" or None, was given {kind!r}')
    x, test_node = promoted_nodes("isin", element, test_elements)
    if not test_node.size:
        return Array(full(x.shape, constant(invert, bool_)))
    test = reshape(test_node, (test_node.size,))
    if test.size <= MAX_COMPARED:
        search = _among_compared
    else:
        search = _among_groups if x.dtype.kind == "complex" else _among_sorted
    is_member = search(x, test)
    return Array(e.call("logical_not", is_member) if invert else is_member)


def _among_compared(x: Node, test: Node) -> Node:
    """Return whether each element of x equals one of `test`, by comparisons with each."""
    numbers = [reshape(slice_along(test, 0, i, i + 1), ()) for i in range(test.size)]
    return reduce(partial(e.call, "logical_or"), [e.call("equal", x, n) for n in numbers])


def _among_sorted(x: Node, test: Node) -> Node:
    """Return whether each element of x equals that at its insertion position in sorted `test`."""
    ordered = apply(SORT, test, axis=0, descending=False, line=user_line())
    position = apply(SEARCHSORTED, ordered, x, side="left", line=user_line())
    within = e.call("minimum", position, constant(test.size - 1, int64))
    return e.call("equal", reshape(take(ordered, reshape(within, (x.size,)), 0), x.shape), x)


def _among_groups(x: Node, test: Node) -> Node:
    """Return whether the group of equal numbers of each element of x has an element of `test`."""
    both = apply(CONCAT, test, reshape(x, (x.size,)), axis=0, line=user_line())
    groups = EqualGroups("isin", Array(both)).inverse().node
    test_groups = slice_along(groups, 0, 0, test.size)
    element_groups = slice_along(groups, 0, test.size, both.size)
    none = full((both.size,), constant(False, bool_))
    marks = full((test.size,), constant(True, bool_))
    marked = apply(PUT, none, marks, test_groups, axes=(0,), at=0)
    return reshape(take(marked, element_groups, 0), x.shape)
