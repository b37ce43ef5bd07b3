"""Reader of numeric CSV files into arrays on the workers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from magmath.api.input_output import absolute_path, missing_file, read_table
from magmath.arrays.array import Array
from magmath.arrays.inputs.conversion import LayoutLike
from magmath.core.dtypes import DType
from magmath.core.keyword_hints import keyword_hints
from magmath.files.csv import MISSING, CsvOptions, Header


@keyword_hints
def read_csv(
    path: str | Path,
    delimiter: str = ",",
    header: Header = "auto",
    dtype: DType | str | type | None = None,
    *,
    usecols: Sequence[int | str] | int | str | None = None,
    missing_values: Sequence[str] | str | None = None,
    filling_values: float | None = None,
    layout: LayoutLike = None,
) -> Array:
    """Return the numbers of a CSV file as an array of shape (rows, columns); each worker reads its
    own rows.

    `header`: True if the first row has names and is skipped; "auto" skips it if none of its
    fields is a number. Blank lines are skipped. Fields may be quoted with `"`. `usecols` are the
    columns that are read, in this order, by position or by name in the header; the others may have
    any text. `layout` as for `mm.asarray`.

    Fields that are empty, NA, N/A, NULL or None, or else empty or in `missing_values`, become NaN,
    or `filling_values`. Any other text is an error.

    Without `dtype`, a table of integers is int64 (uint64 if it has numbers beyond int64 and none is
    negative), any other table float64. Integers are never rounded: a table with fractions and an
    integer that float64 cannot represent raises DataError; give `dtype` in that case.

    A number beyond a floating-point `dtype` is infinite. A compressed file must be decompressed
    first, since workers find their rows by position; `mm.loadtxt` reads it in the controller.

    Raises MissingDataError if the file is missing, OptionError for another `header`, DTypeError for
    a `dtype` other than real numbers, and DataError with file, line and column for a field that is
    not a number of that dtype, for a row whose length differs from the first row (for `usecols`:
    that lacks one of them), for a quote that is not closed, and for a column that the file lacks
    or a name that several columns have.
    """
    location = absolute_path("data.read_csv", path)
    if not os.path.isfile(location):
        raise missing_file("data.read_csv", location)
    columns = [usecols] if isinstance(usecols, (int, str)) else usecols
    texts = [missing_values] if isinstance(missing_values, str) else missing_values
    gaps = MISSING if texts is None else ("", *[text.strip() for text in texts])
    filling = "nan" if filling_values is None else str(filling_values)
    options = CsvOptions(delimiter, header, columns, gaps, filling)
    return read_table(location, dtype, layout, options)
