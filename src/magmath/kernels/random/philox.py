"""Random numbers by global element index (Philox4x32-10), equal for every layout and device.

Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC'11). The seed is the key;
block number and stream are the counter; a block is four 32-bit words. A 32-bit element uses one
word and a 64-bit element two, so the value of an element depends only on its index in C order.
Compiled loops compute on the CPU, `kernels/random/philox_tensors.py` on other devices. Logarithm,
sine and cosine come from `kernels/random/portable_math.py`, so the bits are equal on every device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from inspect import getsource
from textwrap import indent
from typing import Any, Final, NamedTuple, TypeAlias, final

import numpy as np
import torch
from numpy.typing import NDArray

from magmath.codegen.aot_cache import AotModule
from magmath.core.index_set import Tile, tile_shape
from magmath.errors import DTypeError
from magmath.kernels.dtype_names import dtype_name
from magmath.kernels.random.philox_constants import (
    BITS,
    EXPONENTIAL,
    LOW,
    MULTIPLIER_0,
    MULTIPLIER_1,
    NORMAL,
    ROUNDS,
    UNIFORM,
    WEYL_0,
    WEYL_1,
    SeedOrStream,
)
from magmath.kernels.random.philox_tensors import fill_by_torch, least_positive
from magmath.kernels.random.portable_math import cosine_series, log_series, sine_series

_CHUNK_BLOCKS = 256  # the words of a chunk fit into the first-level cache

FEW: Final = 4
"""One number of so many is few: it costs less to draw them than to sort all."""

Indices: TypeAlias = NDArray[np.int64]

_FLOAT_BITS = {torch.float32: 24, torch.float64: 53, torch.float16: 11, torch.bfloat16: 8}
_HALF = (torch.float16, torch.bfloat16)


def fill_uniform(
    out: torch.Tensor, tile: Tile, shape: Sequence[int], seed: SeedOrStream, stream: SeedOrStream
) -> None:
    """Fill a tile of an array of the given shape with uniform random numbers from [0, 1).

    float32 has 24 random bits, float64 53, float16 11 and bfloat16 8: the most that the type can
    represent with even spacing. `out` has the tile's shape, any strides, and may be on any device.
    """
    _fill(out, tile, shape, seed, stream, UNIFORM)


def fill_normal(
    out: torch.Tensor, tile: Tile, shape: Sequence[int], seed: SeedOrStream, stream: SeedOrStream
) -> None:
    """Fill a tile with standard normal random numbers (Box and Muller 1958). Half types are
    computed in float32."""
    _fill(out, tile, shape, seed, stream, NORMAL)


def fill_exponential(
    out: torch.Tensor, tile: Tile, shape: Sequence[int], seed: SeedOrStream, stream: SeedOrStream
) -> None:
    """Fill a tile with numbers from the exponential distribution of mean 1, by inversion. None of
    them is 0 or infinite. Half types are computed in float32; what is less than the least positive
    number of the type becomes that."""
    _fill(out, tile, shape, seed, stream, EXPONENTIAL)


def fill_bits(
    out: torch.Tensor, tile: Tile, shape: Sequence[int], seed: SeedOrStream, stream: SeedOrStream
) -> None:
    """Fill a tile of an int64 array with uniform random integers from [0, 2^63)."""
    _fill(out, tile, shape, seed, stream, BITS)


def permutation(count: int, below: int, seed: int, stream: int) -> torch.Tensor:
    """Return the first `count` of the numbers 0 … below-1 in random order, int64.

    A few are those of a random sequence, each at its first place, so that the others cost nothing;
    many are taken from the stable sorting order of 63-bit keys, one for each number.
    """
    if FEW * count >= below:
        return torch.argsort(_keys(below, seed, stream), stable=True)[:count]
    drawn = count + count // 4 + 8
    while True:
        numbers = _keys(drawn, seed, stream).numpy() % below
        first = np.unique(numbers, return_index=True)[1]
        if len(first) >= count:
            return torch.from_numpy(numbers[np.sort(first)[:count]])
        drawn *= 2


def _keys(count: int, seed: int, stream: int) -> torch.Tensor:
    """Return the first random integers of a stream, from [0, 2^63)."""
    keys = torch.empty(count, dtype=torch.int64)
    begin, end = np.zeros(1, np.int64), np.full(1, count, np.int64)
    _fill_runs(keys, Runs(begin, begin, end), seed, stream, BITS, 63)
    return keys


# compiled code ------------------------------------------------------------------------------------

BLOCK: Final = (
    """
    key_0 = seed & LOW
    key_1 = seed >> 32
    word_0 = counter & LOW
    word_1 = counter >> 32
    word_2 = stream & LOW
    word_3 = stream >> 32
"""
    + ROUNDS
    * """
    product_0 = word_0 * MULTIPLIER_0
    product_1 = word_2 * MULTIPLIER_1
    word_0 = (product_1 >> 32) ^ word_1 ^ key_0
    word_1 = product_1 & LOW
    word_2 = (product_0 >> 32) ^ word_3 ^ key_1
    word_3 = product_0 & LOW
    key_0 = (key_0 + WEYL_0) & LOW
    key_1 = (key_1 + WEYL_1) & LOW
