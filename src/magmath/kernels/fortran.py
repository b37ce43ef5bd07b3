"""BLAS and LAPACK by pointer: the routines of SciPy's OpenBLAS on tensors, called from Python.

Fortran stores a matrix by columns, so it sees the transpose of a tensor's rows.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import torch
from torch import Tensor

_LETTERS = {
    torch.float32: "s",
    torch.float64: "d",
    torch.complex64: "c",
    torch.complex128: "z",
}


def takes(tensor: Tensor) -> bool:
    """True for tensors that these routines can compute on: in the host's memory."""
    return tensor.device.type == "cpu"


def call(routine: str, like: Tensor, *arguments: Tensor | int | bytes) -> int:
    """Call LAPACK's `routine` for the type of `like`; its `info`, which is the last argument."""
    info = torch.zeros((), dtype=torch.int32)
    invoke(routine, like, *arguments, info)
    return int(info)


def invoke(routine: str, like: Tensor, *arguments: Tensor | int | bytes) -> None:
    """Call a routine of LAPACK; Fortran takes every argument by reference."""
    _routine(f"{_LETTERS[like.dtype]}{routine}")(*map(_reference, arguments))


def _reference(argument: Tensor | int | bytes) -> Any:
    if isinstance(argument, Tensor):
        return ctypes.c_void_p(argument.data_ptr())
    if isinstance(argument, bytes):
        return ctypes.c_char_p(argument)
    return ctypes.byref(ctypes.c_int(argument))


@cache
def _routine(name: str) -> Any:
    """A Fortran routine of SciPy's BLAS or LAPACK; other Python threads go on while it runs."""
    return ctypes.CFUNCTYPE(None)(address_of(name))


@cache
def address_of(name: str) -> int:
    """Where a Fortran routine of SciPy's BLAS or LAPACK is."""
    from scipy.linalg import cython_blas, cython_lapack

    from magmath.kernels.threads import limit_loaded

    capsule = {**cython_lapack.__pyx_capi__, **cython_blas.__pyx_capi__}[name]
    name_of, pointer_of = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    signature = name_of(capsule)
    if b"int *" not in signature:
        raise ImportError(
            f"SciPy's {name} has the signature {signature.decode()}; magmath needs a SciPy whose "
            f"LAPACK takes 32-bit integers, as the wheels on PyPI do"
        )
    limit_loaded()
    return int(pointer_of(capsule, signature))
