"""The protocols by which other libraries read arrays, and which the array API requires: those of
NumPy, DLPack, devices, and copies of the values in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import DTypeLike

from magmath.arrays.exports.dlpack import CPU, to_dlpack
from magmath.arrays.lazy_array import LazyArray
from magmath.arrays.protocols.namespace import array_namespace
from magmath.arrays.protocols.numpy_protocols import call_function, call_ufunc
from magmath.core.dtypes import bfloat16
from magmath.engine.devices import check_device, current_device


class InterchangeProtocols(LazyArray):
    """What other libraries ask of an array."""

    __slots__ = ()

    @property
    def device(self) -> str:
        """The device kind of the workers."""
        return current_device()

    def to_device(self, device: object, /, *, stream: Any = None) -> Self:
        """Return this array if `device` is the pool's device, otherwise raise DeviceError."""
        check_device("to_device", device)
        if stream is not None:
            raise ValueError(
                f"to_device: takes no stream, was given {stream!r}; leave `stream` out"
            )
        return self

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        return array_namespace(api_version)

    def __array__(
        self, dtype: DTypeLike | None = None, copy: bool | None = None
    ) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError(
                "the workers store the array: NumPy needs a copy of it"
                "; leave `copy` out, or use np.asarray(x)"
            )
        values = self.numpy()
        return values if dtype is None else values.astype(dtype, copy=False)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        return call_ufunc(ufunc, method, inputs, options)

    def __array_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any],
        options: Mapping[str, Any],
    ) -> Any:
        if not all(issubclass(x, (LazyArray, np.ndarray)) for x in types):
            return NotImplemented
        return call_function(function, args, options)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        return to_dlpack(self, stream, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU

    def tobytes(self, order: Literal["C", "F", "A", "K"] = "C") -> bytes:
        """Return the values as bytes in native byte order, `nbytes` of them, by rows ("C") or by
        columns ("F").

        Arrays have no order in memory, so "A" and "K" mean "C"; NumPy's "A" of x.T means "F".
        """
        return _stored_values(self).tobytes(order)

    def __bytes__(self) -> bytes:
        return self.tobytes()

    def tofile(self, fid: Any, sep: str = "", format: str = "%s") -> None:
        """Write the values, fetched to this process, as bytes or text to a file, as NumPy does."""
        values = self.numpy() if sep else _stored_values(self)
        values.tofile(fid, sep, format)

    def tolist(self) -> Any:
        """Return the values as nested Python lists."""
        return self.numpy().tolist()

    @property
    def itemsize(self) -> int:
        """The size of an element in bytes."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """The size of all elements in bytes."""
        return self.size * self.dtype.itemsize


def _stored_values(array: LazyArray) -> np.ndarray[Any, Any]:
    """Return the values in elements of the array's size: those of bfloat16, which NumPy lacks, as
    integers of 16 bits, the upper halves of the same numbers in float32."""
    values = array.numpy()
    if array.dtype is not bfloat16:
        return values
    return np.asarray(values.view(np.uint32) >> 16, np.uint16)
