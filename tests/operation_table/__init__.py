"""The operation table: one row for each operation, with the cases of its tests.

A row draws operands and attributes for an element type, names the element types that the operation
takes, and the operands with respect to which it has a gradient. The tests of every operation
(`operation_bodies.py`) use these rows, so a new operation needs one row, in the module of its
family.
"""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from magmath.core.dtypes import DTYPES
from operation_table import (
    creation,
    elementwise,
    gathering,
    manipulation,
    matrices,
    normalization,
    pooling,
    products,
    reductions,
    transforms,
)
from operation_table.draws import BOOL, REAL, UNSIGNED, Case, Draws, Row, Shape

__all__ = ["BOOL", "FOLDED", "REAL", "ROWS", "UNSIGNED", "Case", "Draws", "Row", "Shape", "cases"]

ROWS: dict[str, Row] = {
    **elementwise.ROWS,
    **reductions.ROWS,
    **manipulation.ROWS,
    **gathering.ROWS,
    **products.ROWS,
    **pooling.ROWS,
    **normalization.ROWS,
    **transforms.ROWS,
    **matrices.ROWS,
    **creation.ROWS,
}
FOLDED: dict[str, Row] = {**products.FOLDED, **matrices.FOLDED}
"""Made by the passes, not by users: tried like the rest, but without gradients."""


@st.composite
def cases(draw: st.DrawFn, row: Row, dtype: str | None = None, smooth: bool = False) -> Case:
    """A case of a row, for one of its element types."""
    name = dtype or draw(st.sampled_from(row.dtypes))
    random = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    element = DTYPES["float64" if smooth else name]
    return row.draw(Draws(draw, element, random, smooth))
