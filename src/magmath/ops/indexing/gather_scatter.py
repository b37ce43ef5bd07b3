"""Access to elements by arrays of integers: `take` reads, `put` replaces, `scatter_add` adds.

Several index arrays, one for each indexed axis, broadcast against each other; the dimensions of
their common shape are at position `at` of the picked elements. A negative index counts from the
end. If an indexed axis is split, each worker contributes (`take`) or changes (`put`, `scatter_add`)
the elements that it stores. If the indices are split too, the workers exchange requests and
elements (`ops/indexing/request_reply.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, final

import numpy as np

from magmath.codegen.emit import NativeCall, Writer, emit_failure
from magmath.core.dtypes import DType, compute_dtype, int64
from magmath.core.shapes import AxisNumbers, broadcast, size_of
from magmath.core.type_aliases import BoundCall
from magmath.errors import DTypeError, IndexingError, ShapeError
from magmath.graph import KernelCall, Node, Operation, Shape, apply
from magmath.graph.operation import Gradients, Line, OperandCheck
from magmath.ops.creation import full, iota
from magmath.ops.elementwise import astype, where
from magmath.ops.elementwise import call as pointwise
from magmath.ops.index_letters import LETTERS, aligned_letters
from magmath.ops.indexing.local_index import (
    Locator,
    checked_indices,
    conjunction,
    front,
    index_check,
    index_out_of_range,
    neutral,
)
from magmath.ops.indexing.numpy_indexing import numpy_scatter, numpy_take
from magmath.ops.indexing.request_reply import (
    IndexedAccess,
    bind_add,
    bind_read,
    bind_replace,
    collective_access,
)
from magmath.ops.kernel_binding import as_parts, as_signed, is_numpy_only
from magmath.ops.leaves import constant
from magmath.ops.manipulation import reshape
from magmath.ops.shared_fields import is_always_exact, no_flops
from magmath.ops.slicing import check_written, keep

if TYPE_CHECKING:
    import torch


def check_indices(name: str, *indices: Node) -> None:
    """Raise DTypeError unless the indices are integers."""
    for index in indices:
        if not index.dtype.is_integer:
            raise DTypeError(
                f"{name}: indices must be integers, got {index.dtype}; convert them with "
                f"mm.astype(x, mm.int64)"
            )


def _picked_shape(other_extents: Shape, common: Shape, at: int) -> Shape:
    """Return the shape of the picked elements: `common` inserted at `at` into the extents of the
    other dimensions."""
    return (*other_extents[:at], *common, *other_extents[at:])


def unindexed(whole: Sequence[Any], axes: AxisNumbers) -> tuple[Any, ...]:
    """Return the items of `whole` for the dimensions that are not indexed."""
    return tuple(item for d, item in enumerate(whole) if d not in axes)


def common_shape(*indices: Shape) -> Shape:
    """Return the common shape of indices of these shapes. Raises IndexError, as NumPy, if they do
    not broadcast."""
    try:
        return broadcast("indexing", *indices)
    except ShapeError as error:
        raise IndexingError(str(error)) from None


def _index_letters(ndim: int, indices: Sequence[Node]) -> tuple[str, list[str]]:
    """Return the letters of the indices' common shape, and of each index array."""
    common = common_shape(*[index.shape for index in indices])
    letters = LETTERS[ndim : ndim + len(common)]
    return letters, [aligned_letters(letters, common, index.shape) for index in indices]


def _picked_letters(ndim: int, letters: str, axes: AxisNumbers, at: int) -> str:
    other_letters = "".join(unindexed(LETTERS[:ndim], axes))
    return other_letters[:at] + letters + other_letters[at:]


