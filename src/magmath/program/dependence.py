"""Which element-wise calls can share a loop: those that do not disturb each other in memory.

One call after the other, each finds whole what those before it have written, and writes only where
nobody reads any more (the arena puts a result where another array has lain). Element by element
that holds for what is read and written at the same place by the same step alone: the dependence
test of loop fusion (Allen and Kennedy, Optimizing Compilers for Modern Architectures, section 6.2),
on memory as it is bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Access:
    """Memory that a call reads or writes, from its first byte to behind its last one.

    Steps touch equal `places` in the same order, unless what is read lies `elsewhere` than at the
    indices of the step.
    """

    begin: int
    end: int
    place: tuple[object, ...]
    written: bool
    elsewhere: bool

    @classmethod
    def of(cls, tensor: torch.Tensor, *, written: bool = False, elsewhere: bool = False) -> Access:
        """The access to all elements of a tensor."""
        spans = [(n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True)]
        begin = tensor.data_ptr()
        end = begin + (sum(spans) + 1) * tensor.element_size()
        place = (begin, tuple(tensor.shape), tensor.stride(), tensor.dtype)
        return cls(begin, end, place, written, elsewhere)

    def disturbs(self, other: Access) -> bool:
        """True if it matters whether one is done whole before the other begins."""
        if not (self.written or other.written):
            return False
        if self.end <= other.begin or other.end <= self.begin:
            return False
        return self.elsewhere or other.elsewhere or self.place != other.place


def undisturbed(calls: Sequence[Sequence[Access]]) -> int:
    """How many calls, counted from the first, can share a loop, given what each accesses."""
    for count, later in enumerate(calls):
        former = chain.from_iterable(calls[:count])
        if any(one.disturbs(other) for one in former for other in later):
            return count
    return len(calls)
