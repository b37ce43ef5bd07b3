"""How contributions of ranks are combined: for each type of number one compiled function.

Contributions are combined in ascending order of ranks, a block at a time that stays in the
processor's first cache, so the bits of a result depend on nothing but the contributions. Half types
are widened to float32 and rounded once. NaN wins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

import numpy as np
import torch
from llvmlite import ir
from numba import carray, cfunc, njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray
from torch import Tensor

from magmath.machine.raw import address, itemsize, pointer, stack_bytes

OPS: Final = {"sum": 0, "prod": 1, "max": 2, "min": 3, "any": 2, "all": 3}
"""The numbers by which compiled code knows the reductions; of bools `any` is the largest."""
_SUM, _PROD, _MAX = 0, 1, 2
_BLOCK: Final = 512  # numbers
_WIDEST: Final = 16 * _BLOCK  # bytes of a block of the widest type
_WIDENED: Final = 4 * _BLOCK  # of a block of float32
_WORD: Final = ir.IntType(64)
_SIGNATURE: Final = types.void(*[types.intp] * 6)

_LIKE: Final[dict[torch.dtype, np.generic]] = {
    torch.bool: np.uint8(0),
    torch.uint8: np.uint8(0),
    torch.uint16: np.uint16(0),
    torch.uint32: np.uint32(0),
    torch.uint64: np.uint64(0),
    torch.int8: np.int8(0),
    torch.int16: np.int16(0),
    torch.int32: np.int32(0),
    torch.int64: np.int64(0),
    torch.float32: np.float32(0),
    torch.float64: np.float64(0),
    torch.complex64: np.complex64(0),
    torch.complex128: np.complex128(0),
}
"""For each type, a value by which the compiler knows it."""


@cache
def kernel(dtype: torch.dtype) -> int:
    """The address of the function that combines numbers of a type, compiled when first wanted.

    f(out, sources, size, offset, count, op) fills `count` numbers at the address `out` with the
    combination of those that lie `offset` bytes behind each of the `size` addresses at `sources`.
    `out` may be one of these places.
    """
    if dtype is torch.bfloat16:
        combine = _bfloat16()
    elif dtype is torch.float16:
        combine = _float16()
    elif dtype.is_complex:
        combine = _complex(_LIKE[dtype])
    else:
        combine = _real(_LIKE[dtype])
    address: int = combine.address
    return address


@intrinsic  # type: ignore[untyped-decorator]
def combine(
    typing_context: Any, function: Any, out: Any, sources: Any, size: Any, offset: Any, count: Any,
    op: Any,
) -> Any:  # fmt: skip
    """Call a function that `kernel` gives, in compiled code."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [_WORD] * 6).as_pointer()
        builder.call(builder.inttoptr(arguments[0], kind), arguments[1:])
        return context.get_dummy_value()

    return types.void(*[types.intp] * 7), generate


def combined(out: Tensor, parts: Sequence[Tensor], op: str) -> None:
    """Fill a contiguous host tensor with the combination of others of its type and size."""
    places = np.array([part.data_ptr() for part in parts])
    _combined(kernel(out.dtype), out.data_ptr(), places, out.numel(), OPS[op])


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _combined(function: int, out: int, places: NDArray[np.int64], count: int, op: int) -> None:
    combine(function, out, address(places), len(places), 0, count, op)


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _accumulate(total: Any, other: Any, count: int, op: int) -> None:
    """Combine numbers into others, both of a real type."""
    if op == _SUM:
        for i in range(count):
            total[i] += other[i]
    elif op == _PROD:
        for i in range(count):
            total[i] *= other[i]
    elif op == _MAX:
        for i in range(count):
            value = other[i]
            total[i] = value if (value > total[i]) | (value != value) else total[i]
    else:
        for i in range(count):
            value = other[i]
            total[i] = value if (value < total[i]) | (value != value) else total[i]


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _accumulate_complex(total: Any, other: Any, count: int, op: int) -> None:
    """The same of complex numbers, which have no order."""
    if op == _SUM:
        for i in range(count):
            total[i] += other[i]
    else:
        for i in range(count):
            total[i] *= other[i]


def _real(like: np.generic) -> Any:
    # What a function encloses is part of the key under which its code is kept on disk: a number may
    # be, another function may not.
    @cfunc(_SIGNATURE, cache=True)  # type: ignore[untyped-decorator]
    def combining(out: int, sources: int, size: int, offset: int, count: int, op: int) -> None:
        places = carray(pointer(sources, np.int64(0)), size)
        total = carray(pointer(stack_bytes(_WIDEST), like), _BLOCK)
        for begin in range(0, count, _BLOCK):
            n = min(_BLOCK, count - begin)
            _load(total, places[0] + offset, begin, n, like)
            for rank in range(1, size):
                _accumulate(total, _block(places[rank] + offset, begin, n, like), n, op)
            _store(total, out, begin, n, like)

    return combining


