"""The batching rules of the operations.

For most operations the batch is one more letter in front of their index notation: the same
operation, with the attributes that number dimensions shifted. `RULES` has the other operations. An
operation without a rule is applied to one example after the other, and the results are stacked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from magmath.batching.operand import BatchingRule, BatchOperand, BatchOperands
from magmath.core.dtypes import int64
from magmath.core.shapes import broadcast
from magmath.graph import Node, apply_to
from magmath.ops import OPERATIONS, segment_reductions
from magmath.ops.concatenation import CONCAT
from magmath.ops.creation import full, iota
from magmath.ops.elementwise import add, astype, call, multiply, where
from magmath.ops.index_letters import LETTERS
from magmath.ops.leaves import constant
from magmath.ops.manipulation import permute, reshape
from magmath.ops.slicing import slice_along
from magmath.ops.sums import broadcast_to


def of_batch(node: Node, operands: BatchOperands) -> Node:
    """Return the operation of a node, applied to every example of a batch."""
    rule = RULES.get(node.name)
    if rule is None:
        rule = _elementwise if node.operation.is_elementwise else one_by_one
    result = rule(node, operands)
    assert result.shape == (operands[0].size, *node.shape), (node, result)
    assert result.dtype is node.dtype, (node, result)
    return result if result.line is not None else result.at_line(node.line)


def one_by_one(node: Node, operands: BatchOperands) -> Node:
    """Apply the operation to one example after the other, and stack the results."""
    size = operands[0].size
    if not size:
        return full((0, *node.shape), constant(0, node.dtype))
    examples = []
    for i in range(size):
        inputs = [_example(x, i) if x.varies else x.node for x in operands]
        examples.append(reshape(_apply(node, inputs), (1, *node.shape)))
    return examples[0] if size == 1 else apply_to(CONCAT, tuple(examples), node.line, {"axis": 0})


def _example(x: BatchOperand, i: int) -> Node:
    return reshape(slice_along(x.node, 0, i, i + 1), x.shape)


def _apply(node: Node, inputs: Sequence[Node], **attributes: Any) -> Node:
    """Return the node's operation on other inputs, with some attributes changed."""
    return apply_to(node.operation, tuple(inputs), node.line, {**node.attributes, **attributes})


def _moved(x: Node, source: int, target: int) -> Node:
    """Return x with one dimension at another position."""
    order = [d for d in range(x.ndim) if d != source]
    order.insert(target, source)
    return permute(x, tuple(order))


# one more letter ----------------------------------------------------------------------------------


def _elementwise(node: Node, operands: BatchOperands) -> Node:
    return _apply(node, [x.aligned(node.ndim) for x in operands])


PER_DIMENSION: Mapping[str, Callable[[Any, int], Any]] = {
    "axis": lambda axis, size: _after_batch(axis) if isinstance(axis, tuple) else axis + 1,
    "axes": lambda axes, size: _after_batch(axes),
    "shape": lambda shape, size: (size, *shape),
    "bounds": lambda bounds, size: ((0, size, 1), *bounds),
}
"""The attributes that number dimensions, or have an entry for each, and their values with one more
dimension in front."""


def _attributes_in_batch(node: Node, size: int) -> dict[str, Any]:
    """Return the attributes of a node that change in a batch."""
    return {
        name: PER_DIMENSION[name](value, size)
        for name, value in node.attributes.items()
        if name in PER_DIMENSION
    }


def _stacked(node: Node, operands: BatchOperands) -> Node:
    """Add the letter of the batch to all operands."""
    attributes = _attributes_in_batch(node, operands[0].size)
    return _apply(node, [x.stacked for x in operands], **attributes)


def _permuted(node: Node, operands: BatchOperands) -> Node:
    return permute(operands[0].node, (0, *_after_batch(node.attributes["axes"])))


def _broadcast(node: Node, operands: BatchOperands) -> Node:
    (x,) = operands
    return broadcast_to(x.aligned(node.ndim), (x.size, *node.shape))


def _contracted(node: Node, operands: BatchOperands) -> Node:
    a, b_and_out = node.attributes["subscripts"].split(",")
    b, out = b_and_out.split("->")
    letter = next(c for c in LETTERS if c not in a + b + out)
    a, b = (letter * x.varies + letters for x, letters in zip(operands, (a, b), strict=True))
    return _apply(node, [x.node for x in operands], subscripts=f"{a},{b}->{letter}{out}")


