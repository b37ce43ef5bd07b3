"""Random numbers by global element index: Philox4x32-10, the same on every layout and device.

Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC'11). The seed is the key; block
number and stream are the counter; a block is four 32-bit words. An element of 32 bits takes one
word, one of 64 bits takes two, so each element's value follows from its index in C order alone.
The processor runs compiled loops, other devices the same arithmetic on int64 tensors. Logarithm
and cosine are our own, of operations that IEEE 754 rounds exactly, so the bits agree everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch
from numba import njit

from magmath.core.index import Tile, tile_shape
from magmath.errors import DTypeError
from magmath.kernels.elementary import cosine_series, log_series, sine_series

_LOW: Final = np.uint64(0xFFFFFFFF)
_MULTIPLIER_0: Final = np.uint64(0xD2511F53)
_MULTIPLIER_1: Final = np.uint64(0xCD9E8D57)
_WEYL_0: Final = np.uint64(0x9E3779B9)
_WEYL_1: Final = np.uint64(0xBB67AE85)
_ROUNDS: Final = 10
_1, _2, _3, _8, _11, _32 = (np.uint64(n) for n in (1, 2, 3, 8, 11, 32))

_UNIFORM, _NORMAL, _BITS = 0, 1, 2
_CHUNK_BLOCKS = 256  # words of a chunk stay in the first-level cache
_TENSOR_CHUNK = 1 << 22  # elements made at once on other devices: bounds the temporaries

_FLOAT_BITS = {torch.float32: 24, torch.float64: 53, torch.float16: 11, torch.bfloat16: 8}
_HALF = (torch.float16, torch.bfloat16)


def fill_uniform(
    out: torch.Tensor, tile: Tile, shape: Sequence[int], seed: int, stream: int
) -> None:
    """Fill a tile of an array of the given shape with numbers from [0, 1).

    float32 has 24 random bits, float64 53, float16 11 and bfloat16 8: all that the type can hold
    evenly. `out` has the tile's shape, any strides, and may be on any device.
    """
    _fill(out, tile, shape, seed, stream, _UNIFORM)


def fill_normal(
    out: torch.Tensor, tile: Tile, shape: Sequence[int], seed: int, stream: int
) -> None:
    """Fill a tile with standard normal numbers (Box and Muller 1958), half types via float32."""
    _fill(out, tile, shape, seed, stream, _NORMAL)


def fill_bits(out: torch.Tensor, tile: Tile, shape: Sequence[int], seed: int, stream: int) -> None:
    """Fill a tile of an int64 array with integers from [0, 2^63)."""
    _fill(out, tile, shape, seed, stream, _BITS)


def permutation(n: int, seed: int, stream: int) -> torch.Tensor:
    """0 … n-1 in random order, an int64 tensor: the stable order of n random 63-bit keys."""
    keys = torch.empty(n, dtype=torch.int64)
    _fill_runs(
        keys.numpy(), np.zeros(1, np.int64), np.zeros(1, np.int64), np.full(1, n, np.int64),
        _unsigned(seed), _unsigned(stream), _BITS, 63,
    )  # fmt: skip
    return torch.argsort(keys, stable=True)


# compiled code: also called by generated native functions -----------------------------------------


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def block(seed: Any, stream: Any, counter: Any) -> Any:
    """The four words of a block, each a uint64 below 2^32; all arguments uint64."""
    key_0, key_1 = seed & _LOW, seed >> _32
    word_0, word_1 = counter & _LOW, counter >> _32
    word_2, word_3 = stream & _LOW, stream >> _32
    for _ in range(_ROUNDS):
        product_0, product_1 = word_0 * _MULTIPLIER_0, word_2 * _MULTIPLIER_1
        word_0, word_1 = (product_1 >> _32) ^ word_1 ^ key_0, product_1 & _LOW
        word_2, word_3 = (product_0 >> _32) ^ word_3 ^ key_1, product_0 & _LOW
        key_0, key_1 = (key_0 + _WEYL_0) & _LOW, (key_1 + _WEYL_1) & _LOW
    return word_0, word_1, word_2, word_3


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def bits32(seed: Any, stream: Any, index: Any) -> Any:
    """The 32-bit word of one element, as uint64; the arguments are integers of any type."""
    element = np.uint64(index)
    words = block(np.uint64(seed), np.uint64(stream), element >> _2)
    low = words[1] if element & _1 else words[0]
    high = words[3] if element & _1 else words[2]
    return high if element & _2 else low


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def uniform32(seed: Any, stream: Any, index: Any) -> Any:
    """The float32 number in [0, 1) that `fill_uniform` gives this element."""
    return np.float32(np.int64(bits32(seed, stream, index) >> _8)) * np.float32(2.0**-24)


_cosine = njit(nogil=True, cache=True)(cosine_series)
_sine = njit(nogil=True, cache=True)(sine_series)
_log_series = njit(nogil=True, cache=True)(log_series)


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _log(x: Any) -> Any:
    """The natural logarithm of a normal float64 in (0, 1]."""
    pattern = np.float64(x).view(np.int64)
    exponent = (pattern >> 52) - 1023
    mantissa = np.int64((pattern & 0xFFFFFFFFFFFFF) | 0x3FF0000000000000).view(np.float64)
    large = mantissa > 1.4142135623730951
    mantissa = mantissa * 0.5 if large else mantissa
    return _log_series(mantissa, np.float64(exponent + (1 if large else 0)))


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _normal_pair(first: Any, second: Any) -> Any:
    """Two normal numbers from one number in (0, 1] and one in [0, 1)."""
    radius = np.sqrt(-2.0 * _log(first))
    quarter = np.int64(4.0 * second + 0.5)
    angle = second - 0.25 * np.float64(quarter)
    cosine, sine = _cosine(angle), _sine(angle)
    odd = quarter & 1
    x, y = (sine, cosine) if odd else (cosine, sine)
    x = -x if (quarter + 1) & 2 else x
    y = -y if quarter & 2 else y
    return radius * x, radius * y


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _generate(words: Any, seed: Any, stream: Any, first: int, blocks: int) -> None:
    for i in range(blocks):
        a, b, c, d = block(seed, stream, np.uint64(first + i))
        words[4 * i] = a
        words[4 * i + 1] = b
        words[4 * i + 2] = c
        words[4 * i + 3] = d


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _normals(words: Any, values: Any, blocks: int, wide: bool) -> None:
    """Turn the words of whole blocks into four numbers a block, or two `wide` ones."""
    if wide:
        for i in range(blocks):
            first = (words[4 * i] | words[4 * i + 1] << _32) >> _11
            second = (words[4 * i + 2] | words[4 * i + 3] << _32) >> _11
            x, y = _normal_pair(
                (np.int64(first) + 1) * 2.0**-53, np.float64(np.int64(second)) * 2.0**-53
            )
            values[2 * i], values[2 * i + 1] = x, y
    else:
        for i in range(2 * blocks):
            first, second = np.int64(words[2 * i]), np.int64(words[2 * i + 1])
            x, y = _normal_pair((first + 1) * 2.0**-32, np.float64(second) * 2.0**-32)
            values[2 * i], values[2 * i + 1] = x, y


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _convert(out: Any, words: Any, values: Any, skip: int, kind: int, bits: int) -> None:
    """Write out[i], made from the words of the chunk's element skip + i."""
    if kind == _NORMAL:
        for i in range(out.size):
            out[i] = values[skip + i]
    elif kind == _BITS:
        for i in range(out.size):
            j = 2 * (skip + i)
            out[i] = np.int64((words[j] | words[j + 1] << _32) >> _1)
    elif bits > 32:
        for i in range(out.size):
            j = 2 * (skip + i)
            out[i] = np.int64((words[j] | words[j + 1] << _32) >> _11) * 2.0**-53
    else:
        shift, scale = np.uint64(32 - bits), 2.0**-bits
        for i in range(out.size):
            out[i] = np.int64(words[skip + i] >> shift) * scale


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _fill_runs(
    out: Any, rows: Any, starts: Any, stops: Any, seed: Any, stream: Any, kind: int, bits: int
) -> None:
    """Fill `out` with the elements rows[r] + starts[s] … rows[r] + stops[s] - 1, in this order."""
    per_block = 2 if bits > 32 else 4
    chunk = per_block * _CHUNK_BLOCKS
    words = np.empty(4 * _CHUNK_BLOCKS, np.uint64)
    values = np.empty(4 * _CHUNK_BLOCKS, np.float64)
    position = 0
    for row in rows:
        for s in range(starts.size):
            begin, end = row + starts[s], row + stops[s]
            while begin < end:
                first = begin // per_block
                stop = min(end, first * per_block + chunk)
                blocks = (stop - 1) // per_block + 1 - first
                _generate(words, seed, stream, first, blocks)
                if kind == _NORMAL:
                    _normals(words, values, blocks, bits > 32)
                part = out[position : position + stop - begin]
                _convert(part, words, values, begin - first * per_block, kind, bits)
                position += stop - begin
                begin = stop


