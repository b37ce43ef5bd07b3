"""Search of values in a sorted array.

The position of a value in a sorted array is the sum of its positions in the parts, so the sorted
array may be split; if the values are split too, workers request the positions from the owners of
the parts (`kernels/request_reply.py`).
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from magmath.core.dtypes import DType, int64
from magmath.core.request_batching import receive_buffer_bytes, requests_per_round
from magmath.core.shapes import size_of
from magmath.core.type_aliases import BoundCall
from magmath.errors import DTypeError, ShapeError
from magmath.graph import (
    CollectiveCall,
    CollectiveKernel,
    KernelCall,
    Node,
    NodeLayouts,
    Operation,
    Shape,
    Workspace,
)
from magmath.kernels.sort import sortable_keys
from magmath.layout import Layout, Mesh, even_cuts
from magmath.ops.index_letters import LETTERS
from magmath.ops.kernel_binding import as_signed, by_reference, is_numpy_only
from magmath.ops.shared_fields import no_gradient
from magmath.ops.type_rules import require_kind

if TYPE_CHECKING:
    import torch


POSITION_BYTES = 8
"""Bytes of a position."""
MIN_SORTED_VALUES = 1 << 16
"""Minimum number of sorted elements, and of values, for which the values are sorted first."""


def _search_infer(x: Node, values: Node, *, side: str) -> tuple[Shape, DType]:
    require_kind("searchsorted", "ordered", x.dtype)
    if x.dtype is not values.dtype:
        raise DTypeError(f"searchsorted: arrays have types {x.dtype} and {values.dtype}")
    if x.ndim != 1:
        raise ShapeError(
            f"searchsorted: needs a sorted array of 1 dimension, was given {x.shape}"
            "; flatten it, or search in one row at a time"
        )
    return values.shape, int64


def _search_axes(node: Node) -> str:
    letters = LETTERS[: node.ndim]
    return f"{LETTERS[node.ndim]},{letters}->{letters}"


def _search_kernel(call: KernelCall) -> BoundCall:
    (x, values), out, side = call.inputs, call.out, call.attributes["side"]
    return lambda: out.copy_(_search(x, values, side))


def _search(x: torch.Tensor, values: torch.Tensor, side: str) -> torch.Tensor:
    """Return the positions of values in a sorted tensor of one dimension."""
    import torch

    if is_numpy_only(x):
        return torch.from_numpy(_search_reference(x.numpy(), values.numpy(), side=side))
    if x.dtype == torch.bool:
        x, values = x.view(torch.uint8), values.view(torch.uint8)
    count = len(x)
    if x.is_floating_point() and count and x[-1].isnan():  # torch would compare with NaN
        count = bisect(range(count), False, key=lambda i: bool(x[i].isnan()))
    positions = _insertion_positions(x[:count].contiguous(), values.contiguous(), side)
    if count < len(x) and side == "right":
        positions.masked_fill_(values.isnan(), len(x))
    return positions


def _insertion_positions(x: torch.Tensor, values: torch.Tensor, side: str) -> torch.Tensor:
    """Return the positions of values in a sorted tensor without NaN, many of them in order."""
    import torch

    if min(x.numel(), values.numel()) < MIN_SORTED_VALUES or x.device.type != "cpu":
        return torch.searchsorted(x, values, side=side)
    return computed_in_order(values, lambda flat: _positions_of_sorted(x, flat, side))


def computed_in_order(
    values: torch.Tensor, compute: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    """Return the results of searches of values, which are sorted first, unless they are.

    Successive searches then read neighbouring elements, which are in the cache. This is faster even
    with the time for sorting.
    """
    import torch

    flat = values.reshape(-1)
    if bool((flat[1:] >= flat[:-1]).all()):
        return compute(flat).view(values.shape)
    order = torch.empty(flat.shape, dtype=torch.int64)
    sortable_keys.argsort(flat, order, axis=0, descending=False)
    in_order = compute(flat[order])
    results = torch.empty_like(in_order)
    results[order] = in_order
    return results.view(values.shape)


def _positions_of_sorted(x: torch.Tensor, values: torch.Tensor, side: str) -> torch.Tensor:
    """Return the positions of sorted values: NumPy begins each search where the last one ended."""
    import torch

    if x.dtype == torch.bfloat16:
        return torch.searchsorted(x, values, side=side)
    return torch.from_numpy(_search_reference(x.numpy(), values.numpy(), side=side))


def _search_reference(x: Any, values: Any, *, side: Any) -> Any:
    return np.asarray(np.searchsorted(x, values, side))


def _search_layouts(node: Node, mesh: Mesh) -> NodeLayouts | None:
    """Return an even split of the sorted array, and of the values along their longest dimension.

    Returns None if there are too few elements to split.
    """
    x, _ = node.inputs
    longest = max(node.shape, default=0)
    if x.size < mesh.size or longest < 2 or not node.size:
        return None
    values = Layout.even(node.shape, mesh, node.shape.index(longest))
    return NodeLayouts((Layout.even(x.shape, mesh, 0), values), values)


def _search_rounds(shape: Shape, itemsize: int, workers: int) -> tuple[int, int]:
    """Return the maximum number of values per worker, and the number that it sends per round."""
    longest = max(shape)
    share = size_of(shape) // longest * -(-longest // workers)
    return share, requests_per_round(share, itemsize + POSITION_BYTES, workers)


def _search_workspace(node: Node, workers: int) -> Workspace:
    itemsize = node.inputs[1].dtype.itemsize
    _, size = _search_rounds(node.shape, itemsize, workers)
    return Workspace(
        0, receive_buffer_bytes(size, (itemsize, POSITION_BYTES), POSITION_BYTES, workers)
    )


def _search_traffic(node: Node, workers: int) -> tuple[int, int]:
    """Return bytes and messages: values, positions, counts per round, and last elements."""
    itemsize = node.inputs[1].dtype.itemsize
    share, size = _search_rounds(node.shape, itemsize, workers)
    pairs, rounds = workers * (workers - 1), -(-share // size)
    nbytes = node.size * (itemsize + POSITION_BYTES) * (workers - 1) // workers
    return nbytes + (rounds * POSITION_BYTES + itemsize) * pairs, (3 * rounds + 1) * pairs


def _search_touched(node: Node, workers: int) -> int:
    itemsize = node.inputs[1].dtype.itemsize
    return 4 * _search_rounds(node.shape, itemsize, workers)[0] * (itemsize + POSITION_BYTES)


def _bind_collective_search(call: CollectiveCall) -> BoundCall:
    """Bind the collective search: a value is sent to the worker whose part contains its position.

    The last elements of all parts determine this worker.
    """
    import torch

    from magmath.kernels.request_reply import Rounds, Rows, fetch_answers

    (x, values), comm, side = call.inputs, call.comm, call.attributes["side"]
    sees_all = comm.shares_memory and x.device.type == "cpu"
    ranks = range(comm.size) if sees_all else (comm.rank,)
    parts = {rank: call.operand_on(0, rank) for rank in ranks}
    cuts = even_cuts(call.layouts[0].shape[0], comm.size)
    values_by_row, target = Rows(as_signed(values), values.ndim), Rows(call.out, values.ndim)
    share, size = _search_rounds(call.layout.shape, x.itemsize, comm.size)
    rounds = Rounds(comm, call.scratch, share, size)
    lasts = as_signed(x).new_empty(comm.size)

    def requests(part: slice) -> tuple[torch.Tensor, torch.Tensor]:
        part_values = values_by_row.part(part)
        return part_values, _search(lasts[:-1].view(x.dtype), part_values.view(x.dtype), side)

    def answer(rank: int, part_values: torch.Tensor, out: torch.Tensor) -> None:
        out.copy_(_search(parts[rank], part_values.view(x.dtype), side)).add_(cuts[rank])

    def run() -> None:
        if sees_all:
            comm.barrier()  # all workers have computed their tiles
            torch.cat([as_signed(part)[-1:] for part in parts.values()], out=lasts)
        else:
            comm.allgather(lasts, as_signed(x)[-1:].contiguous())
        fetch_answers(rounds, values_by_row.count, requests, answer, target, sees_all=sees_all)

    return run


SEARCHSORTED = Operation(  # positions in parts of a sorted array add up
    name="searchsorted",
    infer=_search_infer,
    axes=_search_axes,
    reduction="sum",
    vjp=no_gradient,
    kernel=_search_kernel,
    native=None,
    reference=_search_reference,
    numpy_function=by_reference,
    flops=lambda node: 20.0 * node.size * (node.inputs[0].size + 1).bit_length(),
    collective=CollectiveKernel(
        layouts=_search_layouts,
        kernel=_bind_collective_search,
        workspace=_search_workspace,
        traffic=_search_traffic,
        touched_bytes=_search_touched,
        is_all_to_all=True,
        reads_peers=True,
        is_worker_independent=True,
    ),
)

OPERATIONS = {SEARCHSORTED.name: SEARCHSORTED}
