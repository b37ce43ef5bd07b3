"""How reductions combine the contributions of ranks: a table of names, and one loop.

Contributions are combined in ascending order of ranks, in blocks that stay in the processor's
cache, so the bits of a result depend on nothing but the contributions. Half types are widened to
float32 and rounded once at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from magmath.errors import DTypeError

Array: TypeAlias = NDArray[Any]
Reducer: TypeAlias = Callable[[Array, Sequence[Array]], None]
"""reduce(out, sources): flat arrays of one length; `out` may be one of the sources."""

_NUMERIC: dict[str, np.ufunc] = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}
_LOGICAL: dict[str, np.ufunc] = {"any": np.logical_or, "all": np.logical_and}
HALF = (torch.float16, torch.bfloat16)
"""Types that are combined in float32."""
_BLOCK_BYTES = 1 << 17


def check_reduction(operation: str, dtype: torch.dtype, op: str) -> None:
    """Raise DTypeError where `op` is no reduction, or not one of this dtype."""
    if op not in _NUMERIC and op not in _LOGICAL:
        names = ", ".join([*_NUMERIC, *_LOGICAL])
        raise DTypeError(f"{operation} knows the reductions {names}, not {op!r}")
    if (op in _LOGICAL) != (dtype is torch.bool):
        kind = "bool" if op in _LOGICAL else "a number type"
        raise DTypeError(f"{operation} with {op!r} needs tensors of {kind}, not {dtype}")
    if dtype.is_complex and op in ("max", "min"):
        raise DTypeError(f"{operation} with {op!r}: {dtype} has no order; reduce real parts")


def flat_array(tensor: Tensor) -> Array:
    """The elements of a contiguous host tensor as a flat array; half types as raw uint16."""
    raw = tensor.view(torch.uint16) if tensor.dtype in HALF else tensor
    return raw.numpy().reshape(-1)


@cache
def reducer(dtype: torch.dtype, op: str) -> Reducer:
    """The function that combines flat arrays of `dtype` (as `flat_array` gives them) by `op`."""
    combine = _LOGICAL[op] if op in _LOGICAL else _NUMERIC[op]
    one_block = _half_block(dtype, combine) if dtype in HALF else _block(combine)
    length = _BLOCK_BYTES // dtype.itemsize

    def reduce(out: Array, sources: Sequence[Array]) -> None:
        # Overflow and NaN are results here, as in every other operation on tensors.
        with np.errstate(all="ignore"):
            if len(out) <= length:
                one_block(out, sources)
                return
            for start in range(0, len(out), length):
                part = slice(start, start + length)
                one_block(out[part], [source[part] for source in sources])

    return reduce


def _block(combine: np.ufunc) -> Reducer:
    def reduce(out: Array, sources: Sequence[Array]) -> None:
        if len(sources) == 1:
            out[:] = sources[0]
            return
        # `out` may be any of the sources, so it is written last.
        total = sources[0]
        for source in sources[1:-1]:
            total = combine(total, source)
        combine(total, sources[-1], out=out)

    return reduce


def _half_block(dtype: torch.dtype, combine: np.ufunc) -> Reducer:
    def typed(raw: Array) -> Tensor:
        return torch.from_numpy(raw).view(dtype)

    def reduce(out: Array, sources: Sequence[Array]) -> None:
        total = typed(sources[0]).float().numpy()
        for source in sources[1:]:
            combine(total, typed(source).float().numpy(), out=total)
        typed(out).copy_(torch.from_numpy(total))

    return reduce
