"""Sorting in host memory by unsigned keys, because NumPy sorts integers with vector instructions.

The bits of a number are mapped to an unsigned integer of the same order: NaN is the largest in both
directions, and -0 precedes 0 or equals it. An integer that contains a key in its upper bits and the
position in its lower bits is unique, so a stable argsort is a sort of integers too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from magmath.core.block_cyclic import round_to_cache_lines

if TYPE_CHECKING:
    import torch

Keys: TypeAlias = "NDArray[Any]"

BLOCK = 1 << 16  # elements that are encoded at a time, so that they stay in the cache
POSITION_BITS = 32  # lower bits of an integer that also contains a key of up to 32 bits
MAX_POSITIONS = 1 << POSITION_BITS
MAX_COUNTED = 1 << 16  # largest range of keys that are counted, or sorted by two digits of 8 bits
MAX_PARTITIONS = 16  # largest number of positions for which a partition is faster than sorting
MIN_COUNTED = 1 << 10  # minimum number of keys for which it is worthwhile to find their range

_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_SIGNED = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}


def bits_of(x: torch.Tensor) -> Keys:
    """Return a view of a tensor's bits as unsigned integers."""
    import torch

    signed = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[x.itemsize]
    array: Keys = x.view(signed).numpy().view(_UNSIGNED[x.itemsize])
    return array


@final
class KeyCode:
    """Encodes numbers of a torch type as keys, and decodes keys."""

    def __init__(self, dtype: torch.dtype, descending: bool, *, zeros_differ: bool = True) -> None:
        import torch

        self.key = np.dtype(_UNSIGNED[dtype.itemsize])
        self._descending = descending
        width = 8 * dtype.itemsize
        self._signed = np.dtype(_SIGNED[dtype.itemsize])
        self._shift = self._signed.type(width - 1)
        self._sign = self.key.type(1 << (width - 1))
        self._top = self.key.type((1 << width) - 1)
        self._infinity: Any = None
        self._joins_zeros = dtype.is_floating_point and not zeros_differ
        self._plain = dtype is torch.bool or not dtype.is_signed
        if dtype.is_floating_point:
            infinity = torch.tensor(float("inf"), dtype=dtype)
            self._infinity = bits_of(infinity.reshape(1))[0]

    def encode(self, bits: Keys, keys: Keys) -> None:
        """Fill `keys` with the keys of the numbers with these bits; both may be the same memory."""
        for part, target in _blocks(bits, keys):
            if self._infinity is None:
                changed = self.key.type(0) if self._plain else self._sign
                np.bitwise_xor(part, ~changed if self._descending else changed, out=target)
                continue
            zero = part == self._sign if self._joins_zeros else None
            np.bitwise_xor(part, self._flips(part), out=target)
            if zero is not None and zero.any():
                target[zero] = self._sign
            nan = target > (self._infinity | self._sign)
            nan |= target < ~(self._infinity | self._sign)  # below -inf: NaN with the sign bit set
            if self._descending:
                np.invert(target, out=target)
            if nan.any():
                target[nan] = self._top

    def decode(self, keys: Keys, bits: Keys) -> None:
        """Fill `bits` with the bits of the numbers that have these keys."""
        for part, target in _blocks(keys, bits):
            if self._infinity is not None:
                ascending = ~part if self._descending else part
                np.bitwise_xor(ascending, self._flips(~ascending), out=target)
            else:
                changed = self.key.type(0) if self._plain else self._sign
                np.bitwise_xor(part, ~changed if self._descending else changed, out=target)

    def _flips(self, bits: Keys) -> Keys:
        """Return the bits that differ between numbers and keys: all for a negative number,
        otherwise the sign bit."""
        negative: Keys = (bits.view(self._signed) >> self._shift).view(self.key)
        negative |= self._sign
        return negative

    def pack(self, bits: Keys, first: int, out: NDArray[np.uint64]) -> None:
        """Fill `out` with the keys of 1-D numbers in the upper bits and their positions, counted
        from `first`, in the lower bits."""
        for start in range(0, len(bits), BLOCK):
            part = bits[start : start + BLOCK]
            keys = np.empty(len(part), self.key)
            self.encode(part, keys)
            target = out[start : start + BLOCK]
            np.left_shift(keys, POSITION_BITS, out=target, dtype=np.uint64)
            target |= np.arange(first + start, first + start + len(part), dtype=np.uint64)


def sort_keys(keys: Keys, axis: int = -1) -> None:
    """Sort in place; equal keys are indistinguishable, so keys in a small range are counted."""
    least = _least_in_range(keys) if keys.ndim == 1 and keys.itemsize > 1 else None
    if least is None:
        keys.sort(axis=axis, kind="stable" if keys.itemsize == 1 else None)  # counts bytes
        return
    counts = np.bincount((keys - least).astype(np.intp, copy=False))
    keys[...] = np.repeat(np.arange(len(counts), dtype=keys.dtype) + least, counts)


def _least_in_range(keys: Keys) -> Any:
    """Return the least key if there are many keys in a range of 16 bits, otherwise None."""
    if keys.size < MIN_COUNTED:
        return None
    least, largest = keys.min(), keys.max()
    return least if largest - least < min(keys.size, MAX_COUNTED) else None