@final
class MultiAxisLocator:
    """Converts several index arrays, each along one axis of an array, to local positions.

    On a GPU, indices of elements that are only read are checked when the program has run.
    """

    def __init__(
        self, call: KernelCall, axes: AxisNumbers, shape: Shape, tile: Any, *, reads: bool = False
    ) -> None:
        device = call.out.device
        on_device = reads and device.type != "cpu"
        self._locators = [
            Locator(
                axis, shape[axis], tile[axis], device,
                _failure_record(call, axis, shape[axis]) if on_device else None,
            )
            for axis in axes
        ]  # fmt: skip
        self.is_empty = any(tile[axis].size == 0 for axis in axes)
        self.is_whole = all(locator.is_whole for locator in self._locators)

    def __call__(
        self, indices: Sequence[torch.Tensor]
    ) -> tuple[tuple[torch.Tensor, ...], torch.Tensor | None]:
        """Return valid local indices, and a mask of the elements that are local (None: all)."""
        located = [
            locator(locator.wrapped(index))
            for locator, index in zip(self._locators, indices, strict=True)
        ]
        here = conjunction(*[indices_of_axis.here for indices_of_axis in located])
        return tuple([indices_of_axis.local for indices_of_axis in located]), here


def _failure_record(call: KernelCall, axis: int, extent: int) -> torch.Tensor | None:
    """Return the record for indices along an axis that are out of range, if there may be one."""
    return call.context.failure_record(partial(index_out_of_range, axis=axis, extent=extent), axis)


def masked_fill(
    values: torch.Tensor, here: torch.Tensor | None, dims: int, fill: float
) -> torch.Tensor:
    """Return values with `fill` where the mask `here` of the first `dims` dimensions is false."""
    if here is None:
        return values
    mask = here.expand(values.shape[:dims])
    elsewhere = ~mask.reshape(mask.shape + (1,) * (values.ndim - dims))
    return as_signed(values).masked_fill(elsewhere, fill).view(values.dtype)


# take -----------------------------------------------------------------------------------------


def _take_infer(x: Node, *indices: Node, axes: AxisNumbers, at: int) -> tuple[Shape, DType]:
    check_indices("take", *indices)
    common = common_shape(*[index.shape for index in indices])
    return _picked_shape(unindexed(x.shape, axes), common, at), x.dtype


def _take_axes(node: Node) -> str:
    x, *indices = node.inputs
    axes, at = node.attributes["axes"], node.attributes["at"]
    letters, index_letters = _index_letters(x.ndim, indices)
    picked = _picked_letters(x.ndim, letters, axes, at)
    return f"{','.join([LETTERS[: x.ndim], *index_letters])}->{picked}"


def _take_kernel(call: KernelCall) -> BoundCall:
    (x, *indices), out = call.inputs, as_signed(call.out)
    axes, at, x = call.attributes["axes"], call.attributes["at"], as_signed(x)
    locator = MultiAxisLocator(call, axes, call.shapes[0], call.tiles[0], reads=True)
    if locator.is_whole and is_row_choice(axes, at, indices[0].ndim) and x.device.type == "cpu":
        return _select_call(x, indices[0], axes[0], out, locator)
    dims = out.ndim - x.ndim + len(axes)
    source, target = front(x, axes), front(out, range(at, at + dims))
    fill = neutral(out)

    def run() -> None:
        local, here = locator(indices)
        if locator.is_empty:
            out.fill_(fill)
        else:
            target.copy_(masked_fill(source[local], here, dims, fill))

    return run


def is_row_choice(axes: AxisNumbers, at: int, dims: int) -> bool:
    """Return True for the common case: one list of positions along one axis, in the axis's
    place."""
    return axes == (at,) and dims == 1


def _select_call(
    x: torch.Tensor, index: torch.Tensor, axis: int, out: torch.Tensor, locator: MultiAxisLocator
) -> BoundCall:
    """Bind the selection along one axis by a list of positions, which torch checks."""
    import torch

    wide = index.dtype in (torch.int32, torch.int64)

    def run() -> None:
        try:
            torch.index_select(x, axis, index if wide else index.long(), out=out)
        except (IndexError, RuntimeError):  # a negative index, or one out of range
            (local,), _ = locator([index])
            torch.index_select(x, axis, local, out=out)

    return run


def _take_reference(x: Any, *indices: Any, axes: AxisNumbers, at: int) -> Any:
    picked = np.moveaxis(x, axes, range(len(axes)))[tuple(np.asarray(i, np.int64) for i in indices)]
    dims = np.broadcast(*indices).ndim
    return np.moveaxis(picked, range(dims), range(at, at + dims))


