"""One error for damaged files, whatever the libraries that read them raise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from magmath.errors import DataError, MagmathError


@contextmanager
def as_data_error(path: str, kind: str) -> Iterator[None]:
    """While a file of this kind ("a .npy file") is read: what goes wrong is a DataError.

    Libraries raise whatever comes out of the bytes that they are given, of any class.
    """
    try:
        yield
    except MagmathError:
        raise
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        raise DataError(f"{path} is not {kind}, or is damaged: {message}") from error
