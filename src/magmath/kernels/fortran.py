"""BLAS and LAPACK routines on tensors, called by pointer from Python.

Two libraries provide them: the OpenBLAS in SciPy, and the library that torch was built with,
usually Intel's MKL. Both have the same interface. Fortran stores matrices by columns, so a routine
reads a row-major tensor as its transpose.
"""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

import torch
from torch import Tensor

from magmath.errors import RangeError
from magmath.kernels.scipy_openblas import scipy_routine

SCIPY: Final = "scipy"
TORCH: Final = "torch"

Argument = Tensor | int | bytes | ctypes.c_int

_LETTERS = {
    torch.float32: "s",
    torch.float64: "d",
    torch.complex64: "c",
    torch.complex128: "z",
}
_OF_COMPLEX = {"syevd": "heevd", "orgqr": "ungqr"}
"""Routines that have a different name for complex numbers."""


def is_in_host_memory(tensor: Tensor) -> bool:
    """Return True for a tensor in host memory, where these routines compute."""
    return tensor.device.type == "cpu"


def has_routines(library: str, dtype: torch.dtype, *routines: str) -> bool:
    """Return True if a library has these routines for a type."""
    return all(LIBRARIES[library](_name(routine, dtype)) for routine in routines)


def call(routine: str, like: Tensor, *arguments: Argument, library: str = SCIPY) -> int:
    """Call LAPACK's `routine` for the type of `like`; append its last argument `info` and return
    the value."""
    info = torch.zeros((), dtype=torch.int32)
    invoke(routine, like, *arguments, info, library=library)
    return int(info)


def call_with_work(
    routine: str, like: Tensor, *arguments: Argument, after: tuple[Argument, ...] = (), library: str
) -> int:
    """Call LAPACK's `routine` with the workspace size that it requests; return its `info`. The
    workspace and its size precede the arguments `after`."""
    size = like.new_empty(1)
    call(routine, like, *arguments, size, -1, *after, library=library)
    elements = workspace_elements(size)
    extent = workspace_extent(elements)
    return call(
        routine, like, *arguments, like.new_empty(elements), extent, *after, library=library
    )


def workspace_extent(elements: int) -> ctypes.c_int:
    """Return the size of a workspace as an argument. It may have up to 2³² - 2 elements: LAPACK
    computes the sizes that it compares in 32 bits too, so both wrap, and -1 is a request for the
    size. Raises RangeError beyond."""
    check_extent(elements, 2**32 - 1)
    return ctypes.c_int(elements)


def workspace_elements(size: Tensor) -> int:
    """Return the elements of a workspace whose size LAPACK has stored as a number of its type.

    A float32 does not contain every integer beyond 2²⁴, and some versions of LAPACK round the size
    down, so that it is increased by the distance to the next number.
    """
    value = size.real.reshape(())
    return max(1, math.ceil(torch.nextafter(value, torch.full_like(value, math.inf)).item()))


def invoke(routine: str, like: Tensor, *arguments: Argument, library: str = SCIPY) -> None:
    """Call a routine of BLAS or LAPACK. All arguments are passed by reference, as in Fortran."""
    _routine(_name(routine, like.dtype), library)(*map(_reference, arguments))


def _name(routine: str, dtype: torch.dtype) -> str:
    name = _OF_COMPLEX.get(routine, routine) if dtype.is_complex else routine
    return f"{_LETTERS[dtype]}{name}"


def _reference(argument: Argument) -> Any:
    """Return a pointer to an argument. Raises RangeError for an integer that 32 bits do not
    hold."""
    if isinstance(argument, Tensor):
        return ctypes.c_void_p(argument.data_ptr())
    if isinstance(argument, bytes):
        return ctypes.c_char_p(argument)
    if isinstance(argument, ctypes.c_int):
        return ctypes.byref(argument)
    check_extent(argument)
    return ctypes.byref(ctypes.c_int(argument))


def check_extent(argument: int, stop: int = 2**31) -> None:
    """Raise RangeError for an integer argument that is not less than `stop`, or that 32 bits do
    not hold."""
    if not -(2**31) <= argument < stop:
        raise RangeError(
            f"a matrix is too large for LAPACK: its integers have 32 bits, a size is {argument}"
        )


@cache
def _routine(name: str, library: str) -> Any:
    """Return a Fortran routine that releases the GIL while it runs."""
    return ctypes.CFUNCTYPE(None)(address_of(name, library))


def address_of(name: str, library: str = SCIPY) -> int:
    """Return the address of a Fortran routine. Raises ImportError if the library has none."""
    address = LIBRARIES[library](name)
    if not address:
        raise ImportError(f"the LAPACK of {library} has no {name}")
    return address


@cache
def _in_scipy(name: str) -> int:
    """Return the address of a routine in SciPy's BLAS or LAPACK; 0 if it has none."""
    from magmath.kernels.thread_count import limit_loaded

    address = scipy_routine(name)
    limit_loaded()
    return address


@cache
def _in_torch(name: str) -> int:
    """Return the address of a routine in torch's library, which exports the routines that it uses.
    0 if it has none, or if the library is not MKL, whose integers are known to have 32 bits."""
    library = mkl()
    if library is None:
        return 0
    try:
        return ctypes.cast(library[f"{name}_"], ctypes.c_void_p).value or 0
    except AttributeError:
        return 0


@cache
def mkl() -> ctypes.CDLL | None:
    """Return the library of torch that contains MKL; None if there is no MKL."""
    path = os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so")
    try:
        library = ctypes.CDLL(path)
    except OSError:
        return None
    return library if hasattr(library, "MKL_Set_Num_Threads_Local") else None


LIBRARIES: Final[Mapping[str, Callable[[str], int]]] = {SCIPY: _in_scipy, TORCH: _in_torch}
"""For each library, the function that returns the address of a routine, or 0."""
