"""Access along one axis with an index for each element: `take_along` and `scatter_along`.

Each is the gradient of the other. Array and indices share all dimensions except the axis. If the
axis is split, each worker contributes, or adds to, the elements that it stores.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from magmath.core.dtypes import DType, compute_dtype
from magmath.core.shapes import with_extent
from magmath.core.type_aliases import BoundCall
from magmath.errors import ShapeError
from magmath.graph import KernelCall, Node, Operation, Shape, apply
from magmath.graph.operation import Gradients, OperandCheck
from magmath.ops.elementwise import astype
from magmath.ops.index_letters import LETTERS
from magmath.ops.indexing.gather_scatter import (
    MultiAxisLocator,
    check_indices,
    unindexed,
)
from magmath.ops.indexing.local_index import checked_indices, index_check, neutral
from magmath.ops.indexing.numpy_indexing import with_checked_indices
from magmath.ops.indexing.request_reply import (
    IndexedAccess,
    bind_add,
    bind_read,
    collective_access,
    positions_along,
)
from magmath.ops.kernel_binding import as_signed, is_numpy_only
from magmath.ops.shared_fields import no_flops


def _along_letters(ndim: int, axis: int) -> tuple[str, str]:
    """Return the letters of the array and of the indices, which have another one for the axis."""
    letters = LETTERS[:ndim]
    return letters, letters[:axis] + LETTERS[ndim] + letters[axis + 1 :]


def _check_along(name: str, x: Node, indices: Node, axis: int, compared: Shape) -> None:
    check_indices(name, indices)
    if unindexed(compared, (axis,)) != unindexed(indices.shape, (axis,)):
        raise ShapeError(
            f"{name}: needs shapes that are equal except along axis {axis}, was given {compared} "
            f"and indices {indices.shape}"
            "; broadcast or slice one of them"
        )


def _access(array: Shape, indices: Shape, axis: int) -> IndexedAccess:
    """Return the equivalent access with indices for all axes.

    Along the other axes, an element's own position is its index.
    """
    return IndexedAccess(array, (axis, *unindexed(tuple(range(len(array))), (axis,))), indices, 0)


def _take_along_infer(x: Node, indices: Node, *, axis: int) -> tuple[Shape, DType]:
    _check_along("take_along_axis", x, indices, axis, x.shape)
    return indices.shape, x.dtype


def _take_along_axes(node: Node) -> str:
    array, picked = _along_letters(node.ndim, node.attributes["axis"])
    return f"{array},{picked}->{picked}"


def _take_along_kernel(call: KernelCall) -> BoundCall:
    import torch

    (x, indices), out, axis = call.inputs, as_signed(call.out), call.attributes["axis"]
    locator = MultiAxisLocator(call, (axis,), call.shapes[0], call.tiles[0], reads=True)
    x, fill = as_signed(x), neutral(out)

    def run() -> None:
        (local,), here = locator([indices])
        if locator.is_empty:
            out.fill_(fill)
            return
        torch.gather(x, axis, local, out=out)
        if here is not None:
            out.masked_fill_(~here, fill)

    return run


def _wrapped(indices: Any, extent: int) -> Any:
    return np.where(indices < 0, indices.astype(np.int64) + extent, indices.astype(np.int64))


def _take_along_reference(x: Any, indices: Any, *, axis: int) -> Any:
    return np.take_along_axis(x, _wrapped(indices, x.shape[axis]), axis)


def _numpy_take_along(node: Node) -> Callable[..., object] | None:
    """Return NumPy's function."""
    (x, indices), axis = node.inputs, node.attributes["axis"]

    def take_into(x: Any, indices: Any, out: Any) -> None:
        out[...] = np.take_along_axis(x, indices, axis)

    return with_checked_indices(take_into, [x.shape[axis]], (axis,), [indices])


