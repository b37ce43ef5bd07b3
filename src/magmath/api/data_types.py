"""Element types of the array API: their limits and kinds, type promotion, and conversion."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Number
from typing import Any, final

import numpy as np
import torch

from magmath.arrays.array import Array, as_array
from magmath.arrays.inputs.number_list import is_number
from magmath.arrays.traced_scalar import TracedScalar
from magmath.core.dtypes import DTYPES, KINDS, DType, as_dtype, bfloat16, float64, real_dtype
from magmath.core.promotion import common_dtype, promote
from magmath.core.shapes import normalize_axes, size_of
from magmath.engine.devices import check_device
from magmath.engine.user_line import user_line
from magmath.errors import DTypeError
from magmath.graph import apply
from magmath.memory.torch_dtypes import to_torch
from magmath.ops import elementwise as e


@final
@dataclass(frozen=True)
class finfo_object:
    """The limits of a floating point type; for a complex type, those of its parts."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType

    @property
    def tiny(self) -> float:
        """NumPy's other name of `smallest_normal`."""
        return self.smallest_normal


@final
@dataclass(frozen=True)
class iinfo_object:
    """The limits of an integer type."""

    bits: int
    max: int
    min: int
    dtype: DType


def astype(
    x: Array, /, dtype: DType | str | type, *, copy: bool = True, device: object = None
) -> Array:
    """Return x with its elements converted to `dtype`.

    Returns x itself if it has that type and `copy` is False.
    """
    x, element = as_array("astype", x), as_dtype(dtype)
    check_device("astype", device)
    if x.dtype is element and not copy:
        return x
    return Array(apply(e.ASTYPE, x.node, dtype=element, line=user_line()))


def can_cast(from_: Any, to: Any) -> bool:
    """Return True if the promotion rules take `from_`, a type or an array, to the type `to`; False
    for types of NumPy that do not exist here. Raises DTypeError for a name that is no type."""
    try:
        return promote(_dtype_of(from_), as_dtype(to)) is as_dtype(to)
    except DTypeError as error:
        if not all(_is_type_of_numpy(kind) for kind in (from_, to) if isinstance(kind, str)):
            raise DTypeError(f"can_cast: {error}") from None
        return False


def _is_type_of_numpy(name: str) -> bool:
    """Return True for the name of a type that magmath or NumPy has."""
    if name in DTYPES:
        return True
    try:
        np.dtype(name)
    except TypeError:
        return False
    return True


def finfo(type: Any, /) -> finfo_object:
    """Return the limits of a floating point type, or of the type of an array."""
    dtype = _dtype_of(type)
    if dtype.kind not in ("float", "complex"):
        raise DTypeError(f"finfo: takes floating point types, was given {dtype}; see mm.iinfo")
    part = real_dtype(dtype)
    info = torch.finfo(to_torch(part))
    return finfo_object(info.bits, info.eps, info.max, info.min, info.smallest_normal, part)


def iinfo(type: Any, /) -> iinfo_object:
    """Return the limits of an integer type, or of the type of an array."""
    dtype = _dtype_of(type)
    if not dtype.is_integer:
        raise DTypeError(f"iinfo: takes integer types, was given {dtype}; see mm.finfo")
    info = torch.iinfo(to_torch(dtype))
    return iinfo_object(info.bits, info.max, info.min, dtype)


def isdtype(dtype: Any, kind: Any) -> bool:
    """Return True if `dtype` is `kind`, or of that kind, or one of a tuple of types and kinds.

    The kinds: "bool", "signed integer", "unsigned integer", "integral", "real floating",
    "complex floating", "numeric".
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    element = as_dtype(dtype)
    return element.kind in KINDS[kind] if kind in KINDS else element is as_dtype(kind)


def result_type(*arrays_and_dtypes: Any) -> DType:
    """Return the element type of the result for operands of these arrays, types and numbers."""
    if not arrays_and_dtypes:
        raise TypeError(
            "result_type: needs at least one array, type or number"
            "; pass one, such as mm.result_type(x, mm.float32)"
        )
    values = [v.sample if isinstance(v, TracedScalar) else v for v in arrays_and_dtypes]
    kinds: list[DType | type] = [type(v) if is_number(v) else _dtype_of(v) for v in values]
    return common_dtype(*kinds)


def _dtype_of(value: Any) -> DType:
    """Return the type of an array, or the type that `value` names."""
    return as_dtype(value.dtype if isinstance(value, (Array, np.ndarray, np.generic)) else value)


def promote_types(type1: Any, type2: Any, /) -> DType:
    """Return the smallest type that holds the numbers of both."""
    return promote(as_dtype(type1), as_dtype(type2))


def min_scalar_type(a: Any, /) -> DType:
    """Return the smallest type that holds a number; the type of an array."""
    if isinstance(a, Array) and a.ndim:
        return a.dtype
    return as_dtype(np.min_scalar_type(a.numpy() if isinstance(a, Array) else a))


def common_type(*arrays: Any) -> DType:
    """Return the floating point type that holds the numbers of arrays; float64 for integers."""
    kinds = [_dtype_of(a) for a in arrays]
    return promote(*[float64 if kind.is_integer else kind for kind in kinds])


def issubdtype(arg1: Any, arg2: Any) -> bool:
    """Return True if the first type is the second, or belongs to the set of types that the second
    names, such as `mm.floating`."""
    first, second = (x if isinstance(x, type) else as_dtype(x) for x in (arg1, arg2))
    if second is bfloat16:  # NumPy lacks it
        return first is bfloat16
    types = [np.floating if x is bfloat16 else x for x in (first, second)]
    return bool(np.issubdtype(types[0], types[1]))


def ndim(a: Any) -> int:
    """Return the number of dimensions of an array, a number or nested lists."""
    return a.ndim if isinstance(a, Array) else as_array("ndim", a).ndim


def shape(a: Any) -> tuple[int, ...]:
    """Return the shape of an array, a number or nested lists."""
    return a.shape if isinstance(a, Array) else as_array("shape", a).shape


def size(a: Any, axis: int | tuple[int, ...] | None = None) -> int:
    """Return the number of elements, of an array or along some of its axes."""
    extents = shape(a)
    return size_of(extents[d] for d in normalize_axes("size", axis, len(extents)))


def isscalar(element: Any) -> bool:
    """Return True for Python's and NumPy's numbers and strings; a 0-d array is not a scalar."""
    return is_number(element) or isinstance(element, (np.generic, str, bytes, Number))