def _take_vjp(node: Node, g: Node) -> Gradients:
    x, *indices = node.inputs
    extents = tuple(x.shape[axis] for axis in node.attributes["axes"])
    added = scatter_add(g, indices, **node.attributes, extents=extents)
    return added, *(None for _ in indices)


def _emit_take(w: Writer, call: NativeCall) -> bool:
    """Write native code that copies elements of one axis; return False for other forms."""
    x, *indices = call.inputs
    axes, at = call.attributes["axes"], call.attributes["at"]
    axis = axes[0]
    whole = x.shape[axis] == call.shapes[0][axis]
    if not (whole and x.shape[axis] and is_row_choice(axes, at, len(indices[0].shape))):
        return False
    position = w.name("access")
    with w.loops(call.out.shape[: axis + 1]) as outer:
        w.line(f"{position} = np.int64({indices[0].at([outer[axis]])})")
        w.line(f"if {position} < 0:")
        w.line(f"    {position} += {x.shape[axis]}")
        outside = f"{position} < 0 or {position} >= {x.shape[axis]}"
        error = partial(index_out_of_range, axis=axis, extent=x.shape[axis])
        emit_failure(w, call, outside, indices[0].at([outer[axis]]), error)
        w.line(f"    {position} = 0")
        with w.loops(call.out.shape[axis + 1 :]) as inner:
            target = call.out.at([*outer, *inner])
            w.line(f"{target} = {x.at([*outer[:axis], position, *inner])}")
    return True


TAKE = Operation(
    name="take",
    infer=_take_infer,
    axes=_take_axes,
    reduction="sum",
    vjp=_take_vjp,
    kernel=_take_kernel,
    native=_emit_take,
    reference=_take_reference,
    numpy_function=numpy_take,
    flops=no_flops,
    checked=checked_indices(1),
    has_same_bits=is_always_exact,
    reads_subset=True,
    collective=collective_access(
        lambda shapes, shape, a: IndexedAccess(
            shapes[0], a["axes"], common_shape(*shapes[1:]), a["at"]
        ),
        ("array",),
        "picked",
        lambda call, access: bind_read(call, access, call.inputs[1:]),
    ),
)


def take(x: Node, indices: Node, axis: int) -> Node:
    """Return elements of one axis by position."""
    return apply(TAKE, x, indices, axes=(axis,), at=axis)


# scatter_add ------------------------------------------------------------------------------------


def scatter_add(
    x: Node,
    indices: Sequence[Node],
    *,
    axes: AxisNumbers,
    at: int,
    extents: Shape,
    line: Line = None,
) -> Node:
    """Return an array of zeros to which elements are added by position.

    Numbers of 16 bits are added in float32, as by `sum`: in bfloat16 a sum of ones stays at 256.
    """
    values = astype(x, compute_dtype(x.dtype))
    sums = apply(SCATTER_ADD, values, *indices, axes=axes, at=at, extents=extents, line=line)
    return astype(sums, x.dtype)


def _unpicked_shape(x: Shape, dims: int, axes: AxisNumbers, at: int, extents: Shape) -> Shape:
    """Return the shape of the array from which `x` was picked."""
    other_extents = iter((*x[:at], *x[at + dims :]))
    extent_of = dict(zip(axes, extents, strict=True))
    return tuple(
        extent_of[d] if d in extent_of else next(other_extents)
        for d in range(len(x) - dims + len(axes))
    )


def _scatter_infer(
    x: Node, *indices: Node, axes: AxisNumbers, at: int, extents: Shape
) -> tuple[Shape, DType]:
    check_indices("scatter_add", *indices)
    dims = len(common_shape(*[index.shape for index in indices]))
    return _unpicked_shape(x.shape, dims, axes, at, extents), x.dtype


def _scatter_axes(node: Node) -> str:
    indices, attributes = node.inputs[1:], node.attributes
    letters, index_letters = _index_letters(node.ndim, indices)
    picked = _picked_letters(node.ndim, letters, attributes["axes"], attributes["at"])
    return f"{','.join([picked, *index_letters])}->{LETTERS[: node.ndim]}"