# tiles --------------------------------------------------------------------------------------------


def _unsigned(value: int) -> np.uint64:
    return np.uint64(value & 0xFFFFFFFFFFFFFFFF)


def _fill(
    out: torch.Tensor, tile: Tile, shape: Sequence[int], seed: int, stream: int, kind: int
) -> None:
    wanted = (torch.int64,) if kind == _BITS else tuple(_FLOAT_BITS)
    if out.dtype not in wanted:
        names = ", ".join(str(dtype).removeprefix("torch.") for dtype in wanted)
        raise DTypeError(f"random fill: makes {names}; was given {out.dtype}")
    assert tuple(out.shape) == tile_shape(tile), "the tensor has the tile's shape"
    if out.numel() == 0:
        return
    bits = 63 if kind == _BITS else _FLOAT_BITS[out.dtype]
    if out.device.type != "cpu":
        fill_tensor(out, tile, shape, seed, stream, kind, bits)
        return
    made = out
    if out.dtype in _HALF or not out.is_contiguous():
        made = torch.empty(out.shape, dtype=torch.float32 if out.dtype in _HALF else out.dtype)
    rows, starts, stops = _runs(tile, shape)
    _fill_runs(
        made.view(-1).numpy(), rows, starts, stops, _unsigned(seed), _unsigned(stream), kind, bits
    )
    if made is not out:
        out.copy_(made)