def _written_slice(node: Node, operands: BatchOperands) -> Node:
    x, values = operands
    inputs = [x.stacked, values.aligned(x.ndim)]
    return _apply(node, inputs, **_attributes_in_batch(node, x.size))


# positions that differ between examples -----------------------------------------------------------


def _number(size: int, ndim: int) -> Node:
    """Return the number of each example, as an index array of 1 + ndim dimensions."""
    return iota((size, *(1,) * ndim), 0)


def _indices(indices: BatchOperands) -> list[Node]:
    """Return index arrays of a whole batch: the number of the example, then those of the node."""
    ndim = len(broadcast("indexing", *[x.shape for x in indices]))
    return [_number(indices[0].size, ndim), *[x.aligned(ndim) for x in indices]]


def _after_batch(axes: Sequence[int]) -> tuple[int, ...]:
    """Return axes of an example as those of a batch."""
    return tuple([axis + 1 for axis in axes])


def _taken(node: Node, operands: BatchOperands) -> Node:
    x, *indices = operands
    axes, at = node.attributes["axes"], node.attributes["at"]
    if not any(i.varies for i in indices):
        return _apply(
            node, [x.node, *[i.node for i in indices]], axes=_after_batch(axes), at=at + 1
        )
    if x.varies:
        picked = _apply(node, [x.node, *_indices(indices)], axes=(0, *_after_batch(axes)), at=at)
    else:
        picked = _apply(node, [x.node, *_broadcasting(indices)], axes=axes, at=at)
    return _moved(picked, at, 0)


def _broadcasting(indices: BatchOperands) -> list[Node]:
    """Return index arrays of a whole batch into an array that all examples share."""
    ndim = len(broadcast("indexing", *[x.shape for x in indices]))
    return [x.aligned(ndim) for x in indices]


def _put(node: Node, operands: BatchOperands) -> Node:
    x, values, *indices = operands
    axes, at = node.attributes["axes"], node.attributes["at"]
    common = broadcast("indexing", *[i.shape for i in indices])
    other_extents = [n for d, n in enumerate(x.shape) if d not in axes]
    if not any(i.varies for i in indices):
        ndim = len(other_extents) + len(common)
        inputs = [x.stacked, values.aligned(ndim), *[i.node for i in indices]]
        return _apply(node, inputs, axes=_after_batch(axes), at=at + 1)
    picked = (*other_extents[:at], *common, *other_extents[at:])
    written = broadcast_to(values.aligned(len(picked)), (x.size, *picked))
    inputs = [x.stacked, _moved(written, 0, at), *_indices(indices)]
    return _apply(node, inputs, axes=(0, *_after_batch(axes)), at=at)


def _scatter_added(node: Node, operands: BatchOperands) -> Node:
    x, *indices = operands
    axes, at, extents = (node.attributes[name] for name in ("axes", "at", "extents"))
    if not any(i.varies for i in indices):
        return _apply(
            node, [x.node, *[i.node for i in indices]], axes=_after_batch(axes), at=at + 1
        )
    inputs = [_moved(x.stacked, 0, at), *_indices(indices)]
    return _apply(node, inputs, axes=(0, *_after_batch(axes)), extents=(x.size, *extents))


def _dynamic_slice(node: Node, operands: BatchOperands) -> Node:
    x, *starts = operands
    if not any(start.varies for start in starts):
        inputs = [x.node, *[start.node for start in starts]]
        return _apply(node, inputs, axes=_after_batch(node.attributes["axes"]))
    indices, kept_axes = _slice_indices(node, operands[0], starts)
    axes = node.attributes["axes"]
    if x.varies:
        number = _number(x.size, len(kept_axes))
        attributes = {"axes": (0, *_after_batch(axes)), "at": 0}
        picked = apply_to(OPERATIONS["take"], (x.node, number, *indices), node.line, attributes)
    else:
        attributes = {"axes": axes, "at": 0}
        picked = apply_to(OPERATIONS["take"], (x.node, *indices), node.line, attributes)
    order = _slice_order(x.ndim, axes, kept_axes)
    return permute(picked, (0, *[1 + order.index(d) for d in sorted(order)]))


