"""Type promotion: each rule in one function.

* `promote`: arrays of two types give the smallest type that holds both: the table of the array API
  standard, and for integers with floating point that of NumPy.
* `floating_dtype`: integers of 32 and 64 bits that must become floating point (quotients, means,
  roots, a Python float as the other operand) become float64, smaller ones and bool the default.
* `common_dtype`: Python numbers take the type of the arrays that they are combined with, and
  numbers alone the default type of their class.

The default floating point type is the only state here. No cache may ignore it: functions that
depend on it pass it to cached ones as an argument.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import final

from magmath.core.dtypes import (
    DTYPES,
    PYTHON_NUMBERS,
    DType,
    as_dtype,
    bool_,
    complex64,
    complex128,
    complex_dtype,
    float32,
    float64,
    int64,
    real_dtype,
)
from magmath.errors import DTypeError

_ORDER = {"bool": 0, "uint": 1, "int": 1, "float": 2, "complex": 3}  # of kinds in promotion


@final
@dataclass
class Default:
    """The floating-point type of numbers without an explicit type."""

    floating: DType = float32


DEFAULT = Default()


def set_default_dtype(dtype: object, /) -> None:
    """Set the type of Python floats, mm.float32 or mm.float64: numbers and lists of them in
    `asarray`, `zeros`, `ones`, `linspace`, `mm.random`, parameters of networks built later, and
    results of small integers that become floating point.

    Python complex numbers become complex64 or complex128 accordingly; Python integers stay int64.
    Existing arrays keep their type. Compiled functions are traced again. Raises DTypeError for any
    other type.
    """
    try:
        element = as_dtype(dtype)
    except DTypeError as error:
        raise DTypeError(f"set_default_dtype: {error}") from None
    if element is not float32 and element is not float64:
        raise DTypeError(
            f"set_default_dtype: the default is float32 or float64, was given {element}; give "
            f"other types where an array is made, as in mm.zeros(3, dtype=mm.{element})"
        )
    DEFAULT.floating = element


def get_default_dtype() -> DType:
    """Return the type of Python floats: float32 unless `set_default_dtype` changed it."""
    return DEFAULT.floating


def default_complex_dtype() -> DType:
    """Return the type of Python complex numbers."""
    return complex_dtype(DEFAULT.floating)


def floating_dtype(dtype: DType) -> DType:
    """Return the floating-point type of an operation on `dtype` that needs floating point.

    It is float64 for integers of 32 and 64 bits, the default type for smaller integers and bool,
    and `dtype` itself if it is floating point."""
    if dtype.kind in ("float", "complex"):
        return dtype
    return float64 if dtype.itemsize >= 4 else DEFAULT.floating


def promote(*dtypes: DType) -> DType:
    """Return the type of a result of arrays of these types.

    Within bool, integers, floating point and complex this is the table of the array API standard
    2025.12. Across them, which the standard leaves open, it is NumPy's: bool gives way to numbers;
    integers of 8 bits take the other's floating point type, those of 16 bits need float32, larger
    ones float64. With floating point each integer type counts on its own, so that the order of the
    arguments does not matter: int8, uint8 and float16 give float16, though int16 holds the first
    two. Raises DTypeError for uint64 with signed integers, which no integer type holds.
    """
    return _promote(*dict.fromkeys(dtypes))  # a key of the cache has each type once


@cache
def _promote(*dtypes: DType) -> DType:
    common, *others = sorted(dtypes, key=_order, reverse=True)
    for other in others:
        common = _promote_pair(*sorted((common, other), key=_order))
    return common


def _order(dtype: DType) -> int:
    return _ORDER[dtype.kind]


def _promote_pair(a: DType, b: DType) -> DType:
    """Return the common type of two types; the kind of the second is not lower than of the
    first."""
    if a is b or a is bool_:
        return b
    if not a.is_integer:
        return _promote_inexact(a, b)
    if not b.is_integer:
        exact = {1: b, 2: float32}.get(a.itemsize, float64)  # holds all integers of 8 or 16 bits
        return _promote_inexact(exact, b)
    if a.kind == b.kind:
        return max(a, b, key=lambda t: t.itemsize)
    signed, unsigned = (a, b) if a.kind == "int" else (b, a)
    needed = max(signed.itemsize, 2 * unsigned.itemsize)
    if needed <= 8:
        return DTYPES[f"int{8 * needed}"]
    raise DTypeError(
        f"types {a} and {b} have no common type: no integer type holds the numbers of both; "
        f"convert one of the operands with mm.astype(x, …)"
    )


def _promote_inexact(a: DType, b: DType) -> DType:
    part_a, part_b = real_dtype(a), real_dtype(b)
    if part_a.itemsize == part_b.itemsize:  # float16 with bfloat16: only float32 holds both
        part = part_a if part_a is part_b else float32
    else:
        part = max(part_a, part_b, key=lambda t: t.itemsize)
    if "complex" not in (a.kind, b.kind):
        return part
    return complex128 if part is float64 else complex64


def scalar_dtype(number: type, array_dtype: DType) -> DType:
    """Return the type of a Python number of class `number` combined with an array of this type:
    the type of the array if its kind holds such numbers."""
    if issubclass(number, int):
        return int64 if array_dtype is bool_ and not issubclass(number, bool) else array_dtype
    floating = floating_dtype(array_dtype)
    return complex_dtype(floating) if issubclass(number, complex) else floating


def number_dtype(number: type) -> DType:
    """Return the type of an array of Python numbers of this class."""
    return (bool_, int64, DEFAULT.floating, default_complex_dtype())[_rank(number)]


def _rank(number: type) -> int:
    """Return the position in `PYTHON_NUMBERS` of the base class of `number`."""
    return next(i for i, base in enumerate(PYTHON_NUMBERS) if issubclass(number, base))


def common_dtype(*kinds: DType | type) -> DType:
    """Return the type of a result of arrays of these types and Python numbers of these classes.

    Numbers take the type of the arrays if its kind holds them; numbers alone give the default type.
    Raises DTypeError as `promote`.
    """
    return _common_dtype(DEFAULT.floating, *dict.fromkeys(kinds))


@cache
def _common_dtype(default: DType, *kinds: DType | type) -> DType:
    """Implement `common_dtype`; `default` is part of the cache key, since results depend on it."""
    dtypes = [kind for kind in kinds if isinstance(kind, DType)]
    numbers = [kind for kind in kinds if not isinstance(kind, DType)]
    if not numbers:
        return promote(*dtypes)
    number = max(numbers, key=_rank)
    return scalar_dtype(number, promote(*dtypes)) if dtypes else number_dtype(number)
