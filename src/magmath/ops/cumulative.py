"""Cumulative sums, products and extrema along an axis.

If the axis is split, each worker computes the totals of its segments, all workers receive the
totals, which are few numbers, and each worker starts the running results of a segment with the
total of the segments before it (Blelloch 1990).
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
    uint16,
    uint32,
    uint64,
)
from magmath.core.shapes import size_of, with_extent
from magmath.core.type_aliases import BoundCall
from magmath.errors import DTypeError
from magmath.graph import KernelCall, Node, Operation, Shape, apply
from magmath.graph.operation import Gradients, Kernel, Vjp
from magmath.layout import Layout, Split
from magmath.ops import elementwise as e
from magmath.ops.axis_segments import (
    Cuts,
    axes_of_segments,
    cuts_along,
    local_number,
    segment_views,
    split_between_segments,
    split_of_segments,
)
from magmath.ops.creation import iota
from magmath.ops.index_letters import LETTERS, one_axis_whole, with_changed_letter
from magmath.ops.indexing.along_axis import scatter_along
from magmath.ops.kernel_binding import (
    add_tensors,
    as_signed,
    by_reference,
    is_numpy_only,
    reference_call,
)
from magmath.ops.leaves import constant
from magmath.ops.product_gradients import gradient_of_running_product
from magmath.ops.shared_fields import vjp_after_gradients
from magmath.ops.slicing import reversed_along
from magmath.ops.type_rules import require_kind

if TYPE_CHECKING:
    import torch

BLOCK_BYTES = 1 << 18  # part of a segment per step, so that running results are in the cache


@final
class CumulativeFunction(NamedTuple):
    """A cumulative function, by its names in torch and NumPy.

    torch_name     torch's name of the cumulative function
    total_name     torch's name of the reduction
    combine_name   torch's name of the function of two operands
    numpy          NumPy's cumulative function
    numpy_combine  NumPy's function of two operands
    """

    torch_name: str
    total_name: str
    combine_name: str
    numpy: Callable[..., Any]
    numpy_combine: np.ufunc

    @property
    def is_extremum(self) -> bool:
        """True for maxima and minima, which have the type of their operand."""
        return self.numpy_combine in (np.maximum, np.minimum)

    def run(self, x: torch.Tensor, axis: int, out: torch.Tensor) -> None:
        """Write the running results of x."""
        import torch

        function = getattr(torch, self.torch_name)
        if self.is_extremum:
            out.copy_(function(x, axis).values)
        else:
            function(x, axis, dtype=out.dtype, out=out)

    def total(self, x: torch.Tensor, axis: int, out: torch.Tensor) -> torch.Tensor:
        """Return the total of a block along an axis, in the type in which it is combined with
        `out`."""
        function = getattr(x, self.total_name)
        if self.is_extremum:
            return function(axis, keepdim=True)  # type: ignore[no-any-return]
        if self.numpy_combine is np.add:
            total = function(axis, keepdim=True, dtype=_block_type(x, out))
            if total.dtype == out.dtype or total.isfinite().all():
                return total  # type: ignore[no-any-return]
        return function(axis, keepdim=True, dtype=out.dtype)  # type: ignore[no-any-return]

    def combine(
        self, x: torch.Tensor, y: torch.Tensor, out: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the combination of two tensors."""
        import torch

        if self.numpy_combine is np.add:
            return add_tensors(x, y, out=out)
        return getattr(torch, self.combine_name)(x, y, out=out)  # type: ignore[no-any-return]

    def identity(self, dtype: torch.dtype) -> Any:
        """Return the number that changes nothing."""
        if not self.is_extremum:
            return int(self.numpy_combine is np.multiply)
        is_maximum = self.numpy_combine is np.maximum
        if dtype.is_floating_point:
            return -np.inf if is_maximum else np.inf
        return _integer_limits(dtype)[0 if is_maximum else 1]


def _integer_limits(dtype: torch.dtype) -> tuple[int, int]:
    """Return the least and the largest number of a type of integers or truth values."""
    import torch

    if dtype is torch.bool:
        return 0, 1
    limits = torch.iinfo(dtype)
    return limits.min, limits.max