"""
)
"""Computes the four words of a block, each a uint64 below 2^32, from the uint64 values seed, stream
and counter."""

_WORDS = f'''
def uniform32(seed_bits: int64, stream_bits: int64, index: int64) -> float32:
    """The float32 number in [0, 1) that `fill_uniform` gives this element."""
    seed = uint64(seed_bits)
    stream = uint64(stream_bits)
    element = uint64(index)
    counter = element >> 2
{BLOCK}
    low = word_1 if (element & 1) != 0 else word_0
    high = word_3 if (element & 1) != 0 else word_2
    word = high if (element & 2) != 0 else low
    return float32(int64(word >> 8)) * float32({2.0**-24!r})

def generate(words: uint64[1], seed: uint64, stream: uint64, first: int64, blocks: int64):
    """The words of some blocks."""
    for i in range(blocks):
        counter = uint64(first + i)
{indent(BLOCK, "    ")}
        words[4 * i] = word_0
        words[4 * i + 1] = word_1
        words[4 * i + 2] = word_2
        words[4 * i + 3] = word_3
'''

_SERIES = "\n".join(
    getsource(series).replace("Any", "float64")
    for series in (log_series, cosine_series, sine_series)
)

NORMALS = (
    _SERIES
    + '''
def log_of(x: float64) -> float64:
    """The natural logarithm of a normal float64 in (0, 1]."""
    pattern = x.view(int64)
    exponent = (pattern >> 52) - 1023
    bits = (pattern & 0xFFFFFFFFFFFFF) | 0x3FF0000000000000
    mantissa = bits.view(float64)
    large = mantissa > 1.4142135623730951
    mantissa = mantissa * 0.5 if large else mantissa
    return log_series(mantissa, float64(exponent + int64(large)))

def normal_pair(values: float64[1], place: int64, first: float64, second: float64):
    """Two normal numbers from one number in (0, 1] and one in [0, 1)."""
    radius = sqrt(-2.0 * log_of(first))
    quarter = int64(4.0 * second + 0.5)
    angle = second - 0.25 * float64(quarter)
    cosine = cosine_series(angle)
    sine = sine_series(angle)
    odd = (quarter & 1) != 0
    x = sine if odd else cosine
    y = cosine if odd else sine
    x = -x if ((quarter + 1) & 2) != 0 else x
    y = -y if (quarter & 2) != 0 else y
    values[place] = radius * x
    values[place + 1] = radius * y

def normals(words: uint64[1], values: float64[1], blocks: int64, wide: int64):
    """Turn the words of whole blocks into four numbers a block, or two `wide` ones."""
    if wide != 0:
        for i in range(blocks):
            a = int64((words[4 * i] | words[4 * i + 1] << 32) >> 11)
            b = int64((words[4 * i + 2] | words[4 * i + 3] << 32) >> 11)
            normal_pair(
                values, 2 * i, float64(a + 1) * 1.1102230246251565e-16,
                float64(b) * 1.1102230246251565e-16
            )
    else:
        for i in range(2 * blocks):
            c = int64(words[2 * i])
            d = int64(words[2 * i + 1])
            normal_pair(
                values, 2 * i, float64(c + 1) * 2.3283064365386963e-10,
                float64(d) * 2.3283064365386963e-10
            )

def exponentials(words: uint64[1], values: float64[1], blocks: int64, wide: int64):
    """Turn the words of whole blocks into four numbers a block, or two `wide` ones."""
    if wide != 0:
        for i in range(2 * blocks):
            a = int64((words[2 * i] | words[2 * i + 1] << 32) >> 12)
            values[i] = -log_of((float64(a) + 0.5) * 2.220446049250313e-16)
    else:
        for i in range(4 * blocks):
            values[i] = -log_of((float64(int64(words[i])) + 0.5) * 2.3283064365386963e-10)
'''
)

_UNIFORM_32 = "float64(int64(words[skip + i] >> shift)) * scale"
_UNIFORM_64 = (
    "float64(int64((words[2 * (skip + i)] | words[2 * (skip + i) + 1] << 32) >> 11)) * scale"
)
_INTEGER_63 = "int64((words[2 * (skip + i)] | words[2 * (skip + i) + 1] << 32) >> 1)"
"""Expressions for element skip + i of a chunk."""

_FILL = '''
def fill_{T}(
    out: {T}[1], rows: int64[1], height: int64, starts: int64[1], stops: int64[1], count: int64,
    seed_bits: int64, stream_bits: int64, kind: int64, bits: int64
):
    """Fill `out` with the elements rows[r] + starts[s] … rows[r] + stops[s] - 1, in this order."""
    seed = uint64(seed_bits)
    stream = uint64(stream_bits)
    words: uint64[1] = stack(32 * CHUNK)
    values: float64[1] = stack(32 * CHUNK)
    per_block = 2 if bits > 32 else 4
    chunk = per_block * CHUNK
    shift = uint64(32 - bits)
    scale = 1.0 / float64(int64(1) << bits)
    position = 0
    for r in range(height):
        for s in range(count):
            begin = rows[r] + starts[s]
            end = rows[r] + stops[s]
            while begin < end:
                first = quotient(begin, per_block)
                stop = min(end, first * per_block + chunk)
                blocks = quotient(stop - 1, per_block) + 1 - first
                generate(words, seed, stream, first, blocks)
                skip = begin - first * per_block
                if kind == NORMAL or kind == EXPONENTIAL:
                    if kind == NORMAL:
                        normals(words, values, blocks, int64(bits > 32))
                    else:
                        exponentials(words, values, blocks, int64(bits > 32))
                    for i in range(stop - begin):
                        out[position + i] = values[skip + i]
                else:
                    for i in range(stop - begin):
                        out[position + i] = {element}
                position = position + stop - begin
                begin = stop
'''

CONSTANTS: Final = {
    "LOW": LOW, "MULTIPLIER_0": MULTIPLIER_0, "MULTIPLIER_1": MULTIPLIER_1,
    "WEYL_0": WEYL_0, "WEYL_1": WEYL_1, "CHUNK": _CHUNK_BLOCKS, "NORMAL": NORMAL,
    "EXPONENTIAL": EXPONENTIAL,
}  # fmt: skip
"""The named numbers of these sources."""

CODE: Final = AotModule(
    _WORDS
    + NORMALS
    + "".join(
        _FILL.format(T=dtype, element=element)
        for dtype, element in (
            ("float32", _UNIFORM_32), ("float64", _UNIFORM_64), ("int64", _INTEGER_63),
        )
    ),
    ("uniform32", "generate", "fill_float32", "fill_float64", "fill_int64"),
    constants=CONSTANTS,
    arithmetic="rounded",
)  # fmt: skip
"""Generated programs also call `uniform32`."""


def uniform32(seed: int, stream: int, index: int) -> float:
    """Return the float32 number in [0, 1) that `fill_uniform` stores in this element."""
    return float(CODE.function("uniform32")(seed, stream, index))


@cache
def _filler(dtype: torch.dtype) -> Callable[..., Any]:
    return CODE.function(f"fill_{dtype_name(dtype)}")


@final
class Runs(NamedTuple):
    """Elements in order, by linear indices: rows[r] + starts[s] … rows[r] + stops[s] - 1 for each
    row r and segment s. The arrays are contiguous, int64."""

    rows: Indices
    starts: Indices
    stops: Indices

    def arguments(self) -> tuple[int, ...]:
        """Return the addresses and lengths that compiled functions receive."""
        rows, starts, stops = (array.ctypes.data for array in self)
        return rows, len(self.rows), starts, stops, len(self.starts)


def _fill_runs(out: torch.Tensor, runs: Runs, seed: int, stream: int, kind: int, bits: int) -> None:
    """Fill a contiguous tensor with the numbers of these elements."""
    _filler(out.dtype)(out.data_ptr(), *runs.arguments(), seed, stream, kind, bits)


# tiles --------------------------------------------------------------------------------------------


def _fill(
    out: torch.Tensor,
    tile: Tile,
    shape: Sequence[int],
    seed: SeedOrStream,
    stream: SeedOrStream,
    kind: int,
) -> None:
    accepted = (torch.int64,) if kind == BITS else tuple(_FLOAT_BITS)
    if out.dtype not in accepted:
        names = ", ".join(map(dtype_name, accepted))
        raise DTypeError(f"random fill: makes {names}; was given {out.dtype}")
    assert tuple(out.shape) == tile_shape(tile), "the tensor has the tile's shape"
    if out.numel() == 0:
        return
    bits = 63 if kind == BITS else _FLOAT_BITS[out.dtype]
    if out.device.type != "cpu":
        fill_by_torch(out, tile, shape, seed, stream, kind, bits)
        return
    filled = out
    if out.dtype in _HALF or not out.is_contiguous():
        filled = torch.empty(out.shape, dtype=torch.float32 if out.dtype in _HALF else out.dtype)
    _fill_runs(filled, runs_of(tile, shape), int(seed), int(stream), kind, bits)
    if filled is not out:
        if kind == EXPONENTIAL:
            filled.clamp_(min=least_positive(out.dtype))
        out.copy_(filled)


def runs_of(tile: Tile, shape: Sequence[int]) -> Runs:
    """Return a tile's elements in C order."""
    inner = 1
    axis = len(shape)
    while axis and tile[axis - 1].size == shape[axis - 1]:  # whole dimensions merge
        axis -= 1
        inner *= shape[axis]
    rows = np.zeros(1, np.int64)
    if axis == 0:
        return Runs(rows, np.zeros(1, np.int64), np.full(1, inner, np.int64))
    starts, stops = tile[axis - 1].segments()
    for d in range(axis - 1):
        stride = inner * int(np.prod(shape[d + 1 : axis], dtype=np.int64))
        rows = (rows[:, None] + tile[d].indices() * stride).reshape(-1)
    return Runs(rows, np.ascontiguousarray(starts * inner), np.ascontiguousarray(stops * inner))
