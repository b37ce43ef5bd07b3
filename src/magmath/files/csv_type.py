"""The element type of a text table: the type that holds its numbers without rounding an integer.

The controller scans a table once, by operations on whole blocks of bytes; only integers of many
digits are parsed one by one.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from typing import final

from magmath.core.dtypes import DType, float64, int64, integer_bounds, uint64
from magmath.errors import DataError

_MANY_DIGITS = 16
"""2**53 has 16 digits: integers of fewer digits are exact in float64."""
_MAX_DIGITS = 300
"""Longer integers may be beyond float64."""


@final
class TableTypeScanner:
    """Determines the type of a table from its lines, or returns `known` if that is not None.

    The type is int64 if all fields are integers; uint64 if all are integers, some beyond int64 and
    none negative; float64 for all other tables, also those with empty fields.
    """

    def __init__(self, path: str, delimiter: str, known: DType | None) -> None:
        self._path = path
        self._known = known
        edges = b" \t\r\n" + delimiter.encode()
        self._integral = b"0123456789+-" + edges
        signs = b"+-" + edges
        self._shape = bytes.maketrans(b"123456789" + signs, b"0" * 9 + b"\n" * len(signs))
        self._blanks = bytes(set(b" \t") - set(delimiter.encode()))
        self._delimiter = delimiter.encode()
        edge = rb"[%s]" % re.escape(edges)
        self._long_integer = re.compile(
            rb"(?:^|(?<=%s))[+-]?\d{%d,}(?=%s|$)" % (edge, _MANY_DIGITS, edge)
        )
        self._all_integers = True
        self._any_negative = False
        self._smallest = self._largest = 0
        self._rounded = ""

    def add(self, text: bytes) -> None:
        """Scan some complete lines of the table."""
        if self._known is not None:
            return
        text = text.removeprefix(BOM_UTF8)
        if self._all_integers and (text.translate(None, self._integral) or self._has_gaps(text)):
            self._all_integers = False
        self._any_negative = self._any_negative or b"-" in text
        if b"\n" + b"0" * _MANY_DIGITS in b"\n" + text.translate(self._shape):
            for field in self._long_integer.findall(text):
                self._add_integer(field.decode())

    def _has_gaps(self, text: bytes) -> bool:
        """Return True if a field is empty."""
        text, mark = text.translate(None, self._blanks), self._delimiter
        gaps = (mark + mark, mark + b"\n", mark + b"\r", b"\n" + mark)
        return any(gap in text for gap in gaps) or text.startswith(mark) or text.endswith(mark)

    def _add_integer(self, field: str) -> None:
        long = len(field) > _MAX_DIGITS
        value = int(field[:_MAX_DIGITS])
        self._smallest, self._largest = min(self._smallest, value), max(self._largest, value)
        if not self._rounded and (long or int(float(field)) != value):
            self._rounded = field

    @property
    def dtype(self) -> DType:
        """The type of the table scanned so far.

        Raises DataError if it is float64 and one of the integers would be rounded.
        """
        if self._known is not None:
            return self._known
        if self._all_integers:
            for dtype in (int64,) if self._any_negative else (int64, uint64):
                first, last = integer_bounds(dtype)
                if first <= self._smallest and self._largest <= last:
                    return dtype
        if self._rounded:
            raise DataError(
                f"{self._path} has the integer {self._rounded[:40]} and numbers that no integer "
                "type can represent; float64 would round that integer: give a type, as in "
                f"mm.data.read_csv(path, delimiter={self._delimiter.decode()!r}, dtype='float64')"
            )
        return float64