def _in_float32(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return NumPy's function with running results in float32 for float16, as torch has them."""

    def in_float32(x: Any, axis: int | None = None) -> Any:
        is_half = x.dtype == np.float16
        return function(x, axis, np.float32).astype(x.dtype) if is_half else function(x, axis)

    return in_float32


CUMULATIVE_FUNCTIONS = {
    "sum": CumulativeFunction("cumsum", "sum", "add", _in_float32(np.cumsum), np.add),
    "prod": CumulativeFunction("cumprod", "prod", "mul", _in_float32(np.cumprod), np.multiply),
    "max": CumulativeFunction("cummax", "amax", "maximum", np.maximum.accumulate, np.maximum),
    "min": CumulativeFunction("cummin", "amin", "minimum", np.minimum.accumulate, np.minimum),
}


def _result_dtype(name: str, dtype: DType) -> DType:
    """Return the type of the results. Raises DTypeError for types that it does not take."""
    if CUMULATIVE_FUNCTIONS[name].is_extremum:
        require_kind(f"cumulative_{name}", "ordered", dtype)
        return dtype
    require_kind("cumulative_sum/cumulative_prod", "numeric", dtype)
    return accumulator_dtype(dtype)


def _cumulative_infer(name: str, x: Node, *, axis: int) -> tuple[Shape, DType]:
    return x.shape, _result_dtype(name, x.dtype)


def _cumulative_kernel(name: str) -> Kernel:
    function = CUMULATIVE_FUNCTIONS[name]

    def bind(call: KernelCall) -> BoundCall:
        import torch

        (x,), out, axis = call.inputs, call.out, call.attributes["axis"]
        if is_numpy_only(x, out):
            return reference_call(call, function.numpy)
        if function.is_extremum and not x.is_cuda and x.dtype is not torch.bfloat16:
            # torch computes the positions too, which takes several times as long.
            return partial(function.numpy, x.numpy(), axis, None, out.numpy())
        return partial(function.run, x, axis, out)

    return bind


def _cumulative_decompositions(name: str, node: Node, layouts: Sequence[Layout]) -> Sequence[Node]:
    """Return the results by segments, whose totals are computed first, if the axis is split."""
    (x,), axis = node.inputs, node.attributes["axis"]
    cuts = cuts_along(layouts[0], axis)
    if cuts is None or (CUMULATIVE_FUNCTIONS[name].is_extremum and x.dtype in _UNORDERED):
        return ()
    totals = apply(SEGMENT_TOTALS, x, axis=axis, cuts=cuts, name=name)
    return (apply(SEGMENT_CUMULATIVE, x, totals, axis=axis, cuts=cuts, name=name),)


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


def _cumulative_extremum_vjp(node: Node, g: Node) -> Gradients:
    """Add the cotangents of equal results to that of the last of equal elements, as PyTorch."""
    (x,), axis = node.inputs, node.attributes["axis"]
    number = iota(x.shape, axis)
    reached = e.where(e.call("equal", x, node), number, constant(0, number.dtype))
    last = apply(CUMULATIVE_MAX, reached, axis=axis)
    return (scatter_along(g, last, axis, x.shape[axis]),)


def _cumulative(name: str, vjp: Vjp) -> Operation:
    return Operation(
        name=f"cumulative_{name}",
        infer=partial(_cumulative_infer, name),
        axes=one_axis_whole,
        reduction=None,
        vjp=vjp,
        kernel=_cumulative_kernel(name),
        native=None,
        reference=CUMULATIVE_FUNCTIONS[name].numpy,
        numpy_function=by_reference,
        flops=lambda node: float(node.size),
        decompositions=partial(_cumulative_decompositions, name),
    )


CUMULATIVE_SUM = _cumulative("sum", _cumulative_sum_vjp)
CUMULATIVE_PROD = _cumulative("prod", _cumulative_prod_vjp)
CUMULATIVE_MAX = _cumulative("max", _cumulative_extremum_vjp)
CUMULATIVE_MIN = _cumulative("min", _cumulative_extremum_vjp)


# by segments --------------------------------------------------------------------------------------

_UNORDERED = (uint16, uint32, uint64)
"""Types that kernels of segments compute as signed ones, which have another order."""
_WIDE = dict.fromkeys((float16, bfloat16, float32), float64) | {complex64: complex128}


def long_sum_dtype(dtype: DType) -> DType:
    """Return the type in which long sums of `dtype` accumulate without visible rounding errors."""
    return _WIDE.get(dtype, accumulator_dtype(dtype))


def _totals_infer(x: Node, *, axis: int, cuts: Cuts, name: str) -> tuple[Shape, DType]:
    dtype = _result_dtype(name, x.dtype)
    wide = dtype if CUMULATIVE_FUNCTIONS[name].is_extremum else long_sum_dtype(x.dtype)
    return with_extent(x.shape, axis, len(cuts) - 1), wide


def _totals_kernel(call: KernelCall) -> BoundCall:
    (x,), out = call.inputs, as_signed(call.out)
    axis, cuts, name = (call.attributes[key] for key in ("axis", "cuts", "name"))
    function = CUMULATIVE_FUNCTIONS[name]
    parts = [
        (out.narrow(axis, local_number(call.tile[axis], number), 1), segment)
        for number, _, segment in segment_views(x, call.tiles[0][axis], axis, cuts)
    ]

    def run() -> None:
        out.fill_(function.identity(out.dtype))
        for target, segment in parts:
            for rows, start, count in _blocks(segment, axis):
                block = _summable(segment[rows].narrow(axis, start, count), out)
                function.combine(target[rows], function.total(block, axis, out), out=target[rows])

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
    reduce = CUMULATIVE_FUNCTIONS[name].numpy_combine.reduce
    segments = [x.take(range(a, b), axis) for a, b in pairwise(cuts)]
    return np.stack([reduce(segment, axis) for segment in segments], axis)


SEGMENT_TOTALS = Operation(  # the total of each segment of an axis: its sum, product or extremum
    name="segment_totals",
    infer=_totals_infer,
    axes=axes_of_segments,
    reduction=None,
    vjp=vjp_after_gradients,
    kernel=_totals_kernel,
    native=None,
    reference=_totals_reference,
    flops=lambda node: float(node.inputs[0].size),
    derived_split=split_of_segments,
)


def _segment_infer(
    x: Node, totals: Node, *, axis: int, cuts: Cuts, name: str
) -> tuple[Shape, DType]:
    needed = _totals_infer(x, axis=axis, cuts=cuts, name=name)
    if (totals.shape, totals.dtype) != needed:
        raise DTypeError(
            f"segment_cumulative: needs totals {needed}, was given {totals.shape} {totals.dtype}"
        )
    return x.shape, _result_dtype(name, x.dtype)


def _segment_axes(node: Node) -> str:
    """Give the result the operand's layout, which must be split between segments."""
    letters, axis = LETTERS[: node.ndim], node.attributes["axis"]
    totals = with_changed_letter(letters, axis, lambda _: ".")
    return f"{letters},{totals}->{with_changed_letter(letters, axis, str.upper)}"


def _split_between(node: Node, letter: str, split: Split, operand: int | None) -> Split | None:
    cuts = node.attributes["cuts"]
    return split_between_segments(split, cuts, cuts)


def _segment_kernel(call: KernelCall) -> BoundCall:
    import torch

    (x, totals), out = call.inputs, as_signed(call.out)
    axis, cuts, name = (call.attributes[key] for key in ("axis", "cuts", "name"))
    totals = as_signed(totals)
    sources = segment_views(x, call.tiles[0][axis], axis, cuts)
    targets = segment_views(out, call.tile[axis], axis, cuts)
    function = CUMULATIVE_FUNCTIONS[name]

    def run() -> None:
        totals_before = torch.empty_like(totals)
        function.run(totals, axis, totals_before)
        before = torch.roll(totals_before, 1, axis)
        before.select(axis, 0).fill_(function.identity(before.dtype))
        for source, target in zip(sources, targets, strict=True):
            start = before.narrow(axis, source.number, 1)
            _write_segment(source.tensor, target.tensor, start, axis, function)

    return run


def _write_segment(
    x: torch.Tensor,
    out: torch.Tensor,
    before: torch.Tensor,
    axis: int,
    function: CumulativeFunction,
) -> None:
    """Write the running results of a segment, starting with `before`.

    They are computed in the wider type of `before`, as those of one worker: a product before the
    segment may underflow in the type of the result, and one within it overflow.
    """
    carry = before
    for rows, start, count in _blocks(x, axis):
        if start == 0:
            carry = before[rows]
        block = x[rows].narrow(axis, start, count).to(before.dtype, copy=True)
        first = block.narrow(axis, 0, 1)
        function.combine(carry, first, out=first)
        function.run(block, axis, block)
        out[rows].narrow(axis, start, count).copy_(block)
        carry = block.narrow(axis, count - 1, 1)


def _segment_reference(x: Any, totals: Any, *, axis: int, cuts: Cuts, name: str) -> Any:
    function = CUMULATIVE_FUNCTIONS[name]
    before = function.numpy(totals, axis)
    parts = []
    for number, (start, stop) in enumerate(pairwise(cuts)):
        part = function.numpy(x.take(range(start, stop), axis), axis)
        if number:
            part = function.numpy_combine(part, before.take([number - 1], axis))
        parts.append(part)
    return np.concatenate(parts, axis).astype(function.numpy(x[:0]).dtype)


SEGMENT_CUMULATIVE = Operation(  # starts each segment with the total of the segments before it
    name="segment_cumulative",
    infer=_segment_infer,
    axes=_segment_axes,
    reduction=None,
    vjp=vjp_after_gradients,
    kernel=_segment_kernel,
    native=None,
    reference=_segment_reference,
    flops=lambda node: 2.0 * node.size,
    derived_split=_split_between,
)

OPERATIONS = {
    record.name: record
    for record in (
        *(CUMULATIVE_SUM, CUMULATIVE_PROD, CUMULATIVE_MAX, CUMULATIVE_MIN),
        *(SEGMENT_TOTALS, SEGMENT_CUMULATIVE),
    )
}
