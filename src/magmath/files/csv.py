"""Numeric CSV files, split by rows over the workers.

The controller finds the line ends and the type of the numbers; each worker parses and writes its
own rows (`csv_rows.py`).
"""

from __future__ import annotations

import csv
import math
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NamedTuple, final

import msgspec
import numpy as np
from numpy.typing import NDArray

from magmath.core.dtypes import DType
from magmath.errors import DataError, DTypeError, OptionError, ShapeError
from magmath.files.array_specs import ArraySpec, require_numpy_dtype
from magmath.files.csv_rows import CsvRows, is_number, iterate_rows, raise_first_fault
from magmath.files.csv_type import TableTypeScanner

Header = Literal["auto"] | bool

PART_BYTES: Final = 1 << 20
"""Approximate bytes of text that are parsed at once."""
_BLOCK_BYTES: Final = 1 << 22

_COMPRESSED: Final = re.compile(rb"\x1f\x8b|BZh\d1AY&SY|\xfd7zXZ\0|\x28\xb5\x2f\xfd|PK\x03\x04")
"""The first bytes of files of gzip, bzip2, xz, zstd and zip."""

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

    def are_missing(self, fields: Sequence[str]) -> bool:
        """Return True if all fields stand for missing values."""
        return all(field in self.missing for field in fields)


DEFAULT_OPTIONS: Final = CsvOptions()


def entries(path: str, name: str | None) -> dict[str, tuple[ArraySpec, CsvRows]]:
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
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise DataError(
            f"the delimiter of {path} must be one character, neither a quote nor a line end, not "
            f'{delimiter!r}; pass such as delimiter=";"'
        )
    _refuse_compressed(path)
    try:
        skip, names = _header(Path(path), options)
        width = _width(Path(path), delimiter, skip, names)
        columns = _columns(path, options.columns, names, width)
        rows = CsvRows(delimiter, skip, (), (), width, columns, options.missing, options.filling)
        scanner = TableTypeScanner(path, delimiter, dtype)
        if dtype is None and (columns or rows.has_number_for_missing):
            scanner = _scan_columns(Path(path), rows, scanner)
        index = _index_lines(path, skip, scanner)
        if index is None:
            scanner = TableTypeScanner(path, delimiter, dtype)
            index = _index_rows(Path(path), rows, scanner)
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not text in UTF-8: {error}; save it as UTF-8") from None
    except csv.Error as error:
        raise DataError(
            f"{path} is not a CSV file: {error}; correct it, or close the quotes of its fields"
        ) from None
    shape = (index.rows, len(columns) or width)
    rows = msgspec.structs.replace(
        rows, offsets=tuple(index.offsets), chunks=(index.rows_per_part, shape[1])
    )
    return ArraySpec(shape, _type_of(Path(path), rows, scanner)), rows


def _refuse_compressed(path: str) -> None:
    """Raise DataError for a compressed file, which cannot be divided over the workers."""
    with open(path, "rb") as file:
        if _COMPRESSED.match(file.read(16)):
            raise DataError(
                f"{path} is compressed, so workers cannot read their own rows; decompress it, as "
                f"with gunzip or xz -d, or read .gz, .bz2 or .xz in the controller: "
                f'mm.loadtxt(path, delimiter=",")'
            )


def _type_of(path: Path, rows: CsvRows, scanner: TableTypeScanner) -> DType:
    """Return the type of a table. Raises DataError for its first field that is not a number rather
    than for an integer that float64 would round."""
    try:
        return scanner.dtype
    except DataError:
        raise_first_fault(path, rows, np.dtype(float))
        raise


def _columns(
    path: str, chosen: Sequence[int | str] | None, names: Sequence[str], width: int
) -> tuple[int, ...]:
    """Return the positions of the columns that are read; () for all of them."""
    if chosen is None:
        return ()
    known = f"it has {width} columns" + (f": {', '.join(names)[:200]}" if names else "")
    positions = []
    for column in chosen:
        if isinstance(column, str):
            if column not in names:
                raise DataError(f"{path} has no column named {column!r}; {known}")
            positions.append(names.index(column))
            if (count := names.count(column)) > 1:
                raise DataError(
                    f"{path} has {count} columns named {column!r}; give the position of one"
                )
        elif -width <= column < width:
            positions.append(column % width)
        else:
            raise DataError(f"{path} has no column {column}; {known}")
    if not positions:
        raise DataError(f"{path}: usecols names no column; {known}")
    return tuple(positions)


