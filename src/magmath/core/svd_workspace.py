"""Sizes of what is needed to reduce a matrix that workers share to a condensed form, and back."""

from __future__ import annotations

from magmath.core.block_cyclic import round_to_cache_lines

REDUCTION_PANEL = 32
"""Reflections that are applied together in a reduction."""
REFLECTOR_BLOCK = 64
"""Reflections that are applied together to vectors."""
VECTOR_CHUNK = 256
"""Vectors of the condensed problem that are made at once."""


def svd_workspace_bytes(held: int, rows: int, count: int, width: int, itemsize: int) -> int:
    """The workspace of a worker that holds `held` of `count` columns and gets `width` vectors: a
    copy of these columns, and either the panels of a reduction, or vectors of the condensed problem
    twice, or a block of reflections twice and what they make of the vectors."""
    reduction = 2 * REDUCTION_PANEL * rows, 2 * REDUCTION_PANEL * held
    made = count * min(VECTOR_CHUNK, width)
    reflected = REFLECTOR_BLOCK * rows, REFLECTOR_BLOCK * rows, REFLECTOR_BLOCK * width
    copy, *steps = [
        sum([round_to_cache_lines(elements * itemsize) for elements in sizes])
        for sizes in ((held * rows,), reduction, (made, made), reflected)
    ]
    return copy + max(steps)
