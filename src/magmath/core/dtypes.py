"""Data types: the table of element types and the promotion rules of the array API standard.

A `DType` is plain data, named as NumPy and torch name it, so that it can stand in a graph, a
program or a message without any library. Mixed-kind promotion (integer with float) is an error in
the standard; Python scalars are weak and take the type of the array they meet.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from magmath.errors import DTypeError, RangeError


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """An element type: name, kind ("bool", "int", "uint", "float", "complex"), bytes.

    There is one object of each, so they are compared and hashed by identity, which is fast.
    """

    name: str
    kind: str
    itemsize: int

    def __reduce__(self) -> tuple[Callable[[str], DType], tuple[str]]:
        return _named, (self.name,)

    def __repr__(self) -> str:
        return f"magmath.{self.name}"

    def __str__(self) -> str:
        return self.name

    @property
    def is_floating(self) -> bool:
        """True for real floating point types."""
        return self.kind == "float"

    @property
    def is_numeric(self) -> bool:
        """True for every type but bool."""
        return self.kind != "bool"

    @property
    def is_integer(self) -> bool:
        """True for signed and unsigned integers."""
        return self.kind in ("int", "uint")


bool_ = DType("bool", "bool", 1)
int8 = DType("int8", "int", 1)
int16 = DType("int16", "int", 2)
int32 = DType("int32", "int", 4)
int64 = DType("int64", "int", 8)
uint8 = DType("uint8", "uint", 1)
uint16 = DType("uint16", "uint", 2)
uint32 = DType("uint32", "uint", 4)
uint64 = DType("uint64", "uint", 8)
float16 = DType("float16", "float", 2)
bfloat16 = DType("bfloat16", "float", 2)
float32 = DType("float32", "float", 4)
float64 = DType("float64", "float", 8)
complex64 = DType("complex64", "complex", 8)
complex128 = DType("complex128", "complex", 16)

DTYPES: dict[str, DType] = {
    dtype.name: dtype
    for dtype in (
        bool_, int8, int16, int32, int64, uint8, uint16, uint32, uint64,
        float16, bfloat16, float32, float64, complex64, complex128,
    )
}  # fmt: skip

_COMPLEX_PART = {complex64: float32, complex128: float64}

DEFAULT_FLOAT = float32
DEFAULT_INT = int64
DEFAULT_COMPLEX = complex64


def _named(name: str) -> DType:
    return DTYPES[name]


def as_dtype(value: object) -> DType:
    """The DType that `value` names: a DType, a name, or a NumPy, torch or Python type."""
    if isinstance(value, DType):
        return value
    if value is float:
        return DEFAULT_FLOAT
    if value is int:
        return DEFAULT_INT
    if value is complex:
        return DEFAULT_COMPLEX
    name = value if isinstance(value, str) else getattr(value, "name", None) or _type_name(value)
    dtype = DTYPES.get(name.removeprefix("torch."))
    if dtype is None:
        raise DTypeError(f"dtype {value!r} is not known; magmath has {', '.join(DTYPES)}")
    return dtype


def _type_name(value: object) -> str:
    return value.__name__ if isinstance(value, type) else str(value)


@cache
def promote(*dtypes: DType) -> DType:
    """The type that holds a result of these types (array API 2025.12, "Type Promotion Rules").

    Raises DTypeError where the standard leaves the result undefined: bool with numbers,
    integers with floats, uint64 with signed integers.
    """
    result = dtypes[0]
    for dtype in dtypes[1:]:
        result = _promote_pair(result, dtype)
    return result


def _promote_pair(a: DType, b: DType) -> DType:
    if a == b:
        return a
    kinds = {a.kind, b.kind}
    if kinds == {"int"} or kinds == {"uint"}:
        return max(a, b, key=lambda t: t.itemsize)
    if kinds == {"int", "uint"}:
        signed, unsigned = (a, b) if a.kind == "int" else (b, a)
        needed = max(signed.itemsize, 2 * unsigned.itemsize)
        if needed <= 8:
            return DTYPES[f"int{8 * needed}"]
    if kinds <= {"float", "complex"}:
        return _promote_inexact(a, b)
    raise DTypeError(
        f"types {a} and {b} have no common type in the array API standard; convert one of the "
        f"operands with mm.astype(x, …)"
    )


def _promote_inexact(a: DType, b: DType) -> DType:
    part_a, part_b = _COMPLEX_PART.get(a, a), _COMPLEX_PART.get(b, b)
    if part_a.itemsize == part_b.itemsize:  # float16 with bfloat16: only float32 holds both
        part = part_a if part_a == part_b else float32
    else:
        part = max(part_a, part_b, key=lambda t: t.itemsize)
    if "complex" not in (a.kind, b.kind):
        return part
    return complex128 if part == float64 else complex64


def scalar_dtype(value: bool | int | float | complex, other: DType) -> DType:
    """The type a Python scalar takes beside an array of type `other`."""
    if isinstance(value, bool):
        if other.kind == "bool":
            return other
    elif isinstance(value, int):
        if other.is_numeric:
            return other
    elif isinstance(value, float):
        if other.kind in ("float", "complex"):
            return other
    elif isinstance(value, complex):
        if other.kind == "complex":
            return other
        if other.kind == "float":
            return complex128 if other == float64 else complex64
    raise DTypeError(
        f"a Python {type(value).__name__} cannot be combined with an array of {other}; "
        f"convert the array with mm.astype(x, …)"
    )


@cache
def integer_bounds(dtype: DType) -> tuple[int, int]:
    """The least and the last number of an integer type."""
    bits = 8 * dtype.itemsize
    return (0, 2**bits - 1) if dtype.kind == "uint" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


_DIGITS = {float16: (11, 15), bfloat16: (8, 127), float32: (24, 127), float64: (53, 1023)}
_FLOATS = {  # the largest number, and the least that is rounded to infinity
    dtype: ((2 - 2.0 ** (1 - digits)) * 2.0**power, (2 ** (digits + 1) - 1) << (power - digits))
    for dtype, (digits, power) in _DIGITS.items()
}


def is_beyond(number: int, dtype: DType) -> int:
    """1 for a number above those that an integer type holds, -1 below, else 0."""
    if not dtype.is_integer:
        return 0
    least, last = integer_bounds(dtype)
    return (number > last) - (number < least)


def fitting(value: Any, dtype: DType, operation: str = "") -> Any:
    """A Python number as arrays of `dtype` hold it; infinite where floating point ends.

    Raises RangeError for a number that an integer type does not hold, as NumPy does.
    """
    if dtype.kind == "float":
        most, infinite = _FLOATS[dtype]
        if -most <= value <= most or value != value:
            return float(value)
        size = most if -infinite < value < infinite else math.inf
        return size if value > 0 else -size
    if dtype.is_integer:
        least, last = integer_bounds(dtype)
        if least <= value <= last:
            return value
        named = f"{operation}: " if operation else ""
        raise RangeError(
            f"{named}{value} does not fit {dtype}, which holds {least} to {last}; convert to a "
            f"wider type with mm.astype(x, …)"
        )
    if dtype.kind == "bool":
        return bool(value)
    part, value = _COMPLEX_PART[dtype], complex(value)
    return complex(fitting(value.real, part), fitting(value.imag, part))


NUMBERS = (bool, int, float, complex)
WIDEST: dict[type, DType] = {bool: bool_, int: int64, float: float64, complex: complex128}
"""The types that hold every number of Python's classes (integers: up to 64 bits)."""