def _take_along_vjp(node: Node, g: Node) -> Gradients:
    x, indices = node.inputs
    axis = node.attributes["axis"]
    return scatter_along(g, indices, axis, x.shape[axis]), None


def _check_position(node: Node, _: int) -> OperandCheck:
    axis = node.attributes["axis"]
    return index_check(axis, node.inputs[0].shape[axis])


TAKE_ALONG = Operation(
    name="take_along",
    infer=_take_along_infer,
    axes=_take_along_axes,
    reduction="sum",
    vjp=_take_along_vjp,
    kernel=_take_along_kernel,
    native=None,
    reference=_take_along_reference,
    numpy_function=_numpy_take_along,
    flops=no_flops,
    checked=checked_indices(1, _check_position),
    reads_subset=True,
    collective=collective_access(
        lambda shapes, shape, a: _access(shapes[0], shape, a["axis"]),
        ("array",),
        "picked",
        lambda call, access: bind_read(call, access, positions_along(call, access)),
    ),
)


def _scatter_along_infer(x: Node, indices: Node, *, axis: int, extent: int) -> tuple[Shape, DType]:
    _check_along("scatter_along", x, indices, axis, x.shape)
    return with_extent(x.shape, axis, extent), x.dtype


def _scatter_along_axes(node: Node) -> str:
    array, picked = _along_letters(node.ndim, node.attributes["axis"])
    return f"{picked},{picked}->{array}"


def _scatter_along_kernel(call: KernelCall) -> BoundCall:
    (x, indices), out, axis = call.inputs, call.out, call.attributes["axis"]
    locator = MultiAxisLocator(call, (axis,), call.shape, call.tile)

    def run() -> None:
        out.zero_()
        if x.numel() == 0:
            return
        (local,), here = locator([indices])
        values = x if here is None else as_signed(x).masked_fill(~here, 0).view(x.dtype)
        if is_numpy_only(out):
            np.add.at(out.numpy(), _positions_along(local.numpy(), axis), values.numpy())
        else:
            out.scatter_add_(axis, local, values)

    return run


def _positions_along(indices: Any, axis: int) -> tuple[Any, ...]:
    grid = list(np.indices(indices.shape, sparse=True))
    grid[axis] = indices
    return tuple(grid)


def _scatter_along_reference(x: Any, indices: Any, *, axis: int, extent: int) -> Any:
    out = np.zeros(with_extent(x.shape, axis, extent), x.dtype)
    np.add.at(out, _positions_along(_wrapped(indices, extent), axis), x)
    return out


def _scatter_along_vjp(node: Node, g: Node) -> Gradients:
    return apply(TAKE_ALONG, g, node.inputs[1], axis=node.attributes["axis"]), None


def _check_place(node: Node, _: int) -> OperandCheck:
    return index_check(node.attributes["axis"], node.attributes["extent"])


SCATTER_ALONG = Operation(
    name="scatter_along",
    infer=_scatter_along_infer,
    axes=_scatter_along_axes,
    reduction="sum",
    vjp=_scatter_along_vjp,
    kernel=_scatter_along_kernel,
    native=None,
    reference=_scatter_along_reference,
    flops=no_flops,
    checked=checked_indices(1, _check_place),
    collective=collective_access(
        lambda shapes, shape, a: _access(shape, shapes[1], a["axis"]),
        ("picked",),
        "array",
        lambda call, access: bind_add(call, access, positions_along(call, access)),
        is_worker_independent=False,
    ),
)


def scatter_along(x: Node, indices: Node, axis: int, extent: int) -> Node:
    """Return an array of zeros to which elements are added by their indices along an axis.

    Numbers of 16 bits are added in float32, as by `scatter_add`.
    """
    values = astype(x, compute_dtype(x.dtype))
    return astype(apply(SCATTER_ALONG, values, indices, axis=axis, extent=extent), x.dtype)


OPERATIONS = {record.name: record for record in (TAKE_ALONG, SCATTER_ALONG)}
