"""Selection by a boolean mask: `segment_counts`, `compress`, `expand` and `true_positions`.

The number of elements depends on the mask's values, so `segment_counts` counts them first, for each
segment along the mask's first dimension. With the counts in the program, each
worker selects the elements that it stores: the result is split between the same segments as the
operand.
"""

from __future__ import annotations

import math
from functools import partial
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from magmath.core.dtypes import DType, int64
from magmath.core.index_set import IndexSet
from magmath.core.type_aliases import BoundCall
from magmath.errors import ShapeError
from magmath.graph import KernelCall, Node, Operation, Shape, apply
from magmath.graph.operation import Gradients
from magmath.layout import Split
from magmath.ops.axis_segments import Cuts, split_between_segments
from magmath.ops.index_letters import LETTERS
from magmath.ops.kernel_binding import as_signed, by_reference
from magmath.ops.shared_fields import no_flops, no_gradient
from magmath.ops.type_rules import require_kind

if TYPE_CHECKING:
    import torch


# counting -------------------------------------------------------------------------------------


def _count_infer(mask: Node, *, cuts: Cuts) -> tuple[Shape, DType]:
    require_kind("segment_counts", "bool", mask.dtype)
    return (len(cuts) - 1,), int64


def _count_kernel(call: KernelCall) -> BoundCall:
    (mask,), out, stored_indices = call.inputs, call.out, call.tiles[0][0]
    parts: list[torch.Tensor] = []
    for start, stop in pairwise(call.attributes["cuts"]):
        segment = stored_indices.intersect(IndexSet.range(start, stop))
        parts.append(mask[stored_indices.locate(segment).selector()])

    def run() -> None:
        for i, part in enumerate(parts):
            out[i] = part.count_nonzero()

    return run


def _count_reference(mask: Any, *, cuts: Cuts) -> Any:
    return np.array([np.count_nonzero(mask[a:b]) for a, b in pairwise(cuts)], np.int64)


SEGMENT_COUNTS = Operation(
    name="segment_counts",
    infer=_count_infer,
    axes=lambda node: f"{LETTERS[: node.inputs[0].ndim]}->.",
    reduction="sum",
    vjp=no_gradient,
    kernel=_count_kernel,
    native=None,
    reference=_count_reference,
    numpy_function=by_reference,
    flops=lambda node: float(node.inputs[0].size),
)


# compress -------------------------------------------------------------------------------------


def _masked_letters(ndim: int, dims: int, axis: int) -> tuple[str, str, str]:
    """Return the letters of an array of `ndim` dimensions, of a mask of `dims`, and of the result.

    Array and mask may be split along the mask's first dimension; the result's split derives from
    theirs.
    """
    letters = LETTERS[:ndim]
    mask = letters[axis] + "." * (dims - 1)
    before, after = letters[:axis], letters[axis + dims :]
    return before + mask + after, mask, before + letters[axis].upper() + after


def _split_of_segments(node: Node, letter: str, split: Split, operand: int | None) -> Split | None:
    """Return the split by the segments' counts, if `split` cuts only between segments."""
    attributes = node.attributes
    if letter != LETTERS[attributes["axis"]]:
        return None
    before = tuple(accumulate(attributes["counts"], initial=0))
    return split_between_segments(split, attributes["cuts"], before)


def _compress_infer(
    x: Node, mask: Node, *, axis: int, cuts: Cuts, counts: tuple[int, ...]
) -> tuple[Shape, DType]:
    require_kind("compress (mask)", "bool", mask.dtype)
    if x.shape[axis : axis + mask.ndim] != mask.shape:
        raise ShapeError(
            f"compress: a mask of shape {mask.shape} does not fit dimensions {axis} to "
            f"{axis + mask.ndim - 1} of an array of shape {x.shape}"
            "; give a mask of the shape of these dimensions"
        )
    return (*x.shape[:axis], sum(counts), *x.shape[axis + mask.ndim :]), x.dtype


def _compress_axes(node: Node) -> str:
    x, mask = node.inputs
    array, letters, picked = _masked_letters(x.ndim, mask.ndim, node.attributes["axis"])
    return f"{array},{letters}->{picked}"


def _compress_kernel(call: KernelCall) -> BoundCall:
    (x, mask), out = map(as_signed, call.inputs), as_signed(call.out)
    axis = call.attributes["axis"]
    if x.device.type == "cpu" and mask.ndim == 1:
        return partial(_compress_axis, x, mask, axis, out)
    where = (*(slice(None),) * axis, mask)
    return lambda: out.copy_(x[where])


def _compress_axis(x: torch.Tensor, mask: torch.Tensor, axis: int, out: torch.Tensor) -> None:
    """Copy the elements of one axis, by their positions: half the time of a mask in torch."""
    import torch

    positions = torch.from_numpy(np.flatnonzero(mask.numpy()))
    torch.index_select(x, axis, positions, out=out)


