"""Data types: the table of element types, the ways to name one, and what each type holds.

A `DType` is plain data, named as NumPy and torch name it, so that it can be part of a graph, a
program or a message without any library. `core/promotion.py` has the types of results.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from magmath.errors import DTypeError, RangeError


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """An element type: name, kind ("bool", "int", "uint", "float", "complex"), bytes.

    There is one object of each, so `is` compares two of them. `==` also takes all that `as_dtype`
    does: `x.dtype == np.float64`, `x.dtype == "float64"` and `x.dtype == float` are true of a
    float64 array; it is False, and no error, for anything else. `np.dtype(x.dtype)` converts.

    A DType hashes as NumPy's dtype object of its name, so that either finds the other in a
    dictionary or a set. Names, classes and torch's types have hashes of their own although they
    compare equal, as with NumPy's dtypes; convert such keys with `np.dtype` or look up `.name`.
    """

    name: str
    kind: str
    itemsize: int
    _hash: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        known = hash(self.name if self.name == "bfloat16" else np.dtype(self.name))
        object.__setattr__(self, "_hash", known)

    def __eq__(self, other: object) -> bool:
        if self is other or isinstance(other, DType):
            return self is other
        return _named(other) is self and not _is_swapped(other)

    def __hash__(self) -> int:
        return self._hash

    def __call__(self, value: Any = 0) -> Any:
        """A number of this type, as NumPy has it; an array converted to this type."""
        if hasattr(value, "__array_namespace__"):
            return value.astype(self)
        return self.dtype.type(value)

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's type of this name, which makes `np.dtype(x.dtype)` work.

        Raises DTypeError for bfloat16, which NumPy lacks.
        """
        if self.name == "bfloat16":
            raise DTypeError(
                "NumPy has no bfloat16; convert the array with mm.astype(x, mm.float32), which "
                "holds all of its numbers"
            )
        return np.dtype(self.name)

    def __reduce__(self) -> tuple[Callable[[str], DType], tuple[str]]:
        return as_dtype, (self.name,)

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

NUMBERS = (bool, int, float, complex)
WIDEST: dict[type, DType] = {bool: bool_, int: int64, float: float64, complex: complex128}
"""The types that hold every number of Python's classes (integers: up to 64 bits)."""

_COMPLEX_PART = {complex64: float32, complex128: float64}


def as_dtype(value: object) -> DType:
    """The DType that `value` names: a DType, a name of NumPy's or torch's, or one of their types.

    Python's `bool`, `int`, `float` and `complex` are bool, int64, float64 and complex128. Raises
    DTypeError for anything else.
    """
    if isinstance(value, DType):
        return value
    dtype = _named(value)
    if dtype is None:
        raise DTypeError(f"dtype {value!r} is not known; magmath has {', '.join(DTYPES)}")
    return dtype


def _named(value: object) -> DType | None:
    """The DType that a name, a class or a type of another library stands for; None if none."""
    if isinstance(value, str):
        return DTYPES.get(value.removeprefix("torch.")) or _of_numpy(value)
    if isinstance(value, type):
        known = WIDEST.get(value)
        return known or (_of_numpy(value) if issubclass(value, np.generic) else None)
    if isinstance(value, np.dtype):
        return DTYPES.get(value.name)
    name = str(value) if type(value).__module__ == "torch" else ""
    return DTYPES.get(name.removeprefix("torch."))


def _is_swapped(value: object) -> bool:
    """True for NumPy's types in the byte order that is not this machine's: another type to NumPy,
    but not another element type."""
    if isinstance(value, str) and value[:1] in "<>":
        value = np.dtype(value)
    return isinstance(value, np.dtype) and not value.isnative


def _of_numpy(value: Any) -> DType | None:
    """The DType of what NumPy takes for a dtype, in any byte order."""
    try:
        return DTYPES.get(np.dtype(value).name)
    except (TypeError, ValueError):
        return None


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


def accumulator(dtype: DType) -> DType:
    """The type in which sums and products of `dtype` accumulate and are returned."""
    if dtype.kind in ("bool", "int"):
        return int64
    return uint64 if dtype.kind == "uint" else dtype


def widened(dtype: DType) -> DType:
    """The type in which what is stored as `dtype` is added up: float32 for half types."""
    return float32 if dtype is float16 or dtype is bfloat16 else dtype


def real_dtype(dtype: DType) -> DType:
    """The real type of the parts of `dtype`."""
    return _COMPLEX_PART.get(dtype, dtype)


def complex_dtype(dtype: DType) -> DType:
    """The complex type whose parts hold the numbers of a floating point type."""
    if dtype.kind == "complex":
        return dtype
    return complex128 if dtype is float64 else complex64


KINDS: dict[str, frozenset[str]] = {
    "bool": frozenset({"bool"}),
    "signed integer": frozenset({"int"}),
    "unsigned integer": frozenset({"uint"}),
    "integral": frozenset({"int", "uint"}),
    "real floating": frozenset({"float"}),
    "complex floating": frozenset({"complex"}),
    "numeric": frozenset({"int", "uint", "float", "complex"}),
}
"""The array API's names for sets of element types, and the kinds in each."""