def _complex(like: np.generic) -> Any:
    @cfunc(_SIGNATURE, cache=True)  # type: ignore[untyped-decorator]
    def combining(out: int, sources: int, size: int, offset: int, count: int, op: int) -> None:
        places = carray(pointer(sources, np.int64(0)), size)
        total = carray(pointer(stack_bytes(_WIDEST), like), _BLOCK)
        for begin in range(0, count, _BLOCK):
            n = min(_BLOCK, count - begin)
            _load(total, places[0] + offset, begin, n, like)
            for rank in range(1, size):
                _accumulate_complex(total, _block(places[rank] + offset, begin, n, like), n, op)
            _store(total, out, begin, n, like)

    return combining


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _block(place: int, begin: int, count: int, like: np.generic) -> Any:
    """Numbers at an address, from the `begin`-th on."""
    return carray(pointer(place + begin * itemsize(like), like), count)


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _load(total: Any, place: int, begin: int, count: int, like: np.generic) -> None:
    source = _block(place, begin, count, like)
    for i in range(count):
        total[i] = source[i]


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _store(total: Any, place: int, begin: int, count: int, like: np.generic) -> None:
    target = _block(place, begin, count, like)
    for i in range(count):
        target[i] = total[i]


# half types ---------------------------------------------------------------------------------------


def _bfloat16() -> Any:
    @cfunc(_SIGNATURE, cache=True)  # type: ignore[untyped-decorator]
    def combining(out: int, sources: int, size: int, offset: int, count: int, op: int) -> None:
        places = carray(pointer(sources, np.int64(0)), size)
        total = carray(pointer(stack_bytes(_WIDENED), np.float32(0)), _BLOCK)
        other = carray(pointer(stack_bytes(_WIDENED), np.float32(0)), _BLOCK)
        for begin in range(0, count, _BLOCK):
            n = min(_BLOCK, count - begin)
            _widen_bfloat16(total, _block(places[0] + offset, begin, n, np.uint16(0)), n)
            for rank in range(1, size):
                _widen_bfloat16(other, _block(places[rank] + offset, begin, n, np.uint16(0)), n)
                _accumulate(total, other, n, op)
            _round_bfloat16(_block(out, begin, n, np.uint16(0)), total, n)

    return combining


def _float16() -> Any:
    @cfunc(_SIGNATURE, cache=True)  # type: ignore[untyped-decorator]
    def combining(out: int, sources: int, size: int, offset: int, count: int, op: int) -> None:
        places = carray(pointer(sources, np.int64(0)), size)
        total = carray(pointer(stack_bytes(_WIDENED), np.float32(0)), _BLOCK)
        other = carray(pointer(stack_bytes(_WIDENED), np.float32(0)), _BLOCK)
        for begin in range(0, count, _BLOCK):
            n = min(_BLOCK, count - begin)
            _widen_float16(total, _block(places[0] + offset, begin, n, np.uint16(0)), n)
            for rank in range(1, size):
                _widen_float16(other, _block(places[rank] + offset, begin, n, np.uint16(0)), n)
                _accumulate(total, other, n, op)
            _round_float16(_block(out, begin, n, np.uint16(0)), total, n)

    return combining


def _conversion(given: Any, wanted: Any, convert: Callable[[Any, Any], Any]) -> Any:
    """An intrinsic that makes a number of one type out of another's, by LLVM's instructions."""

    @intrinsic  # type: ignore[untyped-decorator]
    def converted(typing_context: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return convert(builder, arguments[0])

        return wanted(given), generate

    return converted


_FLOAT, _HALF, _I16, _I32 = ir.FloatType(), ir.HalfType(), ir.IntType(16), ir.IntType(32)
_float_of_bits = _conversion(types.uint32, types.float32, lambda b, x: b.bitcast(x, _FLOAT))
_bits_of_float = _conversion(types.float32, types.uint32, lambda b, x: b.bitcast(x, _I32))
_float_of_half = _conversion(
    types.uint16, types.float32, lambda b, x: b.fpext(b.bitcast(x, _HALF), _FLOAT)
)
_half_of_float = _conversion(
    types.float32, types.uint16, lambda b, x: b.bitcast(b.fptrunc(x, _HALF), _I16)
)


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _widen_bfloat16(out: Any, source: Any, count: int) -> None:
    for i in range(count):
        out[i] = _float_of_bits(np.uint32(np.uint32(source[i]) << np.uint32(16)))


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _round_bfloat16(out: Any, source: Any, count: int) -> None:
    """To the nearest, and to the even one of two; NaN stays NaN."""
    for i in range(count):
        bits = _bits_of_float(source[i])
        odd = (bits >> np.uint32(16)) & np.uint32(1)
        nearest = np.uint32(bits + np.uint32(0x7FFF) + odd)
        value = np.uint32(0x7FC00000) if source[i] != source[i] else nearest
        out[i] = np.uint16(value >> np.uint32(16))


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _widen_float16(out: Any, source: Any, count: int) -> None:
    for i in range(count):
        out[i] = _float_of_half(source[i])


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _round_float16(out: Any, source: Any, count: int) -> None:
    for i in range(count):
        out[i] = _half_of_float(source[i])