def _scan_columns(path: Path, rows: CsvRows, scanner: TableTypeScanner) -> TableTypeScanner:
    """Pass the columns that are read to the scanner; return a scanner that knows their type."""
    for line, fields in iterate_rows(path, rows.delimiter):
        if line > rows.skip:
            _scan_row(scanner, fields, rows)
    return TableTypeScanner(str(path), rows.delimiter, _type_of(path, rows, scanner))


def _scan_row(scanner: TableTypeScanner, fields: Sequence[str], rows: CsvRows) -> None:
    """Pass those fields of a row that are read to the scanner; a missing value needs a type with
    NaN."""
    if rows.can_have_fields(len(fields)):
        chosen = [fields[column] for column in rows.columns or range(len(fields))]
        filled = ["nan" if field.strip() in rows.missing else field for field in chosen]
        scanner.add("\n".join(filled).encode())


def _width(path: Path, delimiter: str, skip: int, names: Sequence[str]) -> int:
    """Return the number of fields in the first row of data."""
    for line, fields in iterate_rows(path, delimiter):
        if line > skip:
            return len(fields)
    can_be_numbers = any(map(is_number, names))
    remedy = "pass header=False if its first row holds numbers" if can_be_numbers else "add rows"
    raise DataError(
        f"{path} has no rows beneath its header, {delimiter.join(names)[:80]!r}; {remedy}"
    )


@final
class _RowIndex(NamedTuple):
    """The number of rows, and the byte offsets of parts of equally many rows, and of the end."""

    rows: int
    rows_per_part: int
    offsets: list[int]


def _index_lines(path: str, skip: int, scanner: TableTypeScanner) -> _RowIndex | None:
    """Return the positions of the rows, from line ends; passes the text to the scanner.

    None if quotes or single carriage returns make the line ends ambiguous.
    """
    start = _data_begin(path, skip)
    with open(path, "rb") as file:
        file.seek(start)
        first = file.readline()
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
            scanner.add(lines)
            offsets += [start + int(begin) for begin in begins[-count % every :: every]]
            count, start = count + len(begins), start + len(lines)
    return _RowIndex(count, every, [*offsets, start])


def _data_begin(path: str | Path, skip: int) -> int:
    """Return the offset in bytes of the line after the first `skip` lines, each of which ends in a
    line feed, a carriage return or both."""
    with open(path, newline="", encoding="utf-8") as lines:
        return sum(len(lines.readline().encode()) for _ in range(skip))


def _line_begins(lines: bytes) -> NDArray[np.int64] | None:
    """Return the offsets of non-blank lines; None if quotes or carriage returns make them
    ambiguous."""
    text = np.frombuffer(lines, np.uint8)
    ends = np.flatnonzero(text == ord("\n"))
    returns = np.flatnonzero(text == ord("\r"))
    is_ambiguous = returns.size and not np.isin(returns + 1, ends, assume_unique=True).all()
    if b'"' in lines or is_ambiguous:
        return None
    begins = np.concatenate(([0], ends + 1))
    stops = np.concatenate((ends, [len(lines)]))
    stops = stops - np.isin(stops - 1, returns)
    return begins[begins < stops]


def _index_rows(path: Path, rows: CsvRows, scanner: TableTypeScanner) -> _RowIndex:
    """Return the positions of the rows by the CSV reader, with the whole file as one part."""
    count = 0
    for line, fields in iterate_rows(path, rows.delimiter):
        if line > rows.skip:
            count += 1
            _scan_row(scanner, fields, rows)
    return _RowIndex(count, count, [_data_begin(path, rows.skip), os.path.getsize(path)])


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
    folder, name = os.path.split(path)
    parts = [file for file in os.listdir(folder) if file.startswith(f"{name}.")]
    with open(path, "wb") as whole:
        for part in sorted(parts):
            with open(os.path.join(folder, part), "rb") as rows:
                shutil.copyfileobj(rows, whole, _BLOCK_BYTES)
            os.unlink(os.path.join(folder, part))


def _header(path: Path, options: CsvOptions) -> tuple[int, list[str]]:
    """Return the number of lines to skip, and the names of the columns; none without a header.

    Raises OptionError unless `options.header` is one of the documented values.
    """
    if options.header != "auto" and not isinstance(options.header, bool):
        raise OptionError(
            f'read_csv: header must be "auto", True or False, was given {options.header!r}'
        )
    first = next(iterate_rows(path, options.delimiter), None)
    if first is None:
        raise DataError(f"{path} is empty; give a file with at least one row")
    line, fields = first
    names = [field.strip() for field in fields]
    is_header = options.header
    if is_header == "auto":
        is_header = not any(map(is_number, names)) and not options.are_missing(names)
    return (line, names) if is_header else (0, [])
