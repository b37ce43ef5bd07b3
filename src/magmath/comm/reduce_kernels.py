"""Compiled reduction kernels: one for each element type.

Contributions are reduced in ascending order of ranks, in blocks that fit into the L1 cache, so the
bits of a result depend on the contributions only. Half types are widened to float32 and rounded
once. Maximum and minimum propagate NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from magmath.codegen.aot_cache import AotModule

OP_CODES: Final = {"sum": 0, "prod": 1, "max": 2, "min": 3, "any": 2, "all": 3}
"""Codes of the reductions in compiled code; for bools, `any` is the maximum."""
_BLOCK_NUMBERS: Final = 512  # numbers

_SOURCE = """
def combine(out: int64, sources: int64[1], size: int64, offset: int64, count: int64, op: int64):
    total: {wide}[1] = stack({room})
    for begin in range(0, count, {block}):
        n = {parts} * min(count - begin, {block})
        start = offset + begin * {itemsize}
        first: {kept}[1] = sources[0] + start
        for i in range(n):
            total[i] = first[i]
        for rank in range(1, size):
            other: {kept}[1] = sources[rank] + start
{accumulate}
        result: {kept}[1] = out + begin * {itemsize}
        for i in range(n):
            result[i] = total[i]
"""
_REAL = """\
            if op == 0:
                for i in range(n):
                    total[i] += other[i]
            elif op == 1:
                for i in range(n):
                    total[i] *= other[i]
            elif op == 2:
                for i in range(n):
                    total[i] = maximum(total[i], other[i])
            else:
                for i in range(n):
                    total[i] = minimum(total[i], other[i])
"""
_COMPLEX = """\
            if op == 0:
                for i in range(n):
                    total[i] += other[i]
            else:
                for i in range(0, n, 2):
                    real = total[i] * other[i] - total[i + 1] * other[i + 1]
                    total[i + 1] = total[i] * other[i + 1] + total[i + 1] * other[i]
                    total[i] = real
"""
_COMPLEX_PARTS = {torch.complex64: "float32", torch.complex128: "float64"}
_WIDENED = {"float16": "float32", "bfloat16": "float32"}


@cache
def reduce_kernel_address(dtype: torch.dtype) -> int:
    """Return the address of the reduction kernel for an element type.

    f(out, sources, size, offset, count, op) writes `count` numbers to the address `out`: the
    reduction of the numbers at `offset` bytes after each of the `size` addresses in `sources`.
    `out` may be one of these addresses.
    """
    return _code(dtype).address("combine")


@cache
def _function(dtype: torch.dtype) -> Callable[..., Any]:
    return _code(dtype).function("combine")


@cache
def _code(dtype: torch.dtype) -> AotModule:
    stored_type = "uint8" if dtype is torch.bool else str(dtype).removeprefix("torch.")
    stored_type = _COMPLEX_PARTS.get(dtype, stored_type)
    source = _SOURCE.format(
        kept=stored_type,
        wide=_WIDENED.get(stored_type, stored_type),
        parts=1 + dtype.is_complex,
        itemsize=dtype.itemsize,
        block=_BLOCK_NUMBERS,
        room=_BLOCK_NUMBERS * max(4, dtype.itemsize),
        accumulate=_COMPLEX if dtype.is_complex else _REAL,
    )
    return AotModule(source, ["combine"])


def reduce_tensors(out: Tensor, parts: Sequence[Tensor], reduction: str) -> None:
    """Fill a contiguous host tensor with the reduction of tensors of its type and size."""
    addresses = np.array([part.data_ptr() for part in parts])
    _function(out.dtype)(
        out.data_ptr(), addresses.ctypes.data, len(parts), 0, out.numel(), OP_CODES[reduction]
    )
