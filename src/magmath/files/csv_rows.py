"""Rows of a numeric CSV file, which the workers parse and write.

NumPy's compiled parser reads the rows of a worker. If it fails, the file is read row by row, for an
error that names line and column.
"""

from __future__ import annotations

import contextlib
import csv
import io
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, final

import msgspec
import numpy as np
from numpy.typing import NDArray

from magmath.core.module_locks import module_lock
from magmath.errors import DataError
from magmath.files.array_specs import ArraySpec, Elements, Natural, Text, numpy_dtype

_WARNINGS_LOCK = module_lock(__name__, "_WARNINGS_LOCK")
"""Warning filters are global to the process."""


@final
class CsvRows(msgspec.Struct, frozen=True, tag="csv", forbid_unknown_fields=True):
    """A table in a text file. Row i · chunks[0] begins at byte offsets[i]; the last offset is the
    end of the data; the first `skip` lines are skipped. `columns` are those that are read, of rows
    of `width` fields; a field in `missing` has the value `filling`."""

    delimiter: Text
    skip: Natural
    offsets: tuple[Natural, ...]
    chunks: tuple[Natural, ...]
    width: Natural = 0
    columns: tuple[Natural, ...] = ()
    missing: tuple[str, ...] = ()
    filling: str = "nan"

    def can_have_fields(self, count: int) -> bool:
        """Return True if a row may have this number of fields: the width of the table, or at least
        the columns that are read."""
        return count > max(self.columns) if self.columns else count == self.width

    @property
    def has_number_for_missing(self) -> bool:
        """True if a missing value may look like a number, such as -999."""
        return any(map(is_number, self.missing))

    @contextmanager
    def open(self, path: str, spec: ArraySpec, writing: bool) -> Iterator[Elements]:
        """Open the table; rows are parsed on access."""
        yield _Table(path, self, spec)


