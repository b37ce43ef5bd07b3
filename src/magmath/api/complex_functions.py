"""Functions of complex numbers, and tests whether numbers are real."""

from __future__ import annotations

from typing import Any

from magmath.api.creation import ones_like, zeros_like
from magmath.api.data_types import astype, finfo
from magmath.api.elementwise import abs, atan2, equal, imag, less, not_equal, real
from magmath.api.float_functions import rad2deg
from magmath.api.reductions import all
from magmath.api.sorting import sort
from magmath.arrays.array import Array, as_array, floating
from magmath.core.dtypes import bool_, complex_dtype
from magmath.core.promotion import floating_dtype


def angle(z: Any, deg: bool = False) -> Array:
    """Return the angle of each number in the complex plane, in radians or with `deg` in degrees."""
    x = floating("angle", z)
    angles = atan2(imag(x), real(x)) if x.dtype.kind == "complex" else atan2(zeros_like(x), x)
    return rad2deg(angles) if deg else angles


def isreal(x: Any) -> Array:
    """Return True where the imaginary part is 0."""
    x = as_array("isreal", x)
    return equal(imag(x), 0) if x.dtype.kind == "complex" else ones_like(x, dtype=bool_)


def iscomplex(x: Any) -> Array:
    """Return True where the imaginary part is not 0."""
    x = as_array("iscomplex", x)
    return not_equal(imag(x), 0) if x.dtype.kind == "complex" else zeros_like(x, dtype=bool_)


def iscomplexobj(x: Any) -> bool:
    """Return True for arrays of a complex type."""
    return as_array("iscomplexobj", x).dtype.kind == "complex"


def isrealobj(x: Any) -> bool:
    """Return True for arrays of a type that is not complex."""
    return not iscomplexobj(x)


def real_if_close(a: Any, tol: float = 100) -> Array:
    """Return the real parts if all imaginary parts are below `tol`, which counts in units of the
    machine epsilon where it is above 1. The values are computed."""
    x = as_array("real_if_close", a)
    if x.dtype.kind != "complex":
        return x
    limit = tol * finfo(x.dtype).eps if tol > 1 else tol
    return real(x) if all(less(abs(imag(x)), limit)) else x


def sort_complex(a: Any) -> Array:
    """Return x as complex numbers, sorted by the real part, then by the imaginary part."""
    x = floating("sort_complex", a)
    return sort(astype(x, complex_dtype(floating_dtype(x.dtype))))
