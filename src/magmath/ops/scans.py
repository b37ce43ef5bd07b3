"""Cumulative sums and products along an axis.

If the axis is split, each worker computes the totals of its segments, all workers receive the
totals, which are few numbers, and each worker starts the scan of a segment with the total of the
segments before it (Blelloch 1990).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np

from magmath.core.dtypes import (
    DType,
    accumulator_dtype,
    bfloat16,
    complex64,
    complex128,
    float16,
    float32,
    float64,
)
from magmath.core.shapes import size_of, with_extent
from magmath.core.type_aliases import BoundCall
from magmath.errors import DTypeError
from magmath.graph import KernelCall, Node, Operation, Shape, apply
from magmath.graph.operation import Gradients, Kernel, Vjp
from magmath.layout import Layout, Split
from magmath.ops.axis_segments import (
    Cuts,
    axes_of_segments,
    cuts_along,
    local_number,
    segment_views,
    split_between_segments,
    split_of_segments,
)
from magmath.ops.index_letters import LETTERS, one_axis_whole, with_changed_letter
from magmath.ops.kernel_binding import add, as_signed, by_reference, is_numpy_only, reference_call
from magmath.ops.product_gradients import gradient_of_running_product
from magmath.ops.shared_fields import no_gradient
from magmath.ops.slicing import reversed_along
from magmath.ops.type_rules import require_kind

if TYPE_CHECKING:
    import torch

BLOCK_BYTES = 1 << 18  # part of a segment per step, so that the sums are still in the cache


@final
class Scan(NamedTuple):
    """The functions of a scan: torch's name of it, the sum or product of two tensors, and NumPy's
    functions."""

    torch_name: str
    combine: Callable[..., torch.Tensor]
    numpy: Callable[..., Any]
    numpy_combine: Callable[..., Any]


def _multiply(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    import torch

    return torch.mul(x, y, out=out)


def _in_float32(scan: Callable[..., Any]) -> Callable[..., Any]:
    """Return NumPy's scan with running results in float32 for float16, as torch has them."""

    def computed(x: Any, axis: int | None = None) -> Any:
        is_half = x.dtype == np.float16
        return scan(x, axis, np.float32).astype(x.dtype) if is_half else scan(x, axis)

    return computed


SCANS = {
    "sum": Scan("cumsum", add, _in_float32(np.cumsum), np.add),
    "prod": Scan("cumprod", _multiply, _in_float32(np.cumprod), np.multiply),
}


def _cumulative_infer(x: Node, *, axis: int) -> tuple[Shape, DType]:
    require_kind("cumulative_sum/cumulative_prod", "numeric", x.dtype)
    return x.shape, accumulator_dtype(x.dtype)


def _cumulative_kernel(name: str) -> Kernel:
    scan = SCANS[name]

    def bind(call: KernelCall) -> BoundCall:
        import torch

        (x,), out, axis = call.inputs, call.out, call.attributes["axis"]
        if is_numpy_only(x, out):
            return reference_call(call, scan.numpy)
        return partial(getattr(torch, scan.torch_name), x, axis, dtype=out.dtype, out=out)

    return bind


def _cumulative_decompositions(name: str, node: Node, layouts: Sequence[Layout]) -> Sequence[Node]:
    """Return the scan by segments, whose totals are computed first, if the axis is split."""
    (x,), axis = node.inputs, node.attributes["axis"]
    cuts = cuts_along(layouts[0], axis)
    if cuts is None:
        return ()
    totals = apply(SEGMENT_TOTALS, x, axis=axis, cuts=cuts, name=name)
    return (apply(SEGMENT_SCAN, x, totals, axis=axis, cuts=cuts, name=name),)


def _cumulative_sum_vjp(node: Node, g: Node) -> Gradients:
    """Return the sum of the cotangents from each position to the end.

    The total minus the sum before a position would lose small cotangents behind large ones.
    """
    axis = node.attributes["axis"]
    backwards = apply(CUMULATIVE_SUM, reversed_along(g, (axis,)), axis=axis)
    return (reversed_along(backwards, (axis,)),)