def _runs(tile: Tile, shape: Sequence[int]) -> tuple[Any, Any, Any]:
    """A tile's elements in C order, as segments of linear indices that repeat from row to row."""
    inner = 1
    axis = len(shape)
    while axis and tile[axis - 1].size == shape[axis - 1]:  # whole dimensions merge
        axis -= 1
        inner *= shape[axis]
    rows = np.zeros(1, np.int64)
    if axis == 0:
        return rows, np.zeros(1, np.int64), np.full(1, inner, np.int64)
    starts, stops = tile[axis - 1].segments()
    for d in range(axis - 1):
        stride = inner * int(np.prod(shape[d + 1 : axis], dtype=np.int64))
        rows = (rows[:, None] + tile[d].indices() * stride).reshape(-1)
    return rows, starts * inner, stops * inner


# other devices: the same arithmetic on int64 tensors ----------------------------------------------


def fill_tensor(
    out: torch.Tensor, tile: Tile, shape: Sequence[int], seed: int, stream: int, kind: int,
    bits: int,
) -> None:  # fmt: skip
    """What `_fill_runs` does, in tensor operations, for any device."""
    made = (
        out if out.is_contiguous() else torch.empty(out.shape, dtype=out.dtype, device=out.device)
    )
    flat = made.view(-1)
    tables = [None if s.is_range else torch.as_tensor(s.indices(), device=out.device) for s in tile]
    for begin in range(0, flat.numel(), _TENSOR_CHUNK):
        part = flat[begin : begin + _TENSOR_CHUNK]
        rest = torch.arange(begin, begin + part.numel(), device=out.device)
        index, stride = torch.zeros_like(rest), 1
        for indices, table, extent in zip(tile[::-1], tables[::-1], shape[::-1], strict=True):
            place = rest % indices.size
            rest //= indices.size
            index += stride * (place + indices.start if table is None else table[place])
            stride *= extent
        part.copy_(_tensor_values(index, seed, stream, kind, bits))
    if made is not out:
        out.copy_(made)