def _compress_reference(x: Any, mask: Any, *, axis: int, cuts: Cuts, counts: Any) -> Any:
    return x[(*(slice(None),) * axis, mask)]


def _compress_vjp(node: Node, g: Node) -> Gradients:
    return apply(EXPAND, g, node.inputs[1], **node.attributes), None


COMPRESS = Operation(
    name="compress",
    infer=_compress_infer,
    axes=_compress_axes,
    reduction=None,
    vjp=_compress_vjp,
    kernel=_compress_kernel,
    native=None,
    reference=_compress_reference,
    numpy_function=by_reference,
    flops=no_flops,
    reads_subset=True,
    derived_split=_split_of_segments,
)


# expand ---------------------------------------------------------------------------------------


def _expand_infer(
    x: Node, mask: Node, *, axis: int, cuts: Cuts, counts: tuple[int, ...]
) -> tuple[Shape, DType]:
    require_kind("expand (mask)", "bool", mask.dtype)
    return (*x.shape[:axis], *mask.shape, *x.shape[axis + 1 :]), x.dtype


def _expand_axes(node: Node) -> str:
    array, letters, picked = _masked_letters(
        node.ndim, node.inputs[1].ndim, node.attributes["axis"]
    )
    return f"{picked},{letters}->{array}"


def _expand_kernel(call: KernelCall) -> BoundCall:
    (x, mask), out = map(as_signed, call.inputs), as_signed(call.out)
    where = (*(slice(None),) * call.attributes["axis"], mask)

    def run() -> None:
        out.zero_()
        out[where] = x

    return run


def _expand_reference(x: Any, mask: Any, *, axis: int, cuts: Cuts, counts: Any) -> Any:
    out = np.zeros((*x.shape[:axis], *mask.shape, *x.shape[axis + 1 :]), x.dtype)
    out[(*(slice(None),) * axis, mask)] = x
    return out


def _expand_vjp(node: Node, g: Node) -> Gradients:
    return apply(COMPRESS, g, node.inputs[1], **node.attributes), None


EXPAND = Operation(  # the operand's elements where the mask is true, zeros elsewhere
    name="expand",
    infer=_expand_infer,
    axes=_expand_axes,
    reduction=None,
    vjp=_expand_vjp,
    kernel=_expand_kernel,
    native=None,
    reference=_expand_reference,
    numpy_function=by_reference,
    flops=no_flops,
    derived_split=_split_of_segments,
)

# positions ------------------------------------------------------------------------------------


def _positions_infer(
    mask: Node, *, axis: int, dim: int, cuts: Cuts, counts: tuple[int, ...]
) -> tuple[Shape, DType]:
    """Return the shape and type. `axis` is 0, the dimension that is cut, as in `compress`."""
    require_kind("true_positions", "bool", mask.dtype)
    return (sum(counts),), int64


def _positions_axes(node: Node) -> str:
    (mask,) = node.inputs
    _, letters, result = _masked_letters(mask.ndim, mask.ndim, 0)
    return f"{letters}->{result}"


def _positions_kernel(call: KernelCall) -> BoundCall:
    import torch

    (mask,), out, dim = call.inputs, call.out, call.attributes["dim"]
    stored_indices = call.tiles[0][0]
    own_positions = (
        torch.as_tensor(stored_indices.indices(), device=out.device) if dim == 0 else None
    )
    behind = math.prod(mask.shape[dim + 1 :])

    def run() -> None:
        if mask.device.type == "cpu":
            positions = torch.from_numpy(np.flatnonzero(mask.numpy()))
        else:
            positions = mask.reshape(-1).nonzero()[:, 0]
        if behind != 1:
            positions = positions.div_(behind, rounding_mode="floor")
        if dim:
            positions = positions.remainder_(mask.shape[dim])
        if own_positions is not None and not stored_indices.is_range:
            positions = own_positions[positions]
        elif own_positions is not None and stored_indices.start:
            positions += stored_indices.start
        out.copy_(positions)

    return run


def _positions_reference(mask: Any, *, axis: int, dim: int, cuts: Cuts, counts: Any) -> Any:
    return np.nonzero(mask)[dim]


POSITIONS = Operation(  # the indices along dimension `dim` of the true elements, in C order
    name="true_positions",
    infer=_positions_infer,
    axes=_positions_axes,
    reduction=None,
    vjp=no_gradient,
    kernel=_positions_kernel,
    native=None,
    reference=_positions_reference,
    numpy_function=by_reference,
    flops=lambda node: float(node.inputs[0].size),
    derived_split=_split_of_segments,
)

OPERATIONS = {record.name: record for record in (SEGMENT_COUNTS, COMPRESS, EXPAND, POSITIONS)}
