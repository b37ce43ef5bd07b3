"""Quantiles: elements of the sorted last axis, or values between two neighbours.

The record exists for its gradient and for small arrays, of which NumPy's code computes it in one
call. The passes replace it by the order statistics and their interpolation.
"""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any, Final

import numpy as np

from magmath.core.dtypes import DType
from magmath.graph import Node, Operation, Shape, apply
from magmath.graph.operation import Gradients
from magmath.ops.concatenation import CONCAT
from magmath.ops.elementwise import call, where
from magmath.ops.index_letters import LETTERS
from magmath.ops.indexing.along_axis import scatter_along
from magmath.ops.kernel_binding import by_reference
from magmath.ops.leaves import constant
from magmath.ops.manipulation import reshape
from magmath.ops.shared_fields import no_flops, unreachable
from magmath.ops.slicing import slice_along
from magmath.ops.sort.order_statistics import ORDER_STATISTICS
from magmath.ops.sort.sorting import ARGSORT
from magmath.ops.type_rules import require_kind


def quantile(x: Node, below: int, above: int, weight: float) -> Node:
    """Return the element at a position of the sorted last axis, or a value between those at two
    positions; nan if an element is nan."""
    return apply(QUANTILE, x, below=below, above=above, weight=weight)


def interpolated(below: Any, above: Any, weight: Any, lib: Any) -> Any:
    """Interpolate linearly between neighbours, with the weight of the one above, by the functions
    of a namespace: NumPy's, or those of nodes or arrays with these names.

    A neighbour of weight 0 does not count. An infinite one of another weight is the result. Equal
    finite ones are interpolated too, so that both have their parts of the gradient.
    """
    step = above - below
    weighted = below * (1 - weight) + above * weight
    between = lib.where(lib.isinf(step), weighted, below + step * weight)
    same = lib.logical_and(lib.isinf(below), lib.equal(above, below))
    takes_below = lib.logical_or(same, lib.equal(weight, 0))
    return lib.where(takes_below, below, lib.where(lib.equal(weight, 1), above, between))


_NODE_FUNCTIONS: Final = SimpleNamespace(
    where=where,
    **{name: partial(call, name) for name in ("isinf", "logical_and", "logical_or")},
    equal=partial(call, "equal"),
)


def _infer(x: Node, *, below: int, above: int, weight: float) -> tuple[Shape, DType]:
    require_kind("quantile", "ordered" if weight == 0 else "real floating", x.dtype)
    return x.shape[:-1], x.dtype


def _axes(node: Node) -> str:
    letters = LETTERS[: node.ndim]
    return f"{letters}.->{letters}"


def _neighbours(node: Node) -> tuple[int, int, float]:
    """Return the two positions, and the weight of the second one."""
    attributes = node.attributes
    return attributes["below"], attributes["above"], attributes["weight"]


def _expansion(node: Node) -> Node:
    (x,), (below, above, weight) = node.inputs, _neighbours(node)
    axis, last = x.ndim - 1, x.shape[-1] - 1
    positions = below, above, last
    statistics = apply(ORDER_STATISTICS, x, axis=axis, positions=positions)
    low, high, highest = (
        reshape(slice_along(statistics, axis, i, i + 1), node.shape) for i in range(3)
    )
    value = (
        low if weight == 0 else interpolated(low, high, constant(weight, x.dtype), _NODE_FUNCTIONS)
    )
    if x.dtype.kind != "float":
        return value
    return where(call("isnan", highest), constant(np.nan, x.dtype), value)  # nan is the last one


def _vjp(node: Node, g: Node) -> Gradients:
    """Add the parts of the cotangent to the two elements."""
    (x,), (below, above, weight) = node.inputs, _neighbours(node)
    axis = x.ndim - 1
    order = apply(ARGSORT, x, axis=axis, descending=False)
    g = reshape(where(call("isnan", node), constant(0, g.dtype), g), (*node.shape, 1))
    shares = ((below, 1 - weight), (above, weight))
    used = [(position, share) for position, share in shares if share]  # 0 times infinity is nan
    parts = [g if share == 1 else g * share for _, share in used]
    origins = [slice_along(order, axis, position, position + 1) for position, _ in used]
    values, places = (
        arrays[0] if len(arrays) == 1 else apply(CONCAT, *arrays, axis=axis)
        for arrays in (parts, origins)
    )
    return (scatter_along(values, places, axis, x.shape[-1]),)


def _reference(x: Any, *, below: int, above: int, weight: float) -> Any:
    last = x.shape[-1] - 1
    ordered = np.partition(x, sorted({below, above, last}), axis=-1)
    low, high, highest = (ordered[..., i] for i in (below, above, last))
    if x.dtype.kind != "f":
        return low
    with np.errstate(all="ignore"):
        value = interpolated(low, high, weight, np) if weight else low
        return np.where(np.isnan(highest), highest, value)


QUANTILE = Operation(
    name="quantile",
    infer=_infer,
    axes=_axes,
    reduction=None,
    vjp=_vjp,
    kernel=unreachable,
    native=None,
    reference=_reference,
    numpy_function=by_reference,
    flops=no_flops,
    expansion=_expansion,
)

OPERATIONS = {QUANTILE.name: QUANTILE}
