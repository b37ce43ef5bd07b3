"""Execution of a compiled function on all threads of a worker, by torch's OpenMP runtime.

torch's own kernels use the same threads, so no two sets of threads compete for the processors.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import Any

import torch
from threadpoolctl import threadpool_info


def run_on_threads(function: int, record: int, threads: int) -> None:
    """Call the function at an address on several threads at once, and wait for all of them. Each
    call receives the address `record`.

    Without an OpenMP runtime, one call is made. The function must therefore do all the work in any
    number of calls: each call takes parts of the work from a counter in the record.
    """
    parallel = _parallel()
    if threads == 1 or parallel is None:
        _PROTOTYPE(function)(record)
    else:
        parallel(function, record, threads, 0)


_PROTOTYPE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@cache
def _parallel() -> Any:
    """Return GOMP_parallel(function, argument, threads, flags) of torch's OpenMP runtime, or None.
    LLVM's and Intel's runtimes have it too.

    Other packages, such as scikit-learn, contain their own runtimes, with other threads. If
    torch contains none, it uses that of the system.
    """
    torch_folder = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
    runtimes = [library for library in threadpool_info() if library["user_api"] == "openmp"]
    paths = [library["filepath"] for library in runtimes]
    for path in [path for path in paths if path.startswith(torch_folder)] or paths:
        library = ctypes.CDLL(path)
        if hasattr(library, "GOMP_parallel"):
            function = library.GOMP_parallel
            function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
            function.restype = None
            return function
    return None
