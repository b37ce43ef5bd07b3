"""Reader of numeric CSV files, with errors that name the file, the line and the column.

NumPy's compiled parser does the work. It is only when that one refuses that the file is read again
row by row, to find out which line is at fault.
"""

from __future__ import annotations

import csv
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from magmath.core.dtypes import DType, as_dtype
from magmath.errors import DataError, DTypeError, MissingDataError

if TYPE_CHECKING:
    from magmath.array.array import Array
    from magmath.layout import Layout, Rule

Header = Literal["auto"] | bool


def read_csv(
    path: str | Path,
    delimiter: str = ",",
    header: Header = "auto",
    dtype: DType | str | type = "float32",
    *,
    layout: Layout | Rule | None = None,
) -> Array:
    """The numbers in the CSV file `path` as an array of shape (rows, columns) on the workers.

    `layout` as for `mm.asarray`, the rest and the errors as for `read_csv_numpy`.
    """
    from magmath.array.creation import asarray

    element = as_dtype(dtype)
    parsed = "float32" if element.name == "bfloat16" else element.name
    return asarray(read_csv_numpy(path, delimiter, header, parsed), dtype=element, layout=layout)


def read_csv_numpy(
    path: str | Path,
    delimiter: str = ",",
    header: Header = "auto",
    dtype: npt.DTypeLike = np.float32,
) -> np.ndarray[Any, np.dtype[Any]]:
    """The numbers in the CSV file `path` as an array of shape (rows, columns).

    `header` says whether the first row holds names and is skipped; "auto" skips it when not one of
    its fields is a number. Blank lines are skipped. Fields may be quoted with `"`.

    Raises `MissingDataError` where there is no such file, `DTypeError` for a `dtype` other than
    real numbers, and `DataError` naming file and line for a row whose length differs from the
    first row's or a field that is not a number of that dtype.
    """
    path = Path(path)
    dtype = np.dtype(dtype)
    if dtype.kind not in "fiu":
        raise DTypeError(f"read_csv: reads real numbers, not {dtype}; use float32, int64, …")
    if len(delimiter) != 1:
        raise DataError(f"read_csv: the delimiter must be one character, not {delimiter!r}")
    if not path.is_file():
        raise MissingDataError(f"read_csv: there is no file {path}")
    try:
        skip = _lines_to_skip(path, delimiter, header)
        return _parse(path, delimiter, skip, dtype)
    except UnicodeDecodeError as error:
        raise DataError(f"read_csv: {path} is not text in UTF-8: {error}") from error
    except csv.Error as error:
        raise DataError(f"read_csv: {path} is not a CSV file: {error}") from error


def _parse(
    path: Path, delimiter: str, skip: int, dtype: np.dtype[Any]
) -> np.ndarray[Any, np.dtype[Any]]:
    try:
        with warnings.catch_warnings():
            # NumPy only warns where it drops a fraction to make an integer.
            warnings.simplefilter("error")
            return np.loadtxt(
                str(path),
                dtype=dtype,
                delimiter=delimiter,
                skiprows=skip,
                comments=None,
                quotechar='"',
                ndmin=2,
                encoding="utf-8-sig",
            )
    except UnicodeDecodeError:
        raise
    except (ValueError, DeprecationWarning, UserWarning) as error:
        _find_fault(path, delimiter, skip, dtype)
        raise DataError(f"read_csv: {path} cannot be read: {error}") from error


def _rows(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The rows that are not blank, each with the number of its (last) line."""
    with path.open(newline="", encoding="utf-8-sig") as lines:
        reader = csv.reader(lines, delimiter=delimiter)
        for row in reader:
            if row:
                yield reader.line_num, row


def _lines_to_skip(path: Path, delimiter: str, header: Header) -> int:
    first = next(_rows(path, delimiter), None)
    if first is None:
        raise DataError(f"read_csv: {path} is empty")
    line, fields = first
    is_header = header if header != "auto" else not any(map(_is_number, fields))
    return line if is_header else 0


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _find_fault(path: Path, delimiter: str, skip: int, dtype: np.dtype[Any]) -> None:
    """Raises DataError for the first row that is ragged or holds something else than a number."""
    fault = _integer_fault if dtype.kind in "iu" else _float_fault
    width = first_line = 0
    for line, fields in _rows(path, delimiter):
        if line <= skip:
            continue
        if not width:
            width, first_line = len(fields), line
        if len(fields) != width:
            raise DataError(
                f"read_csv: {path}, line {line}: has {len(fields)} fields where every row needs "
                f"{width}, as line {first_line} has; mend the row or check delimiter={delimiter!r}"
            )
        _check_fields(path, line, fields, dtype, fault)
    if not width:
        raise DataError(f"read_csv: {path} has no rows beneath its header")


def _check_fields(
    path: Path,
    line: int,
    fields: list[str],
    dtype: np.dtype[Any],
    fault: Callable[[str, np.dtype[Any]], str | None],
) -> None:
    for column, field in enumerate(fields, start=1):
        if reason := fault(field.strip(), dtype):
            raise DataError(
                f"read_csv: {path}, line {line}, column {column}: {field[:40]!r} {reason}; "
                "mend the field, or give header=True where this is the header"
            )


def _float_fault(field: str, dtype: np.dtype[Any]) -> str | None:
    if not field:
        return "is empty where a number is needed"
    return None if _is_number(field) and "_" not in field else "is not a number"


def _integer_fault(field: str, dtype: np.dtype[Any]) -> str | None:
    if not field:
        return "is empty where an integer is needed"
    try:
        value = int(field)
    except ValueError:
        return "is not an integer"
    limits = np.iinfo(dtype)
    if "_" in field:
        return "is not an integer"
    return None if limits.min <= value <= limits.max else f"does not fit {dtype}"
