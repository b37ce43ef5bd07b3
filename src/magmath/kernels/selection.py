"""The choice between two arrays by a condition, on the processor: `where` without branches.

torch and NumPy branch for each element, which takes ten times as long if the condition is random:
x ⊕ ((x ⊕ y) & mask) has the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import torch

from magmath.kernels.scratch import Scratch
from magmath.kernels.thread_workspace import thread_workspace

MIN_ELEMENTS: Final = 1 << 15
"""Below, one call of torch takes less time than several."""
BLOCK_ELEMENTS: Final = 1 << 17
"""Elements of a block, which stays in the cache between the operations."""

_WORDS: Final = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def can_bind(condition: torch.Tensor, x: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> bool:
    """Return True for large arrays in host memory of one type with a fitting word."""
    if out.device.type != "cpu" or out.numel() < MIN_ELEMENTS or condition.dtype != torch.bool:
        return False
    same = x.dtype == y.dtype == out.dtype and out.itemsize in _WORDS
    return same and not any(tensor.is_conj() or tensor.is_neg() for tensor in (x, y, out))


def bind(
    condition: torch.Tensor, x: torch.Tensor, y: torch.Tensor, out: torch.Tensor
) -> Callable[[], object]:
    """Return a bound call that writes x where the condition is true, and y elsewhere."""
    word = _WORDS[out.itemsize]
    bits = [tensor.view(word).expand(out.shape) for tensor in (x, y)]
    operands = condition.expand(out.shape), *bits, out.view(word)
    parts = [[tensor[index] for tensor in operands] for index in _blocks(out)]

    def run() -> None:
        memory = thread_workspace(2 * out.itemsize * BLOCK_ELEMENTS + 128)
        for c, a, b, target in parts:
            scratch = Scratch(memory)
            dense = target.shape, _dense(target)
            mask, mixed = [scratch.take(word, target.numel()).as_strided_(*dense) for _ in range(2)]
            mask.copy_(c).neg_()
            torch.bitwise_xor(a, b, out=mixed)
            mixed.bitwise_and_(mask)
            torch.bitwise_xor(mixed, b, out=target)

    return run


def _dense(tensor: torch.Tensor) -> tuple[int, ...]:
    """Return the strides of a dense tensor with the same order of the dimensions."""
    return torch.empty_like(tensor, device="meta").stride()


def _blocks(out: torch.Tensor) -> Iterator[tuple[slice, ...]]:
    """Yield the indices of blocks, divided along the dimensions with the largest strides."""
    whole = (slice(None),) * out.ndim
    if out.numel() <= BLOCK_ELEMENTS:
        yield whole
        return
    axis = max((d for d in range(out.ndim) if out.shape[d] > 1), key=out.stride)
    size = max(1, BLOCK_ELEMENTS * out.shape[axis] // out.numel())
    for first in range(0, out.shape[axis], size):
        part = slice(first, min(first + size, out.shape[axis]))
        for inner in _blocks(out.narrow(axis, part.start, part.stop - part.start)):
            yield (*inner[:axis], part, *inner[axis + 1 :])
