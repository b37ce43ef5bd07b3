"""Pooling: the maximum or the sum of each window over the last dimensions.

An element o of the result reads the elements stride·o - padding + dilation·j of the operand, for
all j of a window of the extents `kernel`; positions out of bounds do not count. All dimensions in
front of the last ones (batch, channels) have windows of their own.

The gradient of a maximum goes to the first element of its window that attains it, in row-major
order; NaN counts as the maximum, and then the last NaN gets it, as in PyTorch. `max_pool_scatter`
adds cotangents at these elements, and `max_pool_select` reads other numbers there. Both are linear
in their first operand, and each is the other's transpose, so gradients of any order need no further
operation. They find the positions in the operand again instead of storing them, since a layer keeps
its operand for other gradients too. `sum_pool` and `sum_pool_input` are each other's transposes.

All dimensions may be split over workers: a segment of the result depends on the segment of the
operand that its windows cover, a halo as in `ops/conv/convolution.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from magmath.core.dtypes import DType
from magmath.errors import DTypeError, ShapeError
from magmath.graph import Node, Operation, Shape, apply
from magmath.graph.operation import Gradients, any_memory_order
from magmath.kernels.conv.padded_range import Range
from magmath.layout import Split
from magmath.ops.conv import pooling_kernels as kernels
from magmath.ops.conv import pooling_references as references
from magmath.ops.conv.window_ranges import (
    inputs_of_windows,
    window_counts,
    windows_of_inputs,
)
from magmath.ops.host_fallback import floats_on_device
from magmath.ops.index_letters import LETTERS
from magmath.ops.type_rules import require_kind

Numbers = tuple[int, ...]

# shapes -------------------------------------------------------------------------------------------


def pooled_shape(name: str, shape: Shape, attributes: Mapping[str, Any]) -> Shape:
    """Return the shape of the result. Raises ShapeError if a window exceeds the padded operand."""
    kernel: Numbers = attributes["kernel"]
    lead = len(shape) - len(kernel)
    if lead < 0:
        raise ShapeError(
            f"{name}: a window over {len(kernel)} dimensions needs an operand with at least as "
            f"many, was given {shape}"
        )
    for d, n in enumerate(shape[lead:]):
        low, high = attributes["padding"][d]
        reach = attributes["dilation"][d] * (kernel[d] - 1) + 1
        if n + low + high < reach:
            raise ShapeError(
                f"{name}: a window of {reach} elements (kernel {kernel[d]}, dilation "
                f"{attributes['dilation'][d]}) does not fit in axis {lead + d} of {shape}, which "
                f"has {n + low + high} with padding {low} and {high}; use a smaller window, more "
                f"padding or larger images"
            )
    return (*shape[:lead], *window_counts(shape[lead:], kernel, attributes))


def _max_infer(x: Node, **attributes: Any) -> tuple[Shape, DType]:
    require_kind("max_pool", "real", x.dtype)
    return pooled_shape("max_pool", x.shape, attributes), x.dtype


def _select_infer(a: Node, x: Node, **attributes: Any) -> tuple[Shape, DType]:
    _check("max_pool_select", a, x, x.shape)
    return pooled_shape("max_pool_select", x.shape, attributes), a.dtype


def _scatter_infer(g: Node, x: Node, **attributes: Any) -> tuple[Shape, DType]:
    _check("max_pool_scatter", g, x, pooled_shape("max_pool_scatter", x.shape, attributes))
    return x.shape, g.dtype


def _check(name: str, a: Node, x: Node, needed: Shape) -> None:
    for node in (a, x):
        require_kind(name, "real", node.dtype)
    if a.dtype is not x.dtype:
        raise DTypeError(f"{name}: operands have types {a.dtype} and {x.dtype}")
    if a.shape != needed:
        raise ShapeError(f"{name}: needs a first operand of shape {needed}, was given {a.shape}")


def _sum_infer(x: Node, **attributes: Any) -> tuple[Shape, DType]:
    require_kind("sum_pool", "real", x.dtype)
    return pooled_shape("sum_pool", x.shape, attributes), x.dtype


def _sum_input_infer(g: Node, *, space: Shape, **attributes: Any) -> tuple[Shape, DType]:
    require_kind("sum_pool_input", "real", g.dtype)
    shape = (*g.shape[: g.ndim - len(space)], *space)
    needed = pooled_shape("sum_pool_input", shape, attributes)
    if g.shape != needed:
        raise ShapeError(f"sum_pool_input: needs shape {needed}, was given {g.shape}")
    return shape, g.dtype


# index notation and splits ------------------------------------------------------------------------


def _axes(node: Node) -> str:
    """Return index notation: operands follow the split of the result."""
    result = LETTERS[: node.ndim]
    lead = node.ndim - len(node.attributes["kernel"])
    operand = result[:lead] + result[lead:].upper()
    return f"{','.join([operand] * len(node.inputs))}->{result}"


def _forward_split(node: Node, letter: str, split: Split, operand: int | None) -> Split | None:
    """Return the split of operands of which the result is pooled."""
    axis = LETTERS.index(letter)
    d = axis - (node.ndim - len(node.attributes["kernel"]))
    needed = inputs_of_windows(node.attributes, d, node.attributes["kernel"][d])
    return split.with_halo(needed, node.inputs[0].shape[axis])


def _backward_split(node: Node, letter: str, split: Split, operand: int | None) -> Split | None:
    """Return the split of cotangents (operand 0), or of the elements in their windows (1)."""
    axis, attributes = LETTERS.index(letter), node.attributes
    d = axis - (node.ndim - len(attributes["kernel"]))
    extent, kernel = node.inputs[0].shape[axis], attributes["kernel"][d]
    windows, covered = (
        windows_of_inputs(attributes, d, kernel),
        inputs_of_windows(attributes, d, kernel),
    )
    if operand == 0:
        return split.with_halo(windows, extent)

    def read(first: int, last: int) -> Range:
        start, stop = (min(max(n, 0), extent) for n in windows(first, last))
        return covered(start, stop) if start < stop else (first, first)

    return split.with_halo(read, node.shape[axis])


# gradients ----------------------------------------------------------------------------------------

_WINDOW = ("kernel", "stride", "padding", "dilation")


def _window(node: Node) -> dict[str, Any]:
    return {name: node.attributes[name] for name in _WINDOW}


def _max_vjp(node: Node, g: Node) -> Gradients:
    return (apply(MAX_POOL_SCATTER, g, node.inputs[0], **_window(node)),)


def _select_vjp(node: Node, g: Node) -> Gradients:
    return apply(MAX_POOL_SCATTER, g, node.inputs[1], **_window(node)), None


def _scatter_vjp(node: Node, g: Node) -> Gradients:
    return apply(MAX_POOL_SELECT, g, node.inputs[1], **_window(node)), None


def _sum_vjp(node: Node, g: Node) -> Gradients:
    kernel = node.attributes["kernel"]
    space = node.inputs[0].shape[node.ndim - len(kernel) :]
    return (apply(SUM_POOL_INPUT, g, space=space, **_window(node)),)


def _sum_input_vjp(node: Node, g: Node) -> Gradients:
    return (apply(SUM_POOL, g, **_window(node)),)


# the records --------------------------------------------------------------------------------------


def _flops(node: Node) -> float:
    """Return one operation for each element of each window."""
    windows = node.inputs[0] if node.name in ("sum_pool_input", "max_pool_scatter") else node
    return float(windows.size * prod(node.attributes["kernel"]))


def _operation(
    name: str, infer: Any, vjp: Any, kernel: Any, reference: Any, split: Any
) -> Operation:
    return Operation(
        name=name,
        infer=infer,
        axes=_axes,
        reduction=None,
        vjp=vjp,
        kernel=floats_on_device(kernel),
        native=None,
        reference=reference,
        flops=_flops,
        derived_split=split,
        memory_orders=any_memory_order,
    )


MAX_POOL = _operation(
    "max_pool", _max_infer, _max_vjp, kernels.bind_max, references.max_reference, _forward_split
)
MAX_POOL_SELECT = _operation(
    "max_pool_select",
    _select_infer,
    _select_vjp,
    kernels.bind_select,
    references.select_reference,
    _forward_split,
)
MAX_POOL_SCATTER = _operation(
    "max_pool_scatter",
    _scatter_infer,
    _scatter_vjp,
    kernels.bind_scatter,
    references.scatter_reference,
    _backward_split,
)
SUM_POOL = _operation(
    "sum_pool", _sum_infer, _sum_vjp, kernels.bind_sum, references.sum_reference, _forward_split
)
SUM_POOL_INPUT = _operation(
    "sum_pool_input",
    _sum_input_infer,
    _sum_input_vjp,
    kernels.bind_sum_input,
    references.sum_input_reference,
    _backward_split,
)

OPERATIONS = {
    record.name: record
    for record in (MAX_POOL, MAX_POOL_SELECT, MAX_POOL_SCATTER, SUM_POOL, SUM_POOL_INPUT)
}
