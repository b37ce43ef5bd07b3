"""Errors of files: those of file libraries as DataError, and those of single members of a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from magmath.errors import DataError, DTypeError, MagmathError

Entry = TypeVar("Entry")


@contextmanager
def as_data_error(path: str, kind: str) -> Iterator[None]:
    """Convert any exception in the block to a DataError for a file of this kind ("a .npy file").

    For damaged files, libraries raise exceptions of arbitrary classes.
    """
    try:
        yield
    except MagmathError:
        raise
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        raise DataError(f"{path} is not {kind}, or is damaged: {message}") from error


def entry_or_error(member: str, read: Callable[[], Entry]) -> Entry | MagmathError:
    """Return what `read` returns, or the error that it raises: other members of the file may be
    readable."""
    try:
        with as_data_error(member, "an array of numbers"):
            return read()
    except MagmathError as error:
        return error.with_traceback(None)  # whose frames would keep the file open


def require_readable(path: str, entries: Mapping[str, Entry | MagmathError]) -> dict[str, Entry]:
    """Return all members of a file.

    Raises an error that names those that cannot be read: DTypeError if all of these have other
    types, otherwise DataError.
    """
    errors = {name: e for name, e in entries.items() if isinstance(e, MagmathError)}
    readable = {name: e for name, e in entries.items() if not isinstance(e, MagmathError)}
    if not errors:
        return readable
    first = next(iter(errors.values()))
    if len(entries) == 1:
        raise first
    remedy = f"; load others by name, as in mm.load(path, {next(iter(readable))!r})"
    kind = DTypeError if all(isinstance(e, DTypeError) for e in errors.values()) else DataError
    raise kind(
        f"load: {path}: {len(errors)} of {len(entries)} members cannot be read: "
        f"{', '.join(errors)[:200]}{remedy if readable else ''} (the first error: {first})"
    )
