"""Numeric CSV files: split by rows over the workers, with errors that name line and column.

The controller finds the line ends and the type of the numbers; each worker parses its own rows with
NumPy's compiled parser. If that fails, the file is read row by row to find the faulty line.
"""

from __future__ import annotations

import contextlib
import csv
import io
import math
import os
import shutil
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, final

import msgspec
import numpy as np
from numpy.typing import NDArray

from magmath.core.dtypes import DType
from magmath.errors import DataError, DTypeError, ShapeError
from magmath.files.csv_type import TableTypeScanner
from magmath.files.storage import (
    ArraySpec,
    Elements,
    Natural,
    Text,
    numpy_dtype,
    require_numpy_dtype,
)

Header = Literal["auto"] | bool

PART_BYTES: Final = 1 << 20
"""Approximate bytes of text that are parsed at once."""
_BLOCK_BYTES: Final = 1 << 22
_WARNINGS_LOCK = threading.Lock()  # warning filters are global to the process


MISSING: Final = ("", "NA", "N/A", "NULL", "null", "None")
"""Fields, without the blanks around them, that stand for a missing value. NaN is a number."""


@final
@dataclass(frozen=True)
class CsvOptions:
    """How a table is written in its file.

    header     True if the first row has names and is skipped; "auto" skips it if none of its fields
               is a number
    columns    the columns that are read, by position or name; None for all
    missing    fields that stand for a missing value
    filling    the text of the number that replaces a missing value
    """

    delimiter: str = ","
    header: Header = "auto"
    columns: Sequence[int | str] | None = None
    missing: tuple[str, ...] = MISSING
    filling: str = "nan"

    def missing_all(self, fields: Sequence[str]) -> bool:
        """Return True if all fields stand for missing values."""
        return all(field in self.missing for field in fields)


DEFAULT_OPTIONS: Final = CsvOptions()


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

    def fits(self, count: int) -> bool:
        """Return True if a row may have this number of fields: the width of the table, or at least
        the columns that are read."""
        return count > max(self.columns) if self.columns else count == self.width

    @property
    def has_number_for_missing(self) -> bool:
        """True if a missing value may look like a number, such as -999."""
        return any(map(_is_number, self.missing))

    @contextmanager
    def open(self, path: str, spec: ArraySpec, writing: bool) -> Iterator[Elements]:
        """Open the table; rows are parsed on access."""
        yield _Table(path, self, spec)


@final
class _Table:
    """The rows of a file. Each written part becomes a separate file, named by its first row."""

    def __init__(self, path: str, rows: CsvRows, spec: ArraySpec) -> None:
        self._path = path
        self._rows = rows
        self._spec = spec

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
            _raise_first_fault(Path(self._path), self._rows, dtype)
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
        with open(f"{self._path}.{selection[0].start:020d}", "w", encoding="ascii") as part:
            part.writelines(lines)


def _parse_text(
    text: str, delimiter: str, dtype: np.dtype[Any], columns: tuple[int, ...] | None
) -> NDArray[Any]:
    with _WARNINGS_LOCK, warnings.catch_warnings():
        # NumPy only warns when it drops a fraction to make an integer.
        warnings.simplefilter("error")
        return np.loadtxt(
            text.splitlines(),
            dtype=dtype,
            delimiter=delimiter,
            comments=None,
            quotechar='"',
            ndmin=2,
            usecols=columns,
        )


def _filled(text: str, rows: CsvRows) -> str:
    """Return the columns that are read, with numbers in the place of missing values.

    Raises ValueError for a row of another width.
    """
    missing = frozenset(rows.missing)
    selected = rows.columns or tuple(range(rows.width))
    filled = io.StringIO()
    writer = csv.writer(filled, delimiter=rows.delimiter, lineterminator="\n")
    for row in csv.reader(io.StringIO(text, newline=""), delimiter=rows.delimiter):
        if row:
            if not rows.fits(len(row)):
                raise ValueError(f"a row has {len(row)} fields")
            fields = (row[column].strip() for column in selected)
            writer.writerow([rows.filling if field in missing else field for field in fields])
    return filled.getvalue()


def entries(path: str) -> dict[str, tuple[ArraySpec, CsvRows]]:
    """Return the table of a comma-separated file, in the type that holds its numbers."""
    return {"": read_table_spec(path)}


