"""Conversion of the errors of file libraries to DataError."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from magmath.errors import DataError, MagmathError


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
