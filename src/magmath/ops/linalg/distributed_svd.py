"""Singular values and eigenvalues of one matrix, computed by all workers collectively.

The shorter dimension is distributed block-cyclically: the columns of a matrix with more rows than
columns, otherwise the rows, which are the columns of the transposed matrix. For a Hermitian matrix
the workers read only the part left of the diagonal. Each worker gets some of the vectors, and the
values that belong to them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from magmath.core.svd_workspace import svd_workspace_bytes
from magmath.core.type_aliases import BoundCall
from magmath.graph import CollectiveCall, CollectiveKernel, Node, NodeLayouts, Shape, Workspace
from magmath.layout import Layout, Mesh
from magmath.ops.linalg.factorization_layouts import block_cyclic_layout

if TYPE_CHECKING:
    import torch

    from magmath.kernels.linalg.bidiagonalization import Columns

Bind = Callable[[CollectiveCall], BoundCall]


def collective_spectrum(bind: Bind, *, sums: int, passes: int) -> CollectiveKernel:
    """Return the collective kernel of a record with one matrix as operand.

    In each step the workers form `sums` sums over all workers, and read the remaining matrix
    `passes` times.
    """

    def traffic(node: Node, workers: int) -> tuple[int, int]:
        (a,) = node.inputs
        elements = sums * a.size * node.ndim  # reduction and, for vectors, back-transformation
        return elements * a.dtype.itemsize * (workers - 1), sums * min(a.shape)

    def touched(node: Node, workers: int) -> int:
        (a,) = node.inputs
        count, rows = sorted(a.shape)
        gone_through = passes * count**2 * (rows - count / 3) / 2 / workers
        return round((gone_through + 2 * sums * a.size) * a.dtype.itemsize)  # with the sums

    return CollectiveKernel(
        layouts=_layouts, kernel=bind, workspace=_workspace, traffic=traffic, touched_bytes=touched
    )


def _cyclic_dim(shape: Shape) -> int:
    return 0 if shape[0] <= shape[1] else 1


def _layouts(node: Node, mesh: Mesh) -> NodeLayouts | None:
    (a,) = node.inputs
    if a.ndim != 2 or not a.size:
        return None
    cyclic = block_cyclic_layout(a.shape, mesh, _cyclic_dim(a.shape))
    return NodeLayouts((cyclic,), Layout.even(node.shape, mesh, node.ndim - 1))


def _workspace(node: Node, workers: int) -> Workspace:
    (a,) = node.inputs
    count, rows = sorted(a.shape)
    columns_here = (
        block_cyclic_layout(a.shape, Mesh(workers), _cyclic_dim(a.shape)).max_local_size // rows
    )
    width = -(-node.shape[-1] // workers) if node.ndim == 2 else 0
    return Workspace(0, svd_workspace_bytes(columns_here, rows, count, width, a.dtype.itemsize))


# the kernels on one worker's tiles ----------------------------------------------------------------


def _columns(call: CollectiveCall) -> Columns:
    """Return a copy of this worker's part of the matrix, as columns."""
    import torch

    from magmath.kernels.linalg.bidiagonalization import Columns
    from magmath.kernels.scratch import Scratch

    (a,), (layout,) = call.inputs, call.layouts
    dim, tiles = _cyclic_dim(layout.shape), layout.tiles(call.comm.rank)
    stored_indices = tiles[0][dim].indices() if tiles else np.zeros(0, np.int64)
    scratch = Scratch(call.scratch)
    x = scratch.take(a.dtype, len(stored_indices), layout.shape[1 - dim])
    if len(stored_indices):
        x.copy_(a.mT if dim else a)
    return Columns(
        x, torch.from_numpy(stored_indices).to(a.device), layout.shape[dim], call.comm, scratch
    )


def _own_columns(call: CollectiveCall) -> tuple[torch.Tensor, slice]:
    """Return this worker's columns of the result, and their range."""
    tiles = call.layout.tiles(call.comm.rank)
    if not tiles or not len(tiles[0][-1]):
        return call.out.new_empty((*call.layout.shape[:-1], 0)), slice(0, 0)
    return call.out, slice(tiles[0][-1].start, tiles[0][-1].stop)


def _fill(out: torch.Tensor, values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> None:
    """Write values to the first elements of `out`, and zeros after them."""
    import torch

    out[: len(values)] = torch.from_numpy(np.ascontiguousarray(values)).to(out)
    out[len(values) :] = 0


def bind_svd(call: CollectiveCall) -> BoundCall:
    """Bind the SVD: U over the singular values over (Vᴴ)ᵀ, this worker's columns of each."""
    import torch

    from magmath.kernels.linalg.distributed_svd import singular

    m, n = call.layouts[0].shape
    out, own_columns = _own_columns(call)
    upper, row, lower = out[:m], out[m], out[m + 1 :]
    long, short = (lower, upper) if m <= n else (upper, lower)

    def run() -> None:
        values = singular(_columns(call), own_columns.start, long, short)
        torch.conj_physical(short, out=short)  # C = U·S·Vᴴ is the matrix or its transpose
        _fill(row, values[own_columns])

    return run


def bind_svdvals(call: CollectiveCall) -> BoundCall:
    """Bind the computation of this worker's singular values."""
    from magmath.kernels.linalg.distributed_svd import singular

    out, own_columns = _own_columns(call)
    return lambda: _fill(out, singular(_columns(call), own_columns.start, None, None)[own_columns])


def bind_eigh(call: CollectiveCall) -> BoundCall:
    """Bind the computation of eigenvalues over eigenvectors, this worker's columns of each."""
    from magmath.kernels.linalg.distributed_svd import eigen

    out, own_columns = _own_columns(call)
    return lambda: _fill(out[0], eigen(_columns(call), own_columns.start, out[1:])[own_columns])


def bind_eigvalsh(call: CollectiveCall) -> BoundCall:
    """Bind the computation of this worker's eigenvalues."""
    from magmath.kernels.linalg.distributed_svd import eigen

    out, own_columns = _own_columns(call)
    return lambda: _fill(out, eigen(_columns(call), own_columns.start, None)[own_columns])
