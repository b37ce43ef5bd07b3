"""Short calls: NumPy's function in place of torch's, where arrays are short.

To call torch for a thousand numbers takes four times as long as to add them. A record that says so
(`Operation.brief`) has NumPy's function called on the same memory there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextvars import Context
from functools import partial
from typing import ParamSpec, TypeVar

import numpy as np
import torch

from magmath.core.dtypes import DTYPES, DType, bfloat16, complex64, complex128, float16
from magmath.graph.operation import NumpyUfunc

P = ParamSpec("P")
Result = TypeVar("Result")

_TYPES = frozenset(DTYPES.values()) - {float16, bfloat16, complex64, complex128}
_SILENT = Context()
_SILENT.run(np.seterr, all="ignore")


silent = _SILENT.copy
"""A context in which NumPy says nothing, for one call."""


def without_fp_warnings(
    function: Callable[P, Result], /, *args: P.args, **kwargs: P.kwargs
) -> Result:
    """Call a function in which NumPy says nothing of infinities, as torch does not: the result
    has them. (`np.errstate` does the same in ten times the time.)"""
    return silent().run(function, *args, **kwargs)


def is_faster_by_numpy(brief: NumpyUfunc, size: int, dtypes: Iterable[DType]) -> bool:
    """True if NumPy's function is the one to call for a result of this size, on the CPU, where
    result and operands have these types."""
    return 0 < size <= brief.most and _TYPES.issuperset(dtypes)


def numpy_call(
    brief: NumpyUfunc, out: torch.Tensor, inputs: Sequence[torch.Tensor]
) -> Callable[[], object]:
    """A ready call of NumPy's function, to be made `without_fp_warnings`."""
    return partial(brief.function, *[tensor.numpy() for tensor in inputs], out.numpy())
