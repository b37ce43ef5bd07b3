r"""Memory realignment: a column in front of a row-major matrix, inserted or removed in place.

ShiftRight turns an R×C matrix at the beginning of a buffer of R·(C+1) elements into the R×(C+1)
matrix whose first column is a given value; ShiftLeft is its inverse. Source of the idea:
SHM-Learn-Dist report, §4; the index arithmetic there has errors, and the following is new.

Let the rows be divided into groups of consecutive rows, [a, b) for each. All groups move at the
same time; each moves its own rows one after another.

**ShiftRight** moves position p = r·C + c to q = r·(C+1) + 1 + c = p + r + 1 and sets r·(C+1).

1.  Group [a, b) reads [a·C, b·C) and writes every position of [a·(C+1), b·(C+1)) once: the columns
    1 to C from its sources, in the same order, and column 0 with the value.
2.  Higher groups write only at and above b·(C+1) ≥ b·C: none of the sources of [a, b).
3.  Lower groups write exactly [0, a·(C+1)): of the sources of [a, b) they damage those with
    p < a·(C+1), which are its first min(a, (b-a)·C) elements. Only these need a copy.
4.  Within a group, rows in descending order are safe: row r writes only at and above r·(C+1) ≥ r·C,
    and the sources of the rows that are not moved yet are below r·C. A row itself is moved as by
    memmove, before its column 0 is set.

The copies are the helper array; with groups of one row it has Σ min(r, C) elements for r from 0 to
R-1, which is R·(R-1)/2 for C ≥ R-1, the report's figure. With T groups it has at most (T-1)·R
elements, so the CPU kernel, which has a group for each thread, copies far less.

**ShiftLeft** moves p = r·(C+1) + 1 + c to q = r·C + c = p - r - 1, the same upside down: lower
groups write below a·C ≤ a·(C+1); higher groups write at and above b·C, so [a, b) copies its
sources in [max(b·C, a·(C+1)), b·(C+1)), at most b elements, and none in the last group; and rows go
in ascending order, since row r writes below (r+1)·C ≤ (r+1)·(C+1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
import numpy.typing as npt

Index = npt.NDArray[np.int64]


@final
class Overwritten(NamedTuple):
    """For each group the position of the first element that other groups overwrite, and the number
    of these elements."""

    begin: Index
    counts: Index


@final
@dataclass(frozen=True)
class RowGroups:
    """The division of the rows of an R×C matrix into groups, and the positions of the elements that
    each of them saves.

    `bounds` has the bounds of the rows, one more than groups. Positions are in elements.
    """

    rows: int
    columns: int
    bounds: Index

    @staticmethod
    def even(rows: int, columns: int, count: int) -> RowGroups:
        """Return a division into `count` groups of about equally many rows."""
        return RowGroups(rows, columns, np.linspace(0, rows, count + 1).astype(np.int64))

    def overwritten_right(self) -> Overwritten:
        """Return the elements that ShiftRight overwrites."""
        first, stop = self.bounds[:-1], self.bounds[1:]
        return Overwritten(first * self.columns, np.minimum(first, (stop - first) * self.columns))

    def overwritten_left(self) -> Overwritten:
        """Return the elements that ShiftLeft overwrites."""
        first, stop = self.bounds[:-1], self.bounds[1:]
        end = stop * (self.columns + 1)
        begin = np.maximum(stop * self.columns, first * (self.columns + 1))
        begin[-1] = end[-1]
        return Overwritten(begin, end - begin)
