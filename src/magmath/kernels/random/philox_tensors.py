"""The numbers of `kernels/random/philox.py` for devices without compiled loops: the same arithmetic
on int64 tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from magmath.core.index_set import Tile
from magmath.kernels.random.philox_constants import (
    BITS,
    EXPONENTIAL,
    LOW,
    MULTIPLIER_0,
    MULTIPLIER_1,
    NORMAL,
    ROUNDS,
    WEYL_0,
    WEYL_1,
    SeedOrStream,
)
from magmath.kernels.random.portable_math import cosine_series, log_series, sine_series

_CHUNK = 1 << 22  # elements computed at once: bounds the temporaries


def fill_by_torch(
    out: torch.Tensor, tile: Tile, shape: Sequence[int], seed: SeedOrStream, stream: SeedOrStream,
    kind: int, bits: int,
) -> None:  # fmt: skip
    """Fill a tile with the numbers of `kernels/random/philox.py`, by tensor operations on any
    device."""
    is_contiguous = out.is_contiguous()
    filled = out if is_contiguous else torch.empty(out.shape, dtype=out.dtype, device=out.device)
    flat = filled.view(-1)
    tables = [None if s.is_range else torch.as_tensor(s.indices(), device=out.device) for s in tile]
    for begin in range(0, flat.numel(), _CHUNK):
        part = flat[begin : begin + _CHUNK]
        remaining = torch.arange(begin, begin + part.numel(), device=out.device)
        index, stride = torch.zeros_like(remaining), 1
        for indices, table, extent in zip(tile[::-1], tables[::-1], shape[::-1], strict=True):
            coordinate = remaining % indices.size
            remaining //= indices.size
            index += stride * (coordinate + indices.start if table is None else table[coordinate])
            stride *= extent
        values = _tensor_values(index, seed, stream, kind, bits)
        if kind == EXPONENTIAL:
            values.clamp_(min=least_positive(out.dtype))
        part.copy_(values)
    if filled is not out:
        out.copy_(filled)


def least_positive(dtype: torch.dtype) -> float:
    """Return the least positive number of a type, below which exponential numbers round to 0."""
    return torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps


def _tensor_values(
    index: torch.Tensor, seed: SeedOrStream, stream: SeedOrStream, kind: int, bits: int
) -> torch.Tensor:
    if kind == NORMAL:
        return _tensor_normal(index, seed, stream, bits)
    if kind == EXPONENTIAL:
        return _tensor_exponential(index, seed, stream, bits)
    if bits > 32:
        a, b, c, d = _tensor_block(seed, stream, index >> 1)
        odd = (index & 1).bool()
        number = _joined(torch.where(odd, c, a), torch.where(odd, d, b), 64 - bits)
        return number if kind == BITS else number.double() * 2.0**-53
    a, b, c, d = _tensor_block(seed, stream, index >> 2)
    odd, late = (index & 1).bool(), (index & 2).bool()
    word = torch.where(late, torch.where(odd, d, c), torch.where(odd, b, a))
    return (word >> (32 - bits)).float() * 2.0**-bits


def _joined(low: torch.Tensor, high: torch.Tensor, shift: int) -> torch.Tensor:
    """Return (high · 2^32 + low) >> shift without sign extension; shift is at least 1."""
    return high << (32 - shift) | low >> shift


def _tensor_normal(
    index: torch.Tensor, seed: SeedOrStream, stream: SeedOrStream, bits: int
) -> torch.Tensor:
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
    # The second number of a pair is the sine: the cosine shifted by a quarter turn.
    quarter = quarter - (index & 1)
    value = torch.where((quarter & 1).bool(), sine_series(angle), cosine_series(angle))
    value = radius * torch.where(((quarter + 1) & 2).bool(), -value, value)
    return value if bits > 32 else value.float()


def _tensor_exponential(
    index: torch.Tensor, seed: SeedOrStream, stream: SeedOrStream, bits: int
) -> torch.Tensor:
    if bits > 32:
        a, b, c, d = _tensor_block(seed, stream, index >> 1)
        odd = (index & 1).bool()
        word = _joined(torch.where(odd, c, a), torch.where(odd, d, b), 12)
        return -_tensor_log((word.double() + 0.5) * 2.0**-52)
    a, b, c, d = _tensor_block(seed, stream, index >> 2)
    odd, late = (index & 1).bool(), (index & 2).bool()
    word = torch.where(late, torch.where(odd, d, c), torch.where(odd, b, a))
    return -_tensor_log((word.double() + 0.5) * 2.0**-32).float()


def _tensor_log(x: torch.Tensor) -> torch.Tensor:
    pattern = x.view(torch.int64)
    exponent = (pattern >> 52) - 1023
    mantissa = (pattern & 0xFFFFFFFFFFFFF | 0x3FF0000000000000).view(torch.float64)
    large = mantissa > 1.4142135623730951
    mantissa = torch.where(large, mantissa * 0.5, mantissa)
    logarithm: torch.Tensor = log_series(mantissa, (exponent + large.long()).double())
    return logarithm


def _tensor_sqrt(x: torch.Tensor) -> torch.Tensor:
    """Return the correctly rounded square root.

    The root y of a library may be off by one unit in the last place, so this function corrects it
    by (x - y²) / 2y. Dekker's product (1971) gives y² without rounding error.
    """
    y = torch.sqrt(x)
    scaled = y * 134217729.0  # 2^27 + 1: splits y into two halves of its digits
    high = scaled - (scaled - y)
    low = y - high
    square = y * y
    error = ((high * high - square) + 2.0 * high * low) + low * low
    return torch.where(y > 0, y + ((x - square) - error) / (2.0 * y), y)


def _tensor_block(
    seed: SeedOrStream, stream: SeedOrStream, counter: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Return the four words of each block, for an int64 tensor of counters. Products wrap around;
    results of shifts are masked."""
    key_0, key_1 = seed & LOW, seed >> 32 & LOW
    word_0, word_1 = counter & LOW, counter >> 32
    zero = torch.zeros_like(counter)
    word_2, word_3 = zero + (stream & LOW), zero + (stream >> 32 & LOW)
    for _ in range(ROUNDS):
        product_0, product_1 = word_0 * MULTIPLIER_0, word_2 * MULTIPLIER_1
        word_0, word_1 = (product_1 >> 32 & LOW) ^ word_1 ^ key_0, product_1 & LOW
        word_2, word_3 = (product_0 >> 32 & LOW) ^ word_3 ^ key_1, product_0 & LOW
        key_0, key_1 = key_0 + WEYL_0 & LOW, key_1 + WEYL_1 & LOW
    return word_0, word_1, word_2, word_3
