"""Data types: the table of element types, lookup by name, and the range of each type.

A `DType` is plain data with the name that NumPy and torch use, so graphs, programs and messages
contain it without importing either library. `core/promotion.py` determines the types of results.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

from magmath.core.shown_value import shown
from magmath.errors import DTypeError, RangeError


@final
@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """An element type: name, kind ("bool", "int", "uint", "float", "complex"), bytes.

    Each type is a singleton, so `is` compares two of them. `==` also accepts everything that
    `as_dtype` accepts: `x.dtype == np.float64`, `x.dtype == "float64"` and `x.dtype == float` are
    true for a float64 array; any other value compares unequal. `np.dtype(x.dtype)` converts.

    A DType has the hash of the NumPy dtype of its name, so both are the same key of a dictionary.
    Names, classes and torch types compare equal but have other hashes, as with NumPy dtypes;
    convert such keys with `np.dtype` or use `.name`.
    """

    name: str
    kind: str
    itemsize: int
    _hash: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        own_hash = hash(self.name if self.name == "bfloat16" else np.dtype(self.name))
        object.__setattr__(self, "_hash", own_hash)

    def __eq__(self, other: object) -> bool:
        if self is other or isinstance(other, DType):
            return self is other
        return _lookup(other) is self and not _is_byte_swapped(other)

    def __hash__(self) -> int:
        return self._hash

    def __call__(self, value: Any = 0) -> Any:
        """Return a number as a NumPy scalar of this type, or an array converted to this type."""
        if hasattr(value, "__array_namespace__"):
            return value.astype(self)
        return self.dtype.type(value)

    @property
    def type(self) -> Any:
        """NumPy's class of numbers of this type: `x.dtype.type(1)`; DTypeError for bfloat16."""
        return self.dtype.type

    @property
    def char(self) -> str:
        """NumPy's letter of this type, which scipy.sparse reads; DTypeError for bfloat16."""
        return self.dtype.char

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype of this name; `np.dtype(x.dtype)` reads this property.

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

PYTHON_NUMBERS = (bool, int, float, complex)
DTYPE_OF_PYTHON: dict[type, DType] = {bool: bool_, int: int64, float: float64, complex: complex128}
"""The type that holds all numbers of each Python class (integers: up to 64 bits)."""

_COMPLEX_PART = {complex64: float32, complex128: float64}


def as_dtype(value: object) -> DType:
    """Return the DType of a DType, a NumPy or torch name, or a NumPy or torch dtype.

    Python's `bool`, `int`, `float` and `complex` are bool, int64, float64 and complex128. Raises
    DTypeError for any other value.
    """
    if isinstance(value, DType):
        return value
    dtype = _lookup(value)
    if dtype is None:
        is_value = isinstance(value, (int, float, list, tuple)) or hasattr(value, "shape")
        hint = "; values and extents are one argument, a list or a tuple" if is_value else ""
        raise DTypeError(
            f"dtype {shown(value)} is not known; magmath has {', '.join(DTYPES)}{hint}"
        )
    return dtype


def _lookup(value: object) -> DType | None:
    """Return the DType of a name, a class or a type of another library; None if there is none."""
    if isinstance(value, str):
        return DTYPES.get(value.removeprefix("torch.")) or _from_numpy(value)
    if isinstance(value, type):
        dtype = DTYPE_OF_PYTHON.get(value)
        return dtype or (_from_numpy(value) if issubclass(value, np.generic) else None)
    if isinstance(value, np.dtype):
        return DTYPES.get(value.name)
    name = str(value) if type(value).__module__ == "torch" else ""
    return DTYPES.get(name.removeprefix("torch."))


def stored_dtype(value: object) -> np.dtype[Any]:
    """Return the NumPy dtype of `as_dtype(value)`, in the byte order that `value` states."""
    dtype = as_dtype(value).dtype
    return dtype.newbyteorder() if _is_byte_swapped(value) else dtype