def read_table_spec(
    path: str, options: CsvOptions = DEFAULT_OPTIONS, dtype: DType | None = None
) -> tuple[ArraySpec, CsvRows]:
    """Return the shape and type of the table of a file, and the byte offsets of its rows.

    `dtype` is the type of the numbers; if it is None, that of `TableTypeScanner`. Raises DataError
    if the file is empty or not text, if it lacks a column, or if float64 would round one of its
    integers, DTypeError for a dtype other than real numbers.
    """
    delimiter = options.delimiter
    if dtype is not None and dtype.kind not in ("int", "uint", "float"):
        raise DTypeError(f"{path} holds real numbers, not {dtype}; use float32, int64, …")
    if len(delimiter) != 1:
        raise DataError(
            f"the delimiter of {path} must be one character, not {delimiter!r}"
            '; pass such as delimiter=";"'
        )
    try:
        skip, names = _header(Path(path), options)
        width = _width(Path(path), delimiter, skip)
        columns = _columns(path, options.columns, names, width)
        rows = CsvRows(delimiter, skip, (), (), width, columns, options.missing, options.filling)
        element = TableTypeScanner(path, delimiter, dtype)
        if dtype is None and (columns or rows.has_number_for_missing):
            element = _scan_columns(Path(path), rows, element)
        index = _index_lines(path, skip, element)
        if index is None:
            element = TableTypeScanner(path, delimiter, dtype)
            index = _index_rows(Path(path), rows, element)
        every, count, offsets = index
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not text in UTF-8: {error}; save it as UTF-8") from None
    except csv.Error as error:
        raise DataError(f"{path} is not a CSV file: {error}") from None
    shape = (count, len(columns) or width)
    rows = msgspec.structs.replace(rows, offsets=tuple(offsets), chunks=(every, shape[1]))
    return ArraySpec(shape, _type_of(Path(path), rows, element)), rows


def _type_of(path: Path, rows: CsvRows, element: TableTypeScanner) -> DType:
    """Return the type of a table. Raises DataError for its first field that is not a number rather
    than for an integer that float64 would round."""
    try:
        return element.dtype
    except DataError:
        _raise_first_fault(path, rows, np.dtype(float))
        raise


def _columns(
    path: str, wanted: Sequence[int | str] | None, names: Sequence[str], width: int
) -> tuple[int, ...]:
    """Return the positions of the columns that are read; () for all of them."""
    if wanted is None:
        return ()
    known = f"it has {width} columns" + (f": {', '.join(names)[:200]}" if names else "")
    found = []
    for column in wanted:
        if isinstance(column, str):
            if column not in names:
                raise DataError(f"{path} has no column named {column!r}; {known}")
            found.append(names.index(column))
        elif -width <= column < width:
            found.append(column % width)
        else:
            raise DataError(f"{path} has no column {column}; {known}")
    if not found:
        raise DataError(f"{path}: usecols names no column; {known}")
    return tuple(found)


def _scan_columns(path: Path, rows: CsvRows, element: TableTypeScanner) -> TableTypeScanner:
    """Pass the columns that are read to `element`; return a scanner that knows their type."""
    for line, fields in _iterate_rows(path, rows.delimiter):
        if line > rows.skip and rows.fits(len(fields)):
            columns = rows.columns or range(len(fields))
            _add_fields(element, [fields[column] for column in columns], rows)
    return TableTypeScanner(str(path), rows.delimiter, _type_of(path, rows, element))


def _add_fields(element: TableTypeScanner, fields: Sequence[str], rows: CsvRows) -> None:
    """Scan the fields of a row; a missing value needs a type with NaN."""
    filled = ["nan" if field.strip() in rows.missing else field for field in fields]
    element.add("\n".join(filled).encode())


def _width(path: Path, delimiter: str, skip: int) -> int:
    """Return the number of fields in the first row of data."""
    for line, fields in _iterate_rows(path, delimiter):
        if line > skip:
            return len(fields)
    raise DataError(
        f"{path} has no rows beneath its header; pass header=False if its first row holds numbers"
    )


