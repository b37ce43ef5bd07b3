"""QR of one matrix by all workers together: by panels of columns, of a tall one by rows."""

from __future__ import annotations

from collections.abc import Callable

from magmath.core.panels import is_tall, panel_rows, rounded
from magmath.graph import Collective, CollectiveCall, Node, Workspace
from magmath.layout import Blocks, Layout, Mesh, Split, even_cuts
from magmath.ops.collective import dealt, panel_traffic, shared_out


def _by_rows(node: Node, workers: int) -> bool:
    """True where each worker works on rows of its own: as many of them as there are columns."""
    m, n = node.inputs[0].shape
    return is_tall(m, n) and not node.attributes["full"] and m // workers >= n


def _layouts(node: Node, mesh: Mesh) -> tuple[tuple[Layout, ...], Layout] | None:
    """Columns are dealt; or rows divided, R going to the last worker."""
    (a,) = node.inputs
    if a.ndim != 2 or not a.size:
        return None
    if not _by_rows(node, mesh.size):
        rows = panel_rows(node.shape[1], mesh.size)
        return (dealt(a.shape, mesh, 1, rows=rows),), dealt(node.shape, mesh, 1, rows=rows)
    cuts = (*even_cuts(a.shape[0], mesh.size)[:-1], node.shape[0])
    split = Split(0, Blocks(cuts, tuple(range(mesh.size))))
    return (Layout.even(a.shape, mesh, 0),), Layout.whole(node.shape, mesh).replace_split(0, split)


def _workspace(node: Node, workers: int) -> Workspace:
    """A panel of reflections with its triangle and signs, and twice as many rows of what they are
    applied to; for a tall matrix the triangles of all workers and their sum."""
    (m, n), size = node.inputs[0].shape, node.dtype.itemsize
    if _by_rows(node, workers):
        return Workspace(0, (workers + 1) * n * n * size)
    width = node.shape[1]
    w = panel_rows(width, workers)
    panels = -(-width // w)
    own = -(-panels // workers) * w
    return Workspace(rounded(w * m * size) + rounded(w * w * size) + w * size, 2 * w * own * size)


def _traffic(node: Node, workers: int) -> tuple[int, int]:
    """The reflections, twice; of a tall matrix two sums over the workers."""
    m, n = node.inputs[0].shape
    if _by_rows(node, workers):
        return 4 * n * n * node.dtype.itemsize * (workers - 1), 4 * (workers - 1)
    return panel_traffic((min(m, n), m), node, workers, 2.0)


def _kernel(call: CollectiveCall) -> Callable[[], object]:
    n, comm, out, (a,) = call.layouts[0].shape[1], call.comm, call.out, call.inputs
    if call.layout.axis_of(0) is None:
        from magmath.kernels.reflections import Reflections

        shares = shared_out(call.layout.shape[1], comm)
        return lambda: Reflections(shares, call.ring, call.scratch, out, a, n).run()
    from magmath.kernels.tall import tall_qr_together

    q, scratch = out[: len(a)], call.scratch
    square = scratch[: n * n * a.itemsize].view(a.dtype).view(n, n)
    r = out[len(a) :] if comm.rank == comm.size - 1 else square
    return lambda: tall_qr_together(comm, scratch[n * n * a.itemsize :], q, r, a)


COLLECTIVE_QR = Collective(layouts=_layouts, kernel=_kernel, workspace=_workspace, traffic=_traffic)