def _is_byte_swapped(value: object) -> bool:
    """Return True for a NumPy dtype in the foreign byte order. NumPy counts it as a different
    dtype, although the element type is the same."""
    if isinstance(value, str) and value[:1] in "<>":
        value = np.dtype(value)
    return isinstance(value, np.dtype) and not value.isnative


def _from_numpy(value: Any) -> DType | None:
    """Return the DType of any value that `np.dtype` accepts, in any byte order; None if
    unsupported."""
    try:
        return DTYPES.get(np.dtype(value).name)
    except (TypeError, ValueError):
        return None


_INTEGERS = {  # by name: hashing a type takes longer than the comparison
    dtype.name: (
        (0, 2 ** (8 * dtype.itemsize) - 1)
        if dtype.kind == "uint"
        else (-(2 ** (8 * dtype.itemsize - 1)), 2 ** (8 * dtype.itemsize - 1) - 1)
    )
    for dtype in DTYPES.values()
    if dtype.kind in ("int", "uint")
}


def integer_bounds(dtype: DType) -> tuple[int, int]:
    """Return the smallest and the largest number of an integer type."""
    return _INTEGERS[dtype.name]


_DIGITS = {float16: (11, 15), bfloat16: (8, 127), float32: (24, 127), float64: (53, 1023)}
_FLOATS = {  # the largest number, and the smallest that rounds to infinity
    dtype.name: (
        (2 - 2.0 ** (1 - digits)) * 2.0**power,
        (2 ** (digits + 1) - 1) << (power - digits),
    )
    for dtype, (digits, power) in _DIGITS.items()
}


def side_of_range(number: int, dtype: DType) -> int:
    """Return 1 for a number above the range of an integer type, -1 below it, 0 inside."""
    if not dtype.is_integer:
        return 0
    first, last = integer_bounds(dtype)
    return (number > last) - (number < first)


def convert_number(value: Any, dtype: DType, operation: str = "") -> Any:
    """Convert a Python number to the range of `dtype`; floating-point overflow gives infinity.

    Raises RangeError for a number outside the range of an integer type, as NumPy does.
    """
    if dtype.kind == "float":
        largest, infinite = _FLOATS[dtype.name]
        if -largest <= value <= largest or value != value:
            return float(value)
        size = largest if -infinite < value < infinite else math.inf
        return size if value > 0 else -size
    if dtype.is_integer:
        first, last = integer_bounds(dtype)
        if first <= value <= last:
            return value
        named = f"{operation}: " if operation else ""
        raise RangeError(
            f"{named}{value} does not fit {dtype}, which holds {first} to {last}; convert to a "
            f"wider type with mm.astype(x, …)"
        )
    if dtype.kind == "bool":
        return bool(value)
    part, value = _COMPLEX_PART[dtype], complex(value)
    return complex(convert_number(value.real, part), convert_number(value.imag, part))


_SAME_KIND_ORDER = ("bool", "uint", "int", "float", "complex")


def is_same_kind(source: DType, target: DType) -> bool:
    """Return True if NumPy's rule "same_kind" allows to convert `source` to `target`: to the same
    kind of numbers, or to a more general one."""
    return _SAME_KIND_ORDER.index(source.kind) <= _SAME_KIND_ORDER.index(target.kind)


def accumulator_dtype(dtype: DType) -> DType:
    """Return the type of sums and products of `dtype`."""
    if dtype.kind in ("bool", "int"):
        return int64
    return uint64 if dtype.kind == "uint" else dtype


def compute_dtype(dtype: DType) -> DType:
    """Return the type in which arithmetic on `dtype` is computed: float32 for half types."""
    return float32 if dtype is float16 or dtype is bfloat16 else dtype


def real_dtype(dtype: DType) -> DType:
    """Return the real type of the parts of `dtype`."""
    return _COMPLEX_PART.get(dtype, dtype)


def complex_dtype(dtype: DType) -> DType:
    """Return the complex type whose parts hold the numbers of a floating-point type."""
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
