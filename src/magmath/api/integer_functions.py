"""Functions of integers and their bits: common divisors, counts of bits, bits in bytes."""

from __future__ import annotations

import math
from typing import Any

from magmath.api.creation import zeros
from magmath.api.data_types import astype
from magmath.api.elementwise import (
    abs,
    add,
    bitwise_and,
    bitwise_right_shift,
    floor_divide,
    multiply,
    not_equal,
    remainder,
    subtract,
)
from magmath.api.manipulation import broadcast_arrays, concat, moveaxis, reshape
from magmath.api.searching import where
from magmath.api.statistics import any
from magmath.arrays.array import Array, as_array
from magmath.arrays.operands import operands
from magmath.arrays.output import takes_out
from magmath.core.dtypes import bool_, int64, uint8
from magmath.core.shapes import normalize_axis
from magmath.engine.user_line import user_line
from magmath.errors import DTypeError, OptionError
from magmath.graph import apply
from magmath.ops.bits import PACK_BITS, UNPACK_BITS

STEPS = 8
"""Steps of Euclid's algorithm between two tests of its end."""


def _integers(name: str, x1: Any, x2: Any) -> tuple[Array, Array]:
    a, b = operands(name, x1, x2)
    if not a.dtype.is_integer:
        raise DTypeError(f"{name}: takes integers, was given {a.dtype}; convert with mm.astype")
    first, second = broadcast_arrays(abs(Array(a)), abs(Array(b)))
    return first, second


@takes_out
def gcd(x1: Any, x2: Any, /) -> Array:
    """Return the greatest common divisor of |x1| and |x2|. The number of steps depends on the
    values, so these are computed."""
    if isinstance(x1, int) and isinstance(x2, int):
        return math.gcd(x1, x2)  # type: ignore[return-value]  # as other functions of numbers
    a, b = _integers("gcd", x1, x2)
    while any(not_equal(b, 0)):
        for _ in range(STEPS):
            nonzero = not_equal(b, 0)
            rest = remainder(a, where(nonzero, b, 1))
            a, b = where(nonzero, b, a), where(nonzero, rest, 0)
    return a


@takes_out
def lcm(x1: Any, x2: Any, /) -> Array:
    """Return the least common multiple of |x1| and |x2|; 0 where one of them is 0."""
    if isinstance(x1, int) and isinstance(x2, int):
        return math.lcm(x1, x2)  # type: ignore[return-value]
    a, b = _integers("lcm", x1, x2)
    common = gcd(a, b)
    return multiply(floor_divide(a, where(not_equal(common, 0), common, 1)), b)


@takes_out
def bitwise_count(x: Any, /) -> Array:
    """Return the number of one bits of |x|, as uint8."""
    x = as_array("bitwise_count", x)
    if not x.dtype.is_integer:
        raise DTypeError(
            f"bitwise_count: takes integers, was given {x.dtype}"
            "; convert with mm.astype(x, mm.int32)"
        )
    if x.dtype.name == "uint64":
        high, low = bitwise_right_shift(x, 32), bitwise_and(x, 0xFFFFFFFF)
        return add(bitwise_count(astype(high, int64)), bitwise_count(astype(low, int64)))
    bits = abs(astype(x, int64))
    for shift, mask in ((1, 0x5555555555555555), (2, 0x3333333333333333), (4, 0x0F0F0F0F0F0F0F0F)):
        upper = bitwise_and(bitwise_right_shift(bits, shift), mask)
        bits = subtract(bits, upper) if shift == 1 else add(bitwise_and(bits, mask), upper)
    for shift in (8, 16, 32):
        bits = add(bits, bitwise_right_shift(bits, shift))
    return astype(bitwise_and(bits, 0x7F), uint8)


def _check_order(name: str, bitorder: str) -> None:
    if bitorder not in ("big", "little"):
        raise OptionError(f'{name}: bitorder is "big" or "little", was given {bitorder!r}')


def packbits(x: Any, /, axis: int | None = None, bitorder: str = "big") -> Array:
    """Return truth values as the bits of uint8 along an axis (of the flattened array for None),
    which is padded with zeros."""
    _check_order("packbits", bitorder)
    x = as_array("packbits", x)
    if axis is None:
        x, axis = reshape(x, (-1,)), 0
    dim = normalize_axis("packbits", axis, x.ndim)
    bits = moveaxis(not_equal(x, 0) if x.dtype.kind != "bool" else x, dim, -1)
    if missing := -bits.shape[-1] % 8:
        bits = concat([bits, zeros((*bits.shape[:-1], missing), dtype=bool_)], axis=-1)
    parts = reshape(bits, (*bits.shape[:-1], bits.shape[-1] // 8, 8))
    packed = apply(PACK_BITS, parts.node, bitorder=bitorder, line=user_line())
    return moveaxis(Array(packed), -1, dim)


def unpackbits(
    x: Any, /, axis: int | None = None, count: int | None = None, bitorder: str = "big"
) -> Array:
    """Return the bits of uint8 along an axis (of the flattened array for None), as 0 and 1 in
    uint8.

    count: the number of bits to return; a negative one omits that many at the end.
    """
    _check_order("unpackbits", bitorder)
    x = as_array("unpackbits", x)
    if axis is None:
        x, axis = reshape(x, (-1,)), 0
    dim = normalize_axis("unpackbits", axis, x.ndim)
    packed = moveaxis(x, dim, -1)
    octets = Array(apply(UNPACK_BITS, packed.node, bitorder=bitorder, line=user_line()))
    bits = reshape(octets, (*packed.shape[:-1], packed.shape[-1] * 8))
    if count is not None:
        extent = bits.shape[-1]
        if count > extent:
            none = zeros((*bits.shape[:-1], count - extent), dtype=uint8)
            bits = concat([bits, none], axis=-1)
        bits = bits[..., :count]
    return moveaxis(bits, -1, dim)
