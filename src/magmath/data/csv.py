"""Reader of numeric CSV files to arrays on the workers."""

from __future__ import annotations

import os
from pathlib import Path

from magmath.array.array import Array
from magmath.array.conversion import LayoutLike
from magmath.array.files import absolute, missing, read_table
from magmath.core.dtypes import DType
from magmath.files.csv import Header


def read_csv(
    path: str | Path,
    delimiter: str = ",",
    header: Header = "auto",
    dtype: DType | str | type | None = None,
    *,
    layout: LayoutLike = None,
) -> Array:
    """The numbers in the CSV file `path` as an array of shape (rows, columns) on the workers, each
    of which reads its own rows.

    `header` says whether the first row holds names and is skipped; "auto" skips it when not one of
    its fields is a number. Blank lines are skipped. Fields may be quoted with `"`. `layout` as for
    `mm.asarray`.

    Without `dtype` a table of integers is int64 (uint64 where it has numbers beyond int64 and none
    is negative), any other table float64. No integer is rounded: a table with fractions, and with
    an integer that float64 does not hold, is a DataError, for which `dtype` is the remedy.

    Raises MissingDataError where there is no such file, DTypeError for a `dtype` other than real
    numbers, and DataError naming file and line for a row whose length differs from the first row's
    or a field that is not a number of that dtype.
    """
    place = absolute("data.read_csv", path)
    if not os.path.isfile(place):
        raise missing("data.read_csv", place)
    return read_table(place, dtype, layout, delimiter, header)
