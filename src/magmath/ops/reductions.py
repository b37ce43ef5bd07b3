"""Reductions over any axes: sums, products, extrema and truth values."""

from __future__ import annotations

import numpy as np

from magmath.core.dtypes import DType, accumulator_dtype, bool_, compute_dtype
from magmath.core.shapes import AxisNumbers, normalize_axes
from magmath.graph import Node, apply
from magmath.graph.operation import Gradients
from magmath.ops.elementwise import astype, where
from magmath.ops.elementwise import call as pointwise
from magmath.ops.leaves import constant
from magmath.ops.product_gradients import products_of_others
from magmath.ops.shared_fields import no_gradient
from magmath.ops.sums import BROADCAST, SUM, expand_reduced, reduction_record, sum_


def _extremum_vjp(node: Node, g: Node) -> Gradients:
    """Divide the cotangent evenly between the elements that attain the extremum.

    They are counted in float32 at least: float16 has no numbers above 65504.
    """
    (x,) = node.inputs
    attained = pointwise("equal", x, expand_reduced(node, node))
    ones = where(attained, constant(1, x.dtype), constant(0, x.dtype))
    wide = compute_dtype(x.dtype)
    count = sum_(astype(ones, wide), node.attributes["axis"], node.attributes["keepdims"])
    share = astype(astype(g, wide) / count, g.dtype)
    return (ones * expand_reduced(node, share),)


def _prod_vjp(node: Node, g: Node) -> Gradients:
    (x,) = node.inputs
    return (expand_reduced(node, g) * products_of_others(x, node.attributes["axis"]),)


def _same_dtype(dtype: DType) -> DType:
    return dtype


def _bool_dtype(_: DType) -> DType:
    return bool_


_RECORDS = (
    SUM,
    reduction_record("prod", "numeric", accumulator_dtype, _prod_vjp, np.prod, "prod"),
    reduction_record("max", "real", _same_dtype, _extremum_vjp, np.max, "amax"),
    reduction_record("min", "real", _same_dtype, _extremum_vjp, np.min, "amin"),
    reduction_record("any", "bool", _bool_dtype, no_gradient, np.any, "any"),
    reduction_record("all", "bool", _bool_dtype, no_gradient, np.all, "all"),
)
REDUCTIONS = {record.name: record for record in _RECORDS}
_OF_TRUTH_VALUES = {"max": "any", "min": "all", "prod": "all"}


def reduction_of(name: str, dtype: DType) -> str:
    """Return the name of the reduction of `dtype`: the maximum of truth values is `any`, their
    minimum and their product are `all`."""
    return _OF_TRUTH_VALUES.get(name, name) if dtype.kind == "bool" else name


def reduce(
    name: str, x: Node, axis: int | AxisNumbers | None = None, keepdims: bool = False
) -> Node:
    """Apply the reduction of this name over `axis` (all axes for None)."""
    axes = normalize_axes(name, axis, x.ndim)
    node = apply(REDUCTIONS[name], x, axis=axes, keepdims=keepdims)
    return astype(node, accumulator_dtype(x.dtype)) if name == "sum" else node


OPERATIONS = {**REDUCTIONS, BROADCAST.name: BROADCAST}