@cache
def common_dtype(*kinds: DType | type) -> DType:
    """The type of a result of arrays of these types and of Python numbers of these classes.

    Numbers take the arrays' type; numbers alone give their default type. Raises DTypeError where
    the standard has no result.
    """
    dtypes = [kind for kind in kinds if isinstance(kind, DType)]
    numbers = [_number(kind) for kind in kinds if not isinstance(kind, DType)]
    dtype = promote(*dtypes) if dtypes else default_dtype(max(numbers, key=_rank))
    for number in numbers:
        dtype = promote(dtype, scalar_dtype(number, dtype))
    return dtype


def _number(kind: type) -> bool | int | float | complex:
    """A number of the class of Python's that `kind` is, or is derived from."""
    return next(base(0) for base in NUMBERS if issubclass(kind, base))


def _rank(number: bool | int | float | complex) -> int:
    return NUMBERS.index(type(number))


def default_dtype(value: bool | int | float | complex) -> DType:
    """The type of an array made from a Python scalar alone."""
    if isinstance(value, bool):
        return bool_
    if isinstance(value, int):
        return DEFAULT_INT
    return DEFAULT_FLOAT if isinstance(value, float) else DEFAULT_COMPLEX


def accumulator(dtype: DType) -> DType:
    """The type in which sums and products of `dtype` accumulate and are returned."""
    if dtype.kind == "bool":
        return DEFAULT_INT
    if dtype.kind == "int":
        return int64
    return uint64 if dtype.kind == "uint" else dtype


def widened(dtype: DType) -> DType:
    """The type in which what is stored as `dtype` is added up: float32 for half types."""
    return float32 if dtype in (float16, bfloat16) else dtype


def real_dtype(dtype: DType) -> DType:
    """The real type of the parts of `dtype`."""
    return _COMPLEX_PART.get(dtype, dtype)