def _scatter_kernel(call: KernelCall) -> BoundCall:
    (x, *indices), out = call.inputs, call.out
    axes, at = call.attributes["axes"], call.attributes["at"]
    locator = MultiAxisLocator(call, axes, call.shape, call.tile)
    dims = x.ndim - out.ndim + len(axes)
    source, target = front(x, range(at, at + dims)), front(out, axes)

    def run() -> None:
        out.zero_()
        if source.numel():
            local, here = locator(indices)
            _add_at(target, local, masked_fill(source, here, dims, 0))

    return run


def _add_at(target: torch.Tensor, indices: tuple[torch.Tensor, ...], values: torch.Tensor) -> None:
    """Add values at indices of the first dimensions, in order, so that sums are reproducible."""

    if is_numpy_only(target):
        np.add.at(target.numpy(), tuple(i.numpy() for i in indices), values.numpy())
        return
    rows, row_shape = size_of(target.shape[: len(indices)]), target.shape[len(indices) :]
    flat = target.new_zeros((rows, *row_shape))
    places = linear_index(indices, target.shape[: len(indices)]).expand(
        values.shape[: values.ndim - len(row_shape)]
    )
    rows_of_values = as_parts(values.reshape(-1, *row_shape))
    as_parts(flat).index_add_(0, places.reshape(-1), rows_of_values)
    target.copy_(flat.view(target.shape))


def linear_index(indices: Sequence[torch.Tensor], shape: Sequence[int]) -> torch.Tensor:
    """Combine several indices into one index in C order."""
    linear, *further = indices
    for index, extent in zip(further, shape[1:], strict=True):
        linear = linear * extent + index
    return linear


def _scatter_reference(x: Any, *indices: Any, axes: AxisNumbers, at: int, extents: Shape) -> Any:
    dims = np.broadcast(*indices).ndim
    out = np.zeros(_unpicked_shape(x.shape, dims, axes, at, extents), x.dtype)
    places = tuple(np.asarray(i, np.int64) for i in indices)
    picked = np.moveaxis(x, range(at, at + dims), range(dims))
    np.add.at(np.moveaxis(out, axes, range(len(axes))), places, picked)
    return out


def _scatter_vjp(node: Node, g: Node) -> Gradients:
    _, *indices = node.inputs
    axes, at = node.attributes["axes"], node.attributes["at"]
    return apply(TAKE, g, *indices, axes=axes, at=at), *(None for _ in indices)


def _check_place(node: Node, number: int) -> OperandCheck:
    return index_check(node.attributes["axes"][number], node.attributes["extents"][number])


SCATTER_ADD = Operation(  # split indices give a pending sum
    name="scatter_add",
    infer=_scatter_infer,
    axes=_scatter_axes,
    reduction="sum",
    vjp=_scatter_vjp,
    kernel=_scatter_kernel,
    native=None,
    reference=_scatter_reference,
    numpy_function=numpy_scatter,
    flops=no_flops,
    checked=checked_indices(1, _check_place),
    collective=collective_access(
        lambda shapes, shape, a: IndexedAccess(
            shape, a["axes"], common_shape(*shapes[1:]), a["at"]
        ),
        ("picked",),
        "array",
        lambda call, access: bind_add(call, access, call.inputs[1:]),
        is_worker_independent=False,
    ),
)


# put ------------------------------------------------------------------------------------------


def _put_infer(
    x: Node, values: Node, *indices: Node, axes: AxisNumbers, at: int
) -> tuple[Shape, DType]:
    shape, _ = _take_infer(x, *indices, axes=axes, at=at)
    check_written("put", x, values, shape)
    return x.shape, x.dtype


