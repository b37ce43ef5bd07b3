"""argmax and argmin: the position of the first largest or smallest element along an axis.

NaN counts as the extremum. If the axis is split, each worker finds the position in each of its
segments; all workers receive the elements at these positions, which are few
numbers, and select the first extremum of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from magmath.core.dtypes import DType, int64
from magmath.core.shapes import reduced_shape, with_extent
from magmath.core.type_aliases import BoundCall
from magmath.errors import DTypeError, ShapeError
from magmath.graph import KernelCall, Node, Operation, Shape, apply
from magmath.graph.operation import Infer, Kernel
from magmath.layout import Layout
from magmath.ops.axis_segments import (
    Cuts,
    axes_of_segments,
    cuts_along,
    local_number,
    segment_views,
    split_of_segments,
)
from magmath.ops.index_letters import LETTERS, letters_except, with_changed_letter
from magmath.ops.indexing.along_axis import TAKE_ALONG
from magmath.ops.kernel_binding import as_signed, by_reference, is_numpy_only
from magmath.ops.manipulation import reshape
from magmath.ops.shared_fields import no_flops, no_gradient
from magmath.ops.type_rules import require_kind

if TYPE_CHECKING:
    import torch

REFERENCES: dict[str, Callable[..., Any]] = {"argmax": np.argmax, "argmin": np.argmin}


def _infer(name: str) -> Infer:
    def infer(x: Node, *, axis: int, keepdims: bool) -> tuple[Shape, DType]:
        require_kind(name, "real", x.dtype)
        if x.shape[axis] == 0:
            raise ShapeError(
                f"{name}: axis {axis} of shape {x.shape} has extent 0; it must have elements"
            )
        return reduced_shape(x.shape, (axis,), keepdims), int64

    return infer


def _axes(node: Node) -> str:
    x, axis = node.inputs[0], node.attributes["axis"]
    operand = letters_except(x.ndim, (axis,))
    result = operand if node.attributes["keepdims"] else operand.replace(".", "")
    return f"{operand}->{result}"


def _decompositions(node: Node, layouts: Sequence[Layout]) -> Sequence[Node]:
    """Return the search by segments, if the axis is split: the first extremum of their extrema."""
    (x,), axis = node.inputs, node.attributes["axis"]
    cuts = cuts_along(layouts[0], axis)
    if cuts is None:
        return ()
    positions = apply(SEGMENT_POSITIONS, x, axis=axis, cuts=cuts, name=node.name)
    candidates = apply(SEGMENT_ELEMENTS, x, positions, axis=axis, cuts=cuts)
    best = apply(node.operation, candidates, axis=axis, keepdims=True)
    return (reshape(apply(TAKE_ALONG, positions, best, axis=axis), node.shape),)


def _find(name: str, x: torch.Tensor, axis: int, keepdims: bool, out: torch.Tensor) -> None:
    """Write the positions to `out`, by NumPy on the CPU for the types that it has.

    NumPy compares whole vectors of numbers, torch one number at a time. Of 16-bit floats NumPy
    converts each one.
    """
    import torch

    is_half = x.dtype in (torch.float16, torch.bfloat16)
    if (out.device.type == "cpu" and not is_half) or is_numpy_only(x):
        REFERENCES[name](x.numpy(), axis, out=out.numpy(), keepdims=keepdims)
    else:
        getattr(torch, name)(x, axis, keepdim=keepdims, out=out)


def _kernel(name: str) -> Kernel:
    def bind(call: KernelCall) -> BoundCall:
        (x,), out = call.inputs, call.out
        return partial(_find, name, x, out=out, **call.attributes)

    return bind


POSITIONS = tuple(
    Operation(
        name=name,
        infer=_infer(name),
        axes=_axes,
        reduction=None,
        vjp=no_gradient,
        kernel=_kernel(name),
        native=None,
        reference=reference,
        numpy_function=by_reference,
        flops=lambda node: float(node.inputs[0].size),
        decompositions=_decompositions,
    )
    for name, reference in REFERENCES.items()
)


def _segments_infer(x: Node, *, axis: int, cuts: Cuts, name: str) -> tuple[Shape, DType]:
    require_kind("segment_positions", "real", x.dtype)
    return with_extent(x.shape, axis, len(cuts) - 1), int64


def _segments_kernel(call: KernelCall) -> BoundCall:
    (x,), out, name = call.inputs, call.out, call.attributes["name"]
    axis, cuts = call.attributes["axis"], call.attributes["cuts"]
    parts = [
        (out.select(axis, local_number(call.tile[axis], number)), first, segment)
        for number, first, segment in segment_views(x, call.tiles[0][axis], axis, cuts)
    ]

    def run() -> None:
        for target, first, segment in parts:
            _find(name, segment, axis, False, target)
            target.add_(first)

    return run


def _segments_reference(x: Any, *, axis: int, cuts: Cuts, name: str) -> Any:
    positions = [a + REFERENCES[name](x.take(range(a, b), axis), axis) for a, b in pairwise(cuts)]
    return np.stack(positions, axis)


SEGMENT_POSITIONS = Operation(  # the position of the extremum in each segment of an axis
    name="segment_positions",
    infer=_segments_infer,
    axes=axes_of_segments,
    reduction=None,
    vjp=no_gradient,
    kernel=_segments_kernel,
    native=None,
    reference=_segments_reference,
    flops=lambda node: float(node.inputs[0].size),
    derived_split=split_of_segments,
)


def _elements_infer(x: Node, positions: Node, *, axis: int, cuts: Cuts) -> tuple[Shape, DType]:
    if (positions.shape, positions.dtype) != _segments_infer(x, axis=axis, cuts=cuts, name=""):
        raise DTypeError(
            f"segment_elements: needs an int64 position for each segment, was given "
            f"{positions.shape} {positions.dtype}"
        )
    return positions.shape, x.dtype


def _elements_axes(node: Node) -> str:
    letters = LETTERS[: node.ndim]
    segments = with_changed_letter(letters, node.attributes["axis"], str.upper)
    return f"{letters},{segments}->{segments}"


def _elements_kernel(call: KernelCall) -> BoundCall:
    x, positions, out = as_signed(call.inputs[0]), call.inputs[1], as_signed(call.out)
    axis, numbers = call.attributes["axis"], call.tile
    stored_indices = call.tiles[0][axis]
    parts = [
        (local_number(numbers[axis], number), first, segment)
        for number, first, segment in segment_views(
            x, stored_indices, axis, call.attributes["cuts"]
        )
    ]

    def run() -> None:
        for number, first, segment in parts:
            index = positions.narrow(axis, number, 1) - first
            out.narrow(axis, number, 1).copy_(segment.gather(axis, index))

    return run


SEGMENT_ELEMENTS = Operation(  # the elements at one position in each segment of an axis
    name="segment_elements",
    infer=_elements_infer,
    axes=_elements_axes,
    reduction=None,
    vjp=no_gradient,
    kernel=_elements_kernel,
    native=None,
    reference=lambda x, positions, *, axis, cuts: np.take_along_axis(x, positions, axis),
    flops=no_flops,
    derived_split=split_of_segments,
    reads_subset=True,
)

OPERATIONS = {record.name: record for record in (*POSITIONS, SEGMENT_POSITIONS, SEGMENT_ELEMENTS)}