@final
class _Table:
    """The rows of a file. Consecutive written rows become a separate file, named by its first
    row."""

    def __init__(self, path: str, rows: CsvRows, spec: ArraySpec) -> None:
        self._path = path
        self._rows = rows
        self._spec = spec
        self._written = range(0)

    def __getitem__(self, selection: Any) -> Any:
        row, column, *_ = selection
        every, count = self._rows.chunks[0], self._spec.shape[0]
        first, last = row.start // every, -(-row.stop // every)
        begin, end = self._rows.offsets[first], self._rows.offsets[last]
        with open(self._path, "rb") as file:
            file.seek(begin)
            data = file.read(end - begin)
        shape = (min(last * every, count) - first * every, self._spec.shape[1])
        table = self._parse(data, shape)
        return table[row.start - first * every : row.stop - first * every, column]

    def _parse(self, data: bytes, shape: tuple[int, ...]) -> NDArray[Any]:
        dtype = numpy_dtype(self._spec.dtype)
        try:
            table = self._parse_text(data.decode("utf-8-sig"), dtype)
            if table.shape != shape:
                raise ValueError(
                    f"{shape[0]} rows of {shape[1]} were found at first; the file has changed"
                )
        except UnicodeDecodeError as error:
            raise DataError(
                f"{self._path} is not text in UTF-8: {error}; save it as UTF-8"
            ) from None
        except (ValueError, DeprecationWarning, UserWarning) as error:
            raise_first_fault(Path(self._path), self._rows, dtype)
            raise DataError(f"{self._path} cannot be read: {error}") from error
        return table

    def _parse_text(self, text: str, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Parse the text; if that fails, fill in missing values and parse again."""
        rows = self._rows
        columns = rows.columns or None
        if not rows.has_number_for_missing:
            with contextlib.suppress(ValueError, DeprecationWarning, UserWarning):
                return _parse_text(text, rows.delimiter, dtype, columns)
        return _parse_text(_filled(text, rows), rows.delimiter, dtype, None)

    def __setitem__(self, selection: Any, values: NDArray[Any]) -> None:
        numbers = values.astype(np.uint8) if values.dtype.kind == "b" else values
        rows = numbers.astype("U").reshape(len(numbers), -1)
        lines = [",".join(row) + "\n" for row in rows.tolist()]
        begin, end = selection[0].start, selection[0].stop
        follows = bool(self._written) and begin == self._written.stop
        self._written = range(self._written.start if follows else begin, end)
        path = f"{self._path}.{self._written.start:020d}"
        with open(path, "a" if follows else "w", encoding="ascii") as part:
            part.writelines(lines)


def _parse_text(
    text: str, delimiter: str, dtype: np.dtype[Any], columns: tuple[int, ...] | None
) -> NDArray[Any]:
    """Return the table of a text. Raises ValueError, or a warning as an error, if it has another
    form."""
    with _WARNINGS_LOCK, warnings.catch_warnings():
        # NumPy only warns when it drops a fraction to make an integer.
        warnings.simplefilter("error")
        table = np.loadtxt(
            io.StringIO(text, newline=""),  # which ends lines where the CSV reader does
            dtype=np.float64 if dtype.kind == "f" else dtype,
            delimiter=delimiter,
            comments=None,
            quotechar='"',
            ndmin=2,
            usecols=columns,
        )
    with np.errstate(over="ignore"):  # NumPy's parser of float16 refuses what becomes infinity
        return table.astype(dtype, copy=False)


def _filled(text: str, rows: CsvRows) -> str:
    """Return the text of the columns that are read, with numbers in place of missing values.

    Raises ValueError for a row of another width.
    """
    missing = frozenset(rows.missing)
    selected = rows.columns or tuple(range(rows.width))
    filled = io.StringIO()
    writer = csv.writer(filled, delimiter=rows.delimiter, lineterminator="\n")
    for row in csv.reader(io.StringIO(text, newline=""), delimiter=rows.delimiter):
        if row:
            if not rows.can_have_fields(len(row)):
                raise ValueError(f"a row has {len(row)} fields")
            fields = (row[column].strip() for column in selected)
            writer.writerow([rows.filling if field in missing else field for field in fields])
    return filled.getvalue()


def iterate_rows(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the non-blank rows, each with the number of its last line. Raises DataError if a quote
    is not closed: then the line with a quote that is appended does not begin a row of its own."""
    with path.open(newline="", encoding="utf-8-sig") as lines:
        reader = csv.reader(chain(lines, ['"']), delimiter=delimiter)
        row: list[str] = []
        first = last = 0
        for following in reader:
            if row:
                yield last, row
            row, first, last = following, last + 1, reader.line_num
    if first != last:
        raise DataError(
            f"{path}, line {first}: a quote is not closed before the end of the file; close it"
        )


def is_number(field: str) -> bool:
    """Return True for the text of a number."""
    try:
        float(field)
    except ValueError:
        return False
    return True


def raise_first_fault(path: Path, rows: CsvRows, dtype: np.dtype[Any]) -> None:
    """Raise DataError for the first row that is ragged or has a field that is not a number."""
    fault = _integer_fault if dtype.kind in "iu" else _float_fault
    first_line = 0
    for line, fields in iterate_rows(path, rows.delimiter):
        if line <= rows.skip:
            continue
        first_line = first_line or line
        if not rows.can_have_fields(len(fields)):
            raise DataError(
                f"{path}, line {line}: has {len(fields)} fields where every row needs "
                f"{rows.width}, as line {first_line} has; correct the row or check "
                f"delimiter={rows.delimiter!r}"
            )
        can_be_header = line == first_line and not rows.skip
        _check_fields(path, line, fields, rows, dtype, fault, can_be_header=can_be_header)


def _check_fields(
    path: Path,
    line: int,
    fields: list[str],
    rows: CsvRows,
    dtype: np.dtype[Any],
    fault: Callable[[str, np.dtype[Any]], str | None],
    *,
    can_be_header: bool,
) -> None:
    for column in rows.columns or range(len(fields)):
        field = fields[column].strip()
        is_missing = field in rows.missing
        if reason := fault(rows.filling if is_missing else field, dtype):
            options = ["header=True if this is the header"] if can_be_header else []
            if not is_number(field):
                options.append("missing_values=… or usecols=…")
            remedy = "correct the field" + (", or give " + ", ".join(options) if options else "")
            if is_missing:
                reason = f"stands for a missing value, and {dtype} has no NaN"
                remedy = "give filling_values=… or a floating-point dtype"
            raise DataError(
                f"{path}, line {line}, column {column + 1}: {field[:40]!r} {reason}; {remedy}"
            )


def _float_fault(field: str, dtype: np.dtype[Any]) -> str | None:
    if not field:
        return "is empty where a number is needed"
    return None if is_number(field) and "_" not in field else "is not a number"


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