def _tensor_values(
    index: torch.Tensor, seed: int, stream: int, kind: int, bits: int
) -> torch.Tensor:
    if kind == _NORMAL:
        return _tensor_normal(index, seed, stream, bits)
    if bits > 32:
        a, b, c, d = _tensor_block(seed, stream, index >> 1)
        odd = (index & 1).bool()
        number = _joined(torch.where(odd, c, a), torch.where(odd, d, b), 64 - bits)
        return number if kind == _BITS else number.double() * 2.0**-53
    a, b, c, d = _tensor_block(seed, stream, index >> 2)
    odd, late = (index & 1).bool(), (index & 2).bool()
    word = torch.where(late, torch.where(odd, d, c), torch.where(odd, b, a))
    return (word >> (32 - bits)).float() * 2.0**-bits


def _joined(low: torch.Tensor, high: torch.Tensor, shift: int) -> torch.Tensor:
    """(high · 2^32 + low) >> shift, without sign extension: shift is 1 or more."""
    return high << (32 - shift) | low >> shift


def _tensor_normal(index: torch.Tensor, seed: int, stream: int, bits: int) -> torch.Tensor:
    if bits > 32:
        a, b, c, d = _tensor_block(seed, stream, index >> 1)
        first = (_joined(a, b, 11) + 1).double() * 2.0**-53
        second = _joined(c, d, 11).double() * 2.0**-53
    else:
        a, b, c, d = _tensor_block(seed, stream, index >> 2)
        late = (index & 2).bool()
        first = (torch.where(late, c, a) + 1).double() * 2.0**-32
        second = torch.where(late, d, b).double() * 2.0**-32
    radius = _tensor_sqrt(-2.0 * _tensor_log(first))
    quarter = (4.0 * second + 0.5).long()
    angle = second - 0.25 * quarter.double()
    # The second number of a pair is the sine: the cosine, a quarter turn later.
    quarter = quarter - (index & 1)
    value = torch.where((quarter & 1).bool(), sine_series(angle), cosine_series(angle))
    value = radius * torch.where(((quarter + 1) & 2).bool(), -value, value)
    return value if bits > 32 else value.float()


def _tensor_log(x: torch.Tensor) -> torch.Tensor:
    pattern = x.view(torch.int64)
    exponent = (pattern >> 52) - 1023
    mantissa = (pattern & 0xFFFFFFFFFFFFF | 0x3FF0000000000000).view(torch.float64)
    large = mantissa > 1.4142135623730951
    mantissa = torch.where(large, mantissa * 0.5, mantissa)
    logarithm: torch.Tensor = log_series(mantissa, (exponent + large.long()).double())
    return logarithm


def _tensor_sqrt(x: torch.Tensor) -> torch.Tensor:
    """The correctly rounded root: a library's may be a unit off, so add what y² lacks of x.

    Dekker's product (1971) gives y² without rounding error.
    """
    y = torch.sqrt(x)
    scaled = y * 134217729.0  # 2^27 + 1: splits y into two halves of its digits
    high = scaled - (scaled - y)
    low = y - high
    square = y * y
    error = ((high * high - square) + 2.0 * high * low) + low * low
    return torch.where(y > 0, y + ((x - square) - error) / (2.0 * y), y)


def _tensor_block(seed: int, stream: int, counter: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """`block` on an int64 tensor of counters: products wrap, shifts are masked."""
    low = 0xFFFFFFFF
    key_0, key_1 = seed & low, seed >> 32 & low
    word_0, word_1 = counter & low, counter >> 32
    word_2 = torch.full_like(counter, stream & low)
    word_3 = torch.full_like(counter, stream >> 32 & low)
    for _ in range(_ROUNDS):
        product_0, product_1 = word_0 * int(_MULTIPLIER_0), word_2 * int(_MULTIPLIER_1)
        word_0, word_1 = (product_1 >> 32 & low) ^ word_1 ^ key_0, product_1 & low
        word_2, word_3 = (product_0 >> 32 & low) ^ word_3 ^ key_1, product_0 & low
        key_0, key_1 = key_0 + int(_WEYL_0) & low, key_1 + int(_WEYL_1) & low
    return word_0, word_1, word_2, word_3
