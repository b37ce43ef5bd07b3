"""Sorting functions of the array API."""

from __future__ import annotations

from collections.abc import Sequence

from magmath.api.complex_order import complex_argsort, take_along
from magmath.arrays.array import Array, as_array
from magmath.arrays.protocols.cached_functions import dispatch_cached
from magmath.core.shapes import normalize_axis
from magmath.engine.user_line import user_line
from magmath.errors import OptionError
from magmath.graph import Operation, apply
from magmath.ops.manipulation import reshape
from magmath.ops.sort.sorting import ARGSORT, SORT

_KINDS = ("quicksort", "mergesort", "heapsort", "stable")
"""NumPy's names of algorithms."""


def _sorted_along(record: Operation, x: Array, axis: int | None, descending: bool) -> Array:
    x = as_array(record.name, x)
    is_flat = axis is None or (record is ARGSORT and not x.ndim)  # a number has one position
    node = reshape(x.node, (x.size,)) if is_flat else x.node
    axis = 0 if axis is None else axis
    dim = normalize_axis(record.name, axis, node.ndim)
    if x.dtype.kind == "complex":
        order = complex_argsort(node, dim, descending)
        return Array(order if record is ARGSORT else take_along(node, order, dim))
    return Array(apply(record, node, axis=dim, descending=bool(descending), line=user_line()))


def check_kind(name: str, kind: object, order: object, kinds: Sequence[str] = _KINDS) -> None:
    """Raise OptionError unless `kind` is None, or begins with the first letter of an algorithm of
    NumPy, which is enough there too, and `order`, of NumPy's records, is None."""
    if order is not None:
        raise OptionError(
            f"{name}: order names fields, which arrays of numbers do not have; leave it out"
        )
    initials = {name[0] for name in kinds}
    if kind is not None and not (isinstance(kind, str) and kind[:1].lower() in initials):
        raise OptionError(
            f"{name}: kind must be one of {', '.join(kinds)}, was given {kind!r}; it has no "
            f"effect, so leave it out"
        )


@dispatch_cached
def sort(
    a: Array,
    axis: int | None = -1,
    kind: str | None = None,
    order: None = None,
    *,
    descending: bool = False,
    stable: bool | None = True,
) -> Array:
    """Return `a` sorted along an axis, or flattened and sorted for None; NaN comes last in either
    direction.

    Complex numbers are ordered by real part, then by imaginary part. Equal elements always keep
    their order, so `stable` has no effect, nor has `kind`, NumPy's choice of an algorithm.
    """
    check_kind("sort", kind, order)
    return _sorted_along(SORT, a, axis, descending)


@dispatch_cached
def argsort(
    a: Array,
    axis: int | None = -1,
    kind: str | None = None,
    order: None = None,
    *,
    descending: bool = False,
    stable: bool | None = True,
) -> Array:
    """Return the positions that sort `a` along an axis; see `sort`."""
    check_kind("argsort", kind, order)
    return _sorted_along(ARGSORT, a, axis, descending)
