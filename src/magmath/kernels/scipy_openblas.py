"""The OpenBLAS in SciPy's packages, loaded without the Python modules of SciPy.

To import `scipy.linalg` takes a third of a second, most of it for modules that have nothing to do
with BLAS; to load the library takes a few milliseconds. Where it is not found, as in a SciPy that a
distribution has built, the routines are those that `scipy.linalg` exports.
"""

from __future__ import annotations

import ctypes
from functools import cache
from importlib.util import find_spec
from pathlib import Path

_FILES = "scipy.libs/libscipy_openblas-*.so*"
"""In the folder of the package scipy; a library with 64-bit integers has another name."""


@cache
def scipy_openblas() -> ctypes.CDLL | None:
    """Return the library, None if it is not where SciPy's wheels have it. If it is, it is loaded
    afterwards in any case."""
    spec = find_spec("scipy")
    if spec is None or spec.origin is None:
        return None
    paths = sorted(Path(spec.origin).parents[1].glob(_FILES))
    try:
        return ctypes.CDLL(str(paths[0])) if len(paths) == 1 else None
    except OSError:
        return None


def load_blas_of_scipy() -> None:
    """Load the library from which SciPy has its BLAS, so that its threads can be limited."""
    if scipy_openblas() is None:
        import scipy.linalg.cython_blas  # noqa: F401


@cache
def scipy_routine(name: str) -> int:
    """Return the address of a routine of BLAS or LAPACK; 0 if SciPy has none."""
    library = scipy_openblas()
    if library is None:
        return _exported_routine(name)
    try:
        return ctypes.cast(library[f"scipy_{name}_"], ctypes.c_void_p).value or 0
    except AttributeError:
        return 0


def _exported_routine(name: str) -> int:
    """Return the address of a routine that `scipy.linalg` exports for Cython; 0 if there is none.
    Raises ImportError for routines whose integers have 64 bits."""
    from scipy.linalg import cython_blas, cython_lapack

    capsule = {**cython_lapack.__pyx_capi__, **cython_blas.__pyx_capi__}.get(name)
    if capsule is None:
        return 0
    name_of, pointer_of = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    signature = name_of(capsule)
    if b"int *" not in signature:
        raise ImportError(
            f"SciPy's {name} has the signature {signature.decode()}; magmath needs a SciPy whose "
            f"LAPACK takes 32-bit integers, as the wheels on PyPI have"
        )
    return int(pointer_of(capsule, signature))