def _dynamic_update_slice(node: Node, operands: BatchOperands) -> Node:
    x, values, *starts = operands
    axes = node.attributes["axes"]
    ndim = x.ndim - sum(extent is None for extent in node.attributes["extents"])
    if not any(start.varies for start in starts):
        inputs = [x.stacked, values.aligned(ndim), *[start.node for start in starts]]
        return _apply(node, inputs, axes=_after_batch(axes))
    indices, kept_axes = _slice_indices(node, x, starts)
    order = _slice_order(x.ndim, axes, kept_axes)
    extents = dict(zip(axes, node.attributes["extents"], strict=True))
    part = [extents.get(d, x.shape[d]) for d in sorted(order)]
    written = broadcast_to(values.aligned(ndim), (x.size, *part))
    written = permute(written, (0, *[1 + sorted(order).index(d) for d in order]))
    operand = (x.stacked, written, _number(x.size, len(kept_axes)), *indices)
    return apply_to(
        OPERATIONS["put"], operand, node.line, {"axes": (0, *_after_batch(axes)), "at": 0}
    )


def _slice_order(ndim: int, axes: Sequence[int], kept_axes: Sequence[int]) -> list[int]:
    """Return the dimensions of a slice in the order in which index arrays select them: those that
    it selects from and keeps, then the others."""
    return [*kept_axes, *[d for d in range(ndim) if d not in axes]]


def _slice_indices(
    node: Node, x: BatchOperand, starts: BatchOperands
) -> tuple[list[Node], list[int]]:
    """Return index arrays (batch, *extents) for the axes that a slice selects from, and the axes
    whose dimension the slice keeps.

    A slice that begins before the array is out of range, as for a single example.
    """
    axes, extents, steps = (node.attributes[name] for name in ("axes", "extents", "steps"))
    kept_axes = [axis for axis, extent in zip(axes, extents, strict=True) if extent is not None]
    indices = []
    for axis, extent, step, start in zip(axes, extents, steps, starts, strict=True):
        first = start.aligned(len(kept_axes))
        if extent is None:
            indices.append(first)
            continue
        if first.dtype is not int64:
            first = apply_to(OPERATIONS["astype"], (first,), node.line, {"dtype": int64})
        negative = call("less", first, constant(0, int64))
        first = where(negative, constant(x.shape[axis], int64), first)
        shape = [extent if kept_axis == axis else 1 for kept_axis in kept_axes]
        along = iota(tuple(shape), kept_axes.index(axis))
        indices.append(add(first, multiply(along, constant(step, int64))))
    return indices, kept_axes


def _masked(node: Node, operands: BatchOperands) -> Node:
    """Select by one mask from every example; with one mask per example there is no common shape."""
    x, mask = operands
    if mask.varies:
        return one_by_one(node, operands)
    return _apply(node, [x.node, mask.node], axis=node.attributes["axis"] + 1)


def _reduced_segments(node: Node, operands: BatchOperands) -> Node:
    x, starts = operands
    if starts.varies:
        return one_by_one(node, operands)
    return _apply(node, [x.node, starts.node], axis=node.attributes["axis"] + 1)


def _searched(node: Node, operands: BatchOperands) -> Node:
    x, values = operands
    return one_by_one(node, operands) if x.varies else _apply(node, [x.node, values.node])


def _counted(node: Node, operands: BatchOperands) -> Node:
    (x,) = operands
    extent = node.attributes["extent"]
    row = multiply(_number(x.size, x.ndim), constant(extent, int64))
    counts = _apply(node, [add(astype(x.node, int64), row)], extent=x.size * extent)
    return reshape(counts, (x.size, extent))


def _interpolated(node: Node, operands: BatchOperands) -> Node:
    _, *others = operands
    if any(x.varies for x in others):
        return one_by_one(node, operands)
    return _apply(node, [x.node for x in operands])


# matrices -----------------------------------------------------------------------------------------


def _solved(node: Node, operands: BatchOperands) -> Node:
    """Solve with one matrix for all examples, by stacking their right-hand sides as columns."""
    a, b, *rest = operands
    if a.varies or any(x.varies for x in rest):
        return _stacked(node, operands)
    *stack, rows, columns = b.shape
    wide = reshape(_moved(b.node, 0, b.ndim - 1), (*stack, rows, b.size * columns))
    solution = _apply(node, [a.node, wide, *[x.node for x in rest]])
    by_example = reshape(solution, (*node.shape[:-1], b.size, columns))
    return _moved(by_example, node.ndim - 1, 0)


# correlations: x (n, c, …), w (k, c / groups, …), y (n, k, …) -------------------------------------


def _merged(x: Node, axis: int) -> Node:
    """Return x with the batch as the leading part of another dimension of an example."""
    moved = _moved(x, 0, axis)
    shape = moved.shape
    return reshape(moved, (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :]))


