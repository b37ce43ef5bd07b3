"""Execution of a compiled function on all threads of a worker, by torch's OpenMP runtime.

torch's own kernels use the same threads, so no two sets of threads compete for the processors.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_info

from magmath.core.type_aliases import BoundCall


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


def bind_job(function: int, words: Sequence[int], counter: int, operands: object) -> BoundCall:
    """Return a bound call of the function at an address on all threads, as `run_on_threads`.

    `words`: the record; `counter`: the position in it of the counter from which the threads take
    work, which each call sets to 0; `operands`: the tensors whose addresses the record contains.
    """
    record = np.array(words, np.int64)
    return bind_record(function, record, record[counter : counter + 1], operands)


def bind_record(
    function: int, record: NDArray[np.int64], counter: NDArray[np.int64], operands: object
) -> BoundCall:
    """Return the call of `bind_job` for a record in memory, and a counter in it or elsewhere; it
    also holds `operands`."""
    address = int(record.ctypes.data)

    def run(memory: object = (record, operands)) -> None:  # the addresses hold no reference
        counter[0] = 0
        run_on_threads(function, address, torch.get_num_threads())

    return run


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
