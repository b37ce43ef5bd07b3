"""Workspace sizes of the distributed SVD and eigenvalue decomposition."""

from __future__ import annotations

from magmath.core.block_cyclic import round_to_cache_lines

REDUCTION_PANEL = 32
"""Householder reflections per panel of the reduction to condensed form."""
REFLECTOR_BLOCK = 64
"""Householder reflections per block when vectors are transformed back."""
VECTOR_CHUNK = 256
"""Vectors of the condensed problem that are computed at once."""


def svd_workspace_bytes(columns: int, rows: int, count: int, width: int, itemsize: int) -> int:
    """Return the workspace bytes of a worker that stores `columns` of `count` columns and computes
    `width` vectors.

    The workspace holds a copy of the columns and the largest of three buffers: the panels of the
    reduction; two chunks of vectors of the condensed problem; two blocks of reflectors and their
    product with the vectors."""
    reduction = 2 * REDUCTION_PANEL * rows, 2 * REDUCTION_PANEL * columns
    chunk = count * min(VECTOR_CHUNK, width)
    reflected = REFLECTOR_BLOCK * rows, REFLECTOR_BLOCK * rows, REFLECTOR_BLOCK * width
    copy, *steps = [
        sum([round_to_cache_lines(elements * itemsize) for elements in sizes])
        for sizes in ((columns * rows,), reduction, (chunk, chunk), reflected)
    ]
    return copy + max(steps)