def _separated(x: Node, axis: int, size: int) -> Node:
    """Return x with the batch separated from the dimension of which it is the leading part."""
    shape = x.shape
    by_example = reshape(x, (*shape[:axis], size, shape[axis] // max(size, 1), *shape[axis + 1 :]))
    return _moved(by_example, axis, 0)


def _correlated(node: Node, operands: BatchOperands) -> Node:
    """Correlate: with a shared kernel, the batch joins that of the images; otherwise every example
    has its own group of channels."""
    first, second = operands
    size = first.size
    if not size:
        return one_by_one(node, operands)
    if node.name != "correlation_kernel" and not second.varies:
        return _separated(_apply(node, [_merged(first.node, 0), second.node]), 0, size)
    groups = node.attributes["groups"] * size
    if node.name == "correlation_kernel":
        inputs = [_merged(first.stacked, 1), _merged(second.stacked, 1)]
        return _separated(_apply(node, inputs, groups=groups), 0, size)
    inputs = [_merged(first.stacked, 1), _merged(second.stacked, 0)]
    return _separated(_apply(node, inputs, groups=groups), 1, size)


# random numbers -----------------------------------------------------------------------------------


def drawn(node: Node, operands: BatchOperands) -> Node:
    """Draw numbers for all examples from one stream, as one array with the batch in front."""
    size, inputs = operands[0].size, [x.node for x in operands[:2]]
    if node.name != "random_permutation":
        parameters = [x.stacked if x.ndim else _of_examples(x, node) for x in operands[2:]]
        return _apply(node, [*inputs, *parameters], shape=(size, *node.shape))
    attributes = {"shape": (size, node.attributes["below"]), "dtype": int64}
    bits = apply_to(OPERATIONS["random_bits"], tuple(inputs), node.line, attributes)
    order = {"axis": 1, "descending": False}
    orders = apply_to(OPERATIONS["argsort"], (bits,), node.line, order)
    return slice_along(orders, 1, 0, node.shape[0])


def _of_examples(x: BatchOperand, node: Node) -> Node:
    """Return a 0-d parameter for each element of a batch, or for all of them if it is the same."""
    if not x.varies:
        return x.node
    return broadcast_to(x.aligned(node.ndim), (x.size, *node.shape))


# marks --------------------------------------------------------------------------------------------


def _without_redistribution(node: Node, operands: BatchOperands) -> Node:
    """Drop a redistribution: a layout of one example does not apply to a batch."""
    return operands[0].stacked


def _marked(node: Node, operands: BatchOperands) -> Node:
    value, *inputs = operands
    return _apply(node, [value.stacked, *[x.node for x in inputs]])


_ONE_MORE_LETTER = """
    sum prod max min any all argmax argmin
    cumulative_sum cumulative_prod cumulative_max cumulative_min
    segment_positions segment_elements segment_totals segment_cumulative
    reshape concat slice take_along scatter_along sort argsort order_statistics quantile
    fft_c2c fft_r2c fft_c2r fft_twiddle
    centred_dot centred_squares max_pool max_pool_select max_pool_scatter sum_pool sum_pool_input
    cholesky lu qr inv diagonal parity cofactors cofactors_gradient det slogdet
    eigh eigvalsh eig eigvals svd svdvals pinv
    pack_bits unpack_bits
"""
RULES: dict[str, BatchingRule] = {
    **dict.fromkeys(_ONE_MORE_LETTER.split(), _stacked),
    "broadcast_to": _broadcast,
    "full": _broadcast,
    "permute_dims": _permuted,
    "contract": _contracted,
    "set_slice": _written_slice,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "take": _taken,
    "put": _put,
    "scatter_add": _scatter_added,
    "compress": _masked,
    "expand": _masked,
    "searchsorted": _searched,
    **dict.fromkeys(segment_reductions.OPERATIONS, _reduced_segments),
    "bin_counts": _counted,
    "interp": _interpolated,
    "solve": _solved,
    "solve_triangular": _solved,
    "lu_solve": _solved,
    "lstsq": _solved,
    "correlation": _correlated,
    "correlation_input": _correlated,
    "correlation_kernel": _correlated,
    "redistribute": _without_redistribution,
    "checkpoint": _marked,
    "custom_result": _marked,
    "recompute": _marked,
    "gradient": _marked,
    "independent": _marked,
}
"""The batching rule of each operation that is not element-wise."""