def _put_axes(node: Node) -> str:
    x, values, *indices = node.inputs
    axes, at = node.attributes["axes"], node.attributes["at"]
    common = common_shape(*[index.shape for index in indices])
    shape = _picked_shape(unindexed(x.shape, axes), common, at)
    picked = aligned_letters(
        _picked_letters(x.ndim, "." * len(common), axes, at), shape, values.shape
    )
    index_letters = ["." * index.ndim for index in indices]
    letters = LETTERS[: x.ndim]
    return f"{','.join([letters, picked, *index_letters])}->{letters}"


def _put_kernel(call: KernelCall) -> BoundCall:
    (x, values, *indices), out = call.inputs, as_signed(call.out)
    axes, at, x = call.attributes["axes"], call.attributes["at"], as_signed(x)
    locator = MultiAxisLocator(call, axes, call.shape, call.tile)
    common = np.broadcast_shapes(*(tuple(index.shape) for index in indices))
    shape = _picked_shape(unindexed(tuple(out.shape), axes), common, at)
    source = front(as_signed(values).expand(shape), range(at, at + len(common)))
    target = front(out, axes)

    def run() -> None:
        keep(out, x)
        if source.numel() == 0:
            return
        local, here = locator(indices)
        rows = linear_index(local, target.shape[: len(local)]).expand(common).reshape(-1)
        chosen = _last_of_each(rows, None if here is None else here.expand(common).reshape(-1))
        places = tuple(index.expand(common).reshape(-1)[chosen] for index in local)
        target[places] = source.reshape(-1, *source.shape[len(common) :])[chosen]

    return run


def _last_of_each(rows: torch.Tensor, here: torch.Tensor | None) -> torch.Tensor:
    """Return the assignments that count: the last one to each row, as in NumPy."""
    import torch

    ordered, order = torch.sort(rows if here is None else rows.where(here, -1), stable=True)
    last = ordered >= 0
    last[:-1] &= ordered[1:] != ordered[:-1]
    return order[last]


def _put_reference(x: Any, values: Any, *indices: Any, axes: AxisNumbers, at: int) -> Any:
    out = np.array(x)
    places = tuple(np.asarray(i, np.int64) for i in indices)
    common = np.broadcast(*indices).shape
    picked = np.broadcast_to(values, _picked_shape(unindexed(x.shape, axes), common, at))
    moved = np.moveaxis(picked, range(at, at + len(common)), range(len(common)))
    np.moveaxis(out, axes, range(len(axes)))[places] = moved
    return out


def _put_vjp(node: Node, g: Node) -> Gradients:
    """Return a zero cotangent for values that later values overwrite.

    Each value writes its number with the same indices; it counts if its number remains.
    """
    x, _, *indices = node.inputs
    axes, at = node.attributes["axes"], node.attributes["at"]
    zero, common = constant(0, g.dtype), common_shape(*[index.shape for index in indices])
    x_cotangent = apply(PUT, g, zero, *indices, axes=axes, at=at)
    number = reshape(iota((size_of(common),), 0), common)
    marks = full(tuple(x.shape[axis] for axis in axes), constant(-1, int64))
    every: dict[str, Any] = {"axes": tuple(range(len(axes))), "at": 0}
    remaining = apply(TAKE, apply(PUT, marks, number, *indices, **every), *indices, **every)
    behind = x.ndim - len(axes) - at
    is_kept = reshape(pointwise("equal", remaining, number), (*common, *(1,) * behind))
    values_cotangent = where(is_kept, apply(TAKE, g, *indices, axes=axes, at=at), zero)
    return x_cotangent, values_cotangent, *(None for _ in indices)


PUT = Operation(
    name="put",
    infer=_put_infer,
    axes=_put_axes,
    reduction=None,
    vjp=_put_vjp,
    kernel=_put_kernel,
    native=None,
    reference=_put_reference,
    flops=no_flops,
    checked=checked_indices(2),
    overwrites_first=True,
    collective=collective_access(
        lambda shapes, shape, a: IndexedAccess(
            shape, a["axes"], common_shape(*shapes[2:]), a["at"]
        ),
        ("array", "picked"),
        "array",
        lambda call, access: bind_replace(call, access, call.inputs[2:]),
    ),
)


OPERATIONS = {record.name: record for record in (TAKE, SCATTER_ADD, PUT)}
