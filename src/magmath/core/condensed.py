"""Sizes of what is needed to reduce a matrix that workers share to a condensed form, and back."""

from __future__ import annotations

from magmath.core.panels import rounded

PANEL = 32
"""Reflections that are applied together in a reduction."""
BLOCK = 64
"""Reflections that are applied together to vectors."""
CHUNK = 256
"""Vectors of the condensed problem that are made at once."""


def spectrum_bytes(held: int, rows: int, count: int, width: int, itemsize: int) -> int:
    """The workspace of a worker that holds `held` of `count` columns and gets `width` vectors: a
    copy of these columns, and either the panels of a reduction, or vectors of the condensed problem
    twice, or a block of reflections twice and what they make of the vectors."""
    reduction = 2 * PANEL * rows, 2 * PANEL * held
    made = count * min(CHUNK, width)
    reflected = BLOCK * rows, BLOCK * rows, BLOCK * width
    copy, *steps = [
        sum([rounded(elements * itemsize) for elements in sizes])
        for sizes in ((held * rows,), reduction, (made, made), reflected)
    ]
    return copy + max(steps)