def _cumulative_prod_vjp(node: Node, g: Node) -> Gradients:
    (x,) = node.inputs
    return (gradient_of_running_product(x, g, node.attributes["axis"]),)


def _cumulative(name: str, vjp: Vjp) -> Operation:
    return Operation(
        name=f"cumulative_{name}",
        infer=_cumulative_infer,
        axes=one_axis_whole,
        reduction=None,
        vjp=vjp,
        kernel=_cumulative_kernel(name),
        native=None,
        reference=SCANS[name].numpy,
        numpy_function=by_reference,
        flops=lambda node: float(node.size),
        decompositions=partial(_cumulative_decompositions, name),
    )


CUMULATIVE_SUM = _cumulative("sum", _cumulative_sum_vjp)
CUMULATIVE_PROD = _cumulative("prod", _cumulative_prod_vjp)


# by segments --------------------------------------------------------------------------------------

_WIDE = dict.fromkeys((float16, bfloat16, float32), float64) | {complex64: complex128}


def long_sum_dtype(dtype: DType) -> DType:
    """Return the type in which long sums of `dtype` accumulate without visible rounding errors."""
    return _WIDE.get(dtype, accumulator_dtype(dtype))


def _totals_infer(x: Node, *, axis: int, cuts: Cuts, name: str) -> tuple[Shape, DType]:
    require_kind("segment_totals", "numeric", x.dtype)
    return with_extent(x.shape, axis, len(cuts) - 1), long_sum_dtype(x.dtype)


def _totals_kernel(call: KernelCall) -> BoundCall:
    (x,), out = call.inputs, as_signed(call.out)
    axis, cuts, name = (call.attributes[key] for key in ("axis", "cuts", "name"))
    combine = SCANS[name].combine
    parts = [
        (out.narrow(axis, local_number(call.tile[axis], number), 1), segment)
        for number, _, segment in segment_views(x, call.tiles[0][axis], axis, cuts)
    ]

    def run() -> None:
        out.fill_(int(name == "prod"))
        for target, segment in parts:
            for rows, start, count in _blocks(segment, axis):
                block = _summable(segment[rows].narrow(axis, start, count), out)
                total = getattr(block, name)(axis, keepdim=True, dtype=_block_type(block, out))
                combine(target[rows], total, out=target[rows])

    return run


def _block_type(x: torch.Tensor, out: torch.Tensor) -> torch.dtype:
    """Return the type in which a block is summed: for floating point, at least float32.

    float32 is many times faster than the wider type of the total; half types are too narrow.
    """
    import torch

    if not x.dtype.is_floating_point:
        return out.dtype
    return torch.promote_types(x.dtype, torch.float32)


