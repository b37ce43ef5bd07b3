"""Reader of numeric CSV files into arrays on the workers."""

from __future__ import annotations

import os
from pathlib import Path

from magmath.api.input_output import absolute, missing, read_table
from magmath.arrays.array import Array
from magmath.arrays.conversion import LayoutLike
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
    """Return the numbers of a CSV file as an array of shape (rows, columns); each worker reads its
    own rows.

    `header`: True if the first row has names and is skipped; "auto" skips it if none of its
    fields is a number. Blank lines are skipped. Fields may be quoted with `"`. `layout` as for
    `mm.asarray`.

    Without `dtype`, a table of integers is int64 (uint64 if it has numbers beyond int64 and none is
    negative), any other table float64. Integers are never rounded: a table with fractions and an
    integer that float64 cannot represent raises DataError; give `dtype` in that case.

    Raises MissingDataError if the file is missing, DTypeError for a `dtype` other than real
    numbers, and DataError with file and line for a row whose length differs from the first row, or
    a field that is not a number of that dtype.
    """
    location = absolute("data.read_csv", path)
    if not os.path.isfile(location):
        raise missing("data.read_csv", location)
    return read_table(location, dtype, layout, delimiter, header)
