"""Reader of numeric CSV files to arrays on the workers."""

from __future__ import annotations

import os
from pathlib import Path

from magmath.array.array import Array
from magmath.array.creation import LayoutLike
from magmath.array.files import absolute, missing, read_entry
from magmath.array.types import astype
from magmath.core.dtypes import DType, as_dtype, float32
from magmath.files.csv import Header, table


def read_csv(
    path: str | Path,
    delimiter: str = ",",
    header: Header = "auto",
    dtype: DType | str | type = "float32",
    *,
    layout: LayoutLike = None,
) -> Array:
    """The numbers in the CSV file `path` as an array of shape (rows, columns) on the workers, each
    of which reads its own rows.

    `header` says whether the first row holds names and is skipped; "auto" skips it when not one of
    its fields is a number. Blank lines are skipped. Fields may be quoted with `"`. `layout` as for
    `mm.asarray`.

    Raises MissingDataError where there is no such file, DTypeError for a `dtype` other than real
    numbers, and DataError naming file and line for a row whose length differs from the first row's
    or a field that is not a number of that dtype.
    """
    place = absolute("data.read_csv", path)
    if not os.path.isfile(place):
        raise missing("data.read_csv", place)
    element = as_dtype(dtype)
    parsed = float32 if element.name == "bfloat16" else element
    array = read_entry(place, table(place, delimiter, header, parsed), layout)
    return array if parsed == element else astype(array, element)