def _blocks(x: torch.Tensor, axis: int) -> Iterator[tuple[slice, int, int]]:
    """Yield the parts of a tensor that fit into the cache.

    A part is a slice of the first dimension, and the first index and count along the axis.
    """
    if not x.numel():
        return
    extent, rows = x.shape[axis], 1 if axis == 0 else x.shape[0]
    cell = size_of(x.shape) // (extent * rows) * x.itemsize  # bytes per row and index of the axis
    height = max(1, min(rows, BLOCK_BYTES // (cell * extent)))
    width = max(1, min(extent, BLOCK_BYTES // (cell * height)))
    for top in range(0, rows, height):
        block_rows = slice(None) if axis == 0 else slice(top, top + height)
        for start in range(0, extent, width):
            yield block_rows, start, min(width, extent - start)


def _summable(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """Return x, converted to the type of `out` if torch cannot add x's type."""
    return x.to(out.dtype) if is_numpy_only(x) else x


def _totals_reference(x: Any, *, axis: int, cuts: Cuts, name: str) -> Any:
    function = np.sum if name == "sum" else np.prod
    segments = [x.take(range(a, b), axis) for a, b in pairwise(cuts)]
    return np.stack([function(segment, axis) for segment in segments], axis)


SEGMENT_TOTALS = Operation(  # the sum or product of each segment of an axis
    name="segment_totals",
    infer=_totals_infer,
    axes=axes_of_segments,
    reduction=None,
    vjp=no_gradient,
    kernel=_totals_kernel,
    native=None,
    reference=_totals_reference,
    flops=lambda node: float(node.inputs[0].size),
    derived_split=split_of_segments,
)


def _scan_infer(x: Node, totals: Node, *, axis: int, cuts: Cuts, name: str) -> tuple[Shape, DType]:
    needed = _totals_infer(x, axis=axis, cuts=cuts, name=name)
    if (totals.shape, totals.dtype) != needed:
        raise DTypeError(
            f"segment_scan: needs totals {needed}, was given {totals.shape} {totals.dtype}"
        )
    return x.shape, accumulator_dtype(x.dtype)


def _scan_axes(node: Node) -> str:
    """Give the result the operand's layout, which must be split between segments."""
    letters, axis = LETTERS[: node.ndim], node.attributes["axis"]
    totals = with_changed_letter(letters, axis, lambda _: ".")
    return f"{letters},{totals}->{with_changed_letter(letters, axis, str.upper)}"


def _split_between(node: Node, letter: str, split: Split, operand: int | None) -> Split | None:
    cuts = node.attributes["cuts"]
    return split_between_segments(split, cuts, cuts)


def _scan_kernel(call: KernelCall) -> BoundCall:
    import torch

    (x, totals), out = call.inputs, as_signed(call.out)
    axis, cuts, name = (call.attributes[key] for key in ("axis", "cuts", "name"))
    totals = as_signed(totals)
    sources = segment_views(x, call.tiles[0][axis], axis, cuts)
    targets = segment_views(out, call.tile[axis], axis, cuts)
    scan_totals = getattr(torch, SCANS[name].torch_name)

    def run() -> None:
        before = torch.roll(scan_totals(totals, axis), 1, axis)
        before.select(axis, 0).fill_(int(name == "prod"))
        for source, target in zip(sources, targets, strict=True):
            start = before.narrow(axis, source.number, 1)
            _scan(source.tensor, target.tensor, start, axis, SCANS[name])

    return run


def _scan(x: torch.Tensor, out: torch.Tensor, before: torch.Tensor, axis: int, scan: Scan) -> None:
    """Write the cumulative sums of a segment, starting with `before`.

    The carry from block to block keeps the wider type of `before`.
    """
    import torch

    run, combine = getattr(torch, scan.torch_name), scan.combine
    carry = before
    for rows, start, count in _blocks(x, axis):
        if start == 0:
            carry = before[rows]
        target = out[rows].narrow(axis, start, count)
        run(_summable(x[rows].narrow(axis, start, count), out), axis, dtype=out.dtype, out=target)
        following = combine(carry, target.narrow(axis, count - 1, 1))
        combine(target, carry.to(out.dtype), out=target)
        carry = following


def _scan_reference(x: Any, totals: Any, *, axis: int, cuts: Cuts, name: str) -> Any:
    scan = SCANS[name]
    before = scan.numpy(totals, axis)
    parts = []
    for number, (start, stop) in enumerate(pairwise(cuts)):
        part = scan.numpy(x.take(range(start, stop), axis), axis)
        if number:
            part = scan.numpy_combine(part, before.take([number - 1], axis))
        parts.append(part)
    return np.concatenate(parts, axis).astype(scan.numpy(x[:0]).dtype)


SEGMENT_SCAN = Operation(  # scans of segments that start with the total of the segments before
    name="segment_scan",
    infer=_scan_infer,
    axes=_scan_axes,
    reduction=None,
    vjp=no_gradient,
    kernel=_scan_kernel,
    native=None,
    reference=_scan_reference,
    flops=lambda node: 2.0 * node.size,
    derived_split=_split_between,
)

OPERATIONS = {
    record.name: record
    for record in (CUMULATIVE_SUM, CUMULATIVE_PROD, SEGMENT_TOTALS, SEGMENT_SCAN)
}