def sort(x: torch.Tensor, out: torch.Tensor, *, axis: int, descending: bool) -> None:
    """Fill `out` with x sorted along an axis."""
    code, target = KeyCode(x.dtype, descending), bits_of(out)
    keys = target if target.flags.c_contiguous else np.empty(target.shape, code.key)
    code.encode(bits_of(x), keys)
    sort_keys(keys, axis)
    code.decode(keys, target)


def order_statistics(
    x: torch.Tensor, out: torch.Tensor, *, axis: int, positions: tuple[int, ...]
) -> None:
    """Fill `out` with the elements at these positions of x sorted along an axis."""
    code, target = KeyCode(x.dtype, descending=False), bits_of(out)
    keys = np.empty(tuple(x.shape), code.key)
    code.encode(bits_of(x), keys)
    if len(positions) > MAX_PARTITIONS:
        sort_keys(keys, axis)
    else:
        keys.partition(sorted(set(positions)), axis)
    code.decode(np.take(keys, positions, axis), target)


def argsort(x: torch.Tensor, out: torch.Tensor, *, axis: int, descending: bool) -> None:
    """Fill `out`, int64, with the positions along an axis that sort x stably."""
    code, target = KeyCode(x.dtype, descending, zeros_differ=False), bits_of(out)
    positions = target if target.flags.c_contiguous else np.empty(target.shape, np.uint64)
    keys = np.empty(target.shape, code.key)
    code.encode(bits_of(x), keys)
    order_keys(keys, positions, axis)
    if positions is not target:
        target[...] = positions


def order_keys(keys: Keys, positions: NDArray[np.uint64], axis: int = -1) -> None:
    """Fill `positions` with those along an axis that sort the keys stably.

    Keys of 64 bits are sorted by their lower half first, then stably by their upper half; keys in
    a range of 32 bits by their differences from the smallest. NumPy sorts those in a range of 16
    bits, such as labels, by their digits, and all keys whose positions exceed 32 bits.
    """
    count = keys.shape[axis]
    if count > MAX_POSITIONS:
        positions.view(np.int64)[...] = np.argsort(keys, axis=axis, kind="stable")
        return
    least = _least_in_range(keys) if count >= MIN_COUNTED else None
    if least is not None:
        digits = (keys - least).astype(np.uint16)
        positions.view(np.int64)[...] = np.argsort(digits, axis=axis, kind="stable")
        return
    numbers = np.arange(count, dtype=np.uint64)
    numbers = numbers.reshape([-1 if d == axis % keys.ndim else 1 for d in range(keys.ndim)])
    if keys.itemsize == 8 and keys.size:
        least, largest = keys.min(), keys.max()
        if largest - least <= np.uint64(MAX_POSITIONS - 1):
            np.subtract(keys, least, out=positions)
            _order_lower_bits(positions, numbers, axis, positions)
            return
    _order_lower_bits(keys, numbers, axis, positions)
    if keys.itemsize < 8:
        return
    order = positions.view(np.int64)
    upper = np.take_along_axis(keys, order, axis)
    upper >>= np.uint64(POSITION_BITS)
    _order_lower_bits(upper, numbers, axis, upper)
    positions[...] = np.take_along_axis(order, upper.view(np.int64), axis).view(np.uint64)


def _order_lower_bits(
    keys: Keys, numbers: NDArray[np.uint64], axis: int, out: NDArray[np.uint64]
) -> None:
    """Fill `out` with the positions along an axis, `numbers`, that sort the lower 32 bits of the
    keys stably; `out` may be the memory of the keys."""
    np.left_shift(keys, POSITION_BITS, out=out, dtype=np.uint64)
    out |= numbers
    sort_keys(out, axis)
    out &= np.uint64(MAX_POSITIONS - 1)


def are_positions_packed(itemsize: int, count: int) -> bool:
    """Return True if a distributed argsort of `count` keys of this size sorts integers that contain
    a key and its position; otherwise keys and positions are separate."""
    return 8 * itemsize <= POSITION_BITS and count <= MAX_POSITIONS


def sort_bytes(count: int, workers: int, itemsize: int) -> int:
    """Return the workspace bytes of a worker for a distributed sort of `count` elements: a run,
    which the other workers read until the next synchronization, and a merge buffer of the same
    size."""
    return 2 * round_to_cache_lines(-(-count // workers) * itemsize)


def argsort_bytes(count: int, workers: int, itemsize: int) -> int:
    """Return the workspace bytes of a worker for a distributed argsort of `count` elements: like
    `sort_bytes`, with positions, and if these are separate, an array for the sorted keys."""
    arrays = 2 if are_positions_packed(itemsize, count) else 5
    return arrays * round_to_cache_lines(-(-count // workers) * 8)


def _blocks(source: Keys, target: Keys) -> Iterator[tuple[Keys, Keys]]:
    """Yield corresponding parts of two arrays: blocks of `BLOCK` elements if both are contiguous,
    otherwise the whole arrays."""
    if not (source.flags.c_contiguous and target.flags.c_contiguous):
        yield source, target
        return
    source, target = source.reshape(-1), target.reshape(-1)
    for start in range(0, len(source), BLOCK):
        yield source[start : start + BLOCK], target[start : start + BLOCK]