def _index_lines(
    path: str, skip: int, element: TableTypeScanner
) -> tuple[int, int, list[int]] | None:
    """Return the rows per part, the number of rows, and the byte offsets of parts, from line ends.

    Passes the text to `element`. Returns None if quotes or single carriage returns make the line
    ends ambiguous.
    """
    with open(path, "rb") as file:
        for _ in range(skip):
            file.readline()
        start, first = file.tell(), file.readline()
        while first and not first.strip(b"\r\n"):
            first = file.readline()
        every = max(1, PART_BYTES // max(1, len(first)))
        file.seek(start)
        offsets: list[int] = []
        count = 0
        while block := file.read(_BLOCK_BYTES):
            lines = block[: block.rfind(b"\n") + 1] if len(block) == _BLOCK_BYTES else block
            lines = lines or block + file.readline()  # a line longer than a block
            file.seek(start + len(lines))
            begins = _line_begins(lines)
            if begins is None:
                return None
            element.add(lines)
            wanted = begins[-count % every :: every]
            offsets += [start + int(begin) for begin in wanted]
            count, start = count + len(begins), start + len(lines)
    return every, count, [*offsets, start]


def _line_begins(lines: bytes) -> NDArray[np.int64] | None:
    """Return the offsets of non-blank lines; None if quotes or carriage returns make them
    ambiguous."""
    text = np.frombuffer(lines, np.uint8)
    ends = np.flatnonzero(text == ord("\n"))
    returns = np.flatnonzero(text == ord("\r"))
    ending = np.searchsorted(ends, returns + 1)
    alone = (ending == len(ends)) | (ends[np.minimum(ending, len(ends) - 1)] != returns + 1)
    if b'"' in lines or (len(returns) and (not len(ends) or alone.any())):
        return None
    begins = np.concatenate(([0], ends + 1))
    stops = np.concatenate((ends, [len(lines)]))
    stops = stops - np.isin(stops - 1, returns)
    return begins[begins < stops]


def _index_rows(path: Path, rows: CsvRows, element: TableTypeScanner) -> tuple[int, int, list[int]]:
    """Return the same as `_index_lines`, with the whole file as one part, by the CSV reader."""
    count = 0
    for line, fields in _iterate_rows(path, rows.delimiter):
        if line > rows.skip:
            count += 1
            if rows.fits(len(fields)):
                columns = rows.columns or range(len(fields))
                _add_fields(element, [fields[column] for column in columns], rows)
    with open(path, "rb") as file:
        for _ in range(rows.skip):
            file.readline()
        return count, count, [file.tell(), os.path.getsize(path)]


def create(path: str, specs: Mapping[str, ArraySpec]) -> dict[str, CsvRows]:
    """Create an empty file; the workers write their rows to files next to it."""
    spec = specs[""]
    dtype = require_numpy_dtype("CSV", spec)
    if dtype.kind == "c":
        raise DTypeError(
            f"save: CSV files have no {spec.dtype}; save as .npy, or save real and imaginary parts "
            f"separately"
        )
    if len(spec.shape) not in (1, 2) or not min(spec.shape):
        raise ShapeError(
            f"save: CSV files hold a vector, as a column, or a table of one or more rows and "
            f"columns, not shape {spec.shape}; reshape the array"
        )
    open(path, "xb").close()
    width = math.prod(spec.shape[1:])
    return {"": CsvRows(",", 0, (), (1, *spec.shape[1:]), width)}


def finish(path: str, specs: Mapping[str, ArraySpec]) -> None:
    """Concatenate the files with the workers' rows."""
    with open(path, "wb") as whole:
        for part in sorted(Path(path).parent.glob(f"{Path(path).name}.*")):
            with open(part, "rb") as rows:
                shutil.copyfileobj(rows, whole, _BLOCK_BYTES)
            part.unlink()


def _iterate_rows(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the non-blank rows, each with the number of its last line."""
    with path.open(newline="", encoding="utf-8-sig") as lines:
        reader = csv.reader(lines, delimiter=delimiter)
        for row in reader:
            if row:
                yield reader.line_num, row


def _header(path: Path, options: CsvOptions) -> tuple[int, list[str]]:
    """Return the number of lines to skip, and the names of the columns; none without a header."""
    first = next(_iterate_rows(path, options.delimiter), None)
    if first is None:
        raise DataError(f"{path} is empty; give a file with at least one row")
    line, fields = first
    names = [field.strip() for field in fields]
    is_header = options.header
    if is_header == "auto":
        is_header = not any(map(_is_number, names)) and not options.missing_all(names)
    return (line, names) if is_header else (0, [])


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _raise_first_fault(path: Path, rows: CsvRows, dtype: np.dtype[Any]) -> None:
    """Raise DataError for the first row that is ragged or has a field that is not a number."""
    fault = _integer_fault if dtype.kind in "iu" else _float_fault
    first_line = 0
    for line, fields in _iterate_rows(path, rows.delimiter):
        if line <= rows.skip:
            continue
        first_line = first_line or line
        if not rows.fits(len(fields)):
            raise DataError(
                f"{path}, line {line}: has {len(fields)} fields where every row needs "
                f"{rows.width}, as line {first_line} has; correct the row or check "
                f"delimiter={rows.delimiter!r}"
            )
        _check_fields(path, line, fields, rows, dtype, fault)
    if not first_line:
        raise DataError(
            f"{path} has no rows beneath its header"
            "; pass header=False if its first row holds numbers"
        )


def _check_fields(
    path: Path,
    line: int,
    fields: list[str],
    rows: CsvRows,
    dtype: np.dtype[Any],
    fault: Callable[[str, np.dtype[Any]], str | None],
) -> None:
    for column in rows.columns or range(len(fields)):
        field = fields[column].strip()
        is_missing = field in rows.missing
        if reason := fault(rows.filling if is_missing else field, dtype):
            remedy = "correct the field, or give header=True if this is the header"
            if is_missing:
                reason = f"stands for a missing value, and {dtype} has no NaN"
                remedy = "give filling_values=… or a floating-point dtype"
            elif not _is_number(field):
                remedy += ", missing_values=… or usecols=…"
            raise DataError(
                f"{path}, line {line}, column {column + 1}: {field[:40]!r} {reason}; {remedy}"
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
