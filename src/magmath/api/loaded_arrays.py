"""The arrays of a file with named arrays, as `load` returns them."""

from __future__ import annotations

from typing import final

from magmath.arrays.array import Array


@final
class LoadedArrays(dict[str, Array]):
    """A dictionary of arrays by name, with the attributes of `numpy.load`'s result: `files`, and
    `close` or a `with` statement, which have no effect, since no file stays open."""

    @property
    def files(self) -> list[str]:
        """The names of the arrays."""
        return list(self)

    def close(self) -> None:
        """Have no effect: the file is closed."""

    def __enter__(self) -> LoadedArrays:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
