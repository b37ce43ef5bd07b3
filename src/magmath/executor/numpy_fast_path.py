"""NumPy fast path: calls of NumPy's functions instead of torch's, for short arrays.

A torch call for a thousand numbers takes four times as long as their addition. If the operation's
record has a NumPy function (`Operation.numpy_ufunc`), it is called on the same memory instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import Context
from functools import partial
from typing import ParamSpec, TypeVar

import numpy as np
import torch

from magmath.core.cpu import has_avx2, has_avx512
from magmath.core.dtypes import DTYPES, DType, bfloat16, complex64, complex128, float16
from magmath.core.type_aliases import BoundCall
from magmath.graph.numpy_ufunc import NumpyUfunc
from magmath.ops.elementwise.rows import SINGLE_THREAD_ELEMENTS

P = ParamSpec("P")
Result = TypeVar("Result")

_TYPES = frozenset(DTYPES.values()) - {float16, bfloat16, complex64, complex128}
_WITHOUT_WARNINGS = Context()
_WITHOUT_WARNINGS.run(np.seterr, all="ignore")


context_without_fp_warnings = _WITHOUT_WARNINGS.copy
"""Returns a new context for one call, in which NumPy emits no floating-point warnings: to enter a
context takes less time than `np.errstate`."""


def without_fp_warnings(
    function: Callable[P, Result], /, *args: P.args, **kwargs: P.kwargs
) -> Result:
    """Call a function without NumPy's floating-point warnings; like torch, the result then contains
    infinities or nan.

    `np.errstate` does the same but takes ten times as long.
    """
    return context_without_fp_warnings().run(function, *args, **kwargs)


def is_faster_by_numpy(ufunc: NumpyUfunc, size: int, dtypes: Sequence[DType]) -> bool:
    """Return True if NumPy's function is faster for a result of this size on the CPU, and supports
    these types of result and operands."""
    if not all(dtype in _TYPES and dtype.kind in ufunc.kinds for dtype in dtypes):
        return False
    if size <= ufunc.max_elements:
        return size > 0
    threads = 1 if size <= SINGLE_THREAD_ELEMENTS else torch.get_num_threads()
    is_narrow = any(dtype.itemsize == 1 for dtype in dtypes[1:])  # on which torch is as fast
    ratio = ufunc.avx512 if has_avx512() else ufunc.avx2 if has_avx2() else 0.0
    return ratio > threads and not is_narrow


def numpy_call(ufunc: NumpyUfunc, out: torch.Tensor, inputs: Sequence[torch.Tensor]) -> BoundCall:
    """Return a bound call of NumPy's function, which must run `without_fp_warnings`."""
    return partial(ufunc.function, *[tensor.numpy() for tensor in inputs], out.numpy())
