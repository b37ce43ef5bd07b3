"""Dependence test of loop fusion: which element-wise calls can share a loop.

If calls run one after the other, each reads the complete results of earlier calls, and writes only
memory that no later call still reads (the arena reuses the memory of other arrays for results).
Element by element, this holds only for data that the same step reads and writes at one address:
the dependence test of loop fusion (Allen and Kennedy, Optimizing Compilers for Modern
Architectures, section 6.2), on memory as it is bound. A call may move before others if neither
writes memory that both touch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Protocol, TypeVar, final

if TYPE_CHECKING:
    import torch

LONG = 1 << 12
"""Minimum number of elements of a long array."""


@final
@dataclass(frozen=True)
class Access:
    """Memory that a call reads or writes, from its first byte to the one after its last.

    Accesses of equal `location` touch the same elements in the same steps, unless `elsewhere`: then
    a step may read at other indices than its own.
    """

    begin: int
    end: int
    location: tuple[int, tuple[int, ...], tuple[int, ...], torch.dtype]
    written: bool
    elsewhere: bool

    @classmethod
    def of(cls, tensor: torch.Tensor, *, written: bool = False, elsewhere: bool = False) -> Access:
        """Return the access to all elements of a tensor."""
        spans = [(n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True)]
        begin = tensor.data_ptr()
        end = begin + (sum(spans) + 1) * tensor.element_size()
        location = (begin, tuple(tensor.shape), tensor.stride(), tensor.dtype)
        return cls(begin, end, location, written, elsewhere)

    def has_conflict(self, other: Access) -> bool:
        """Return True if the order of the two accesses matters: they overlap, and one of them
        writes."""
        if not (self.written or other.written):
            return False
        return not (self.end <= other.begin or other.end <= self.begin)

    def can_disturb(self, other: Access) -> bool:
        """Return True if one access must be complete before the other begins."""
        if not self.has_conflict(other):
            return False
        return self.elsewhere or other.elsewhere or self.location != other.location


class Member(Protocol):
    """A call that can be part of a loop over all indices of a shape."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of the loop."""

    @property
    def accesses(self) -> Sequence[Access]:
        """The memory that it reads and writes."""


MemberType = TypeVar("MemberType", bound=Member)


def insert(members: list[MemberType], member: MemberType) -> None:
    """Add a member after the last one of its shape, or in front if none has its shape, but not
    before a scalar; at the end if it conflicts with a member that it would pass.

    This lets the computation of a value and its write into a copy share a loop that follows the
    copy, and operations on long arrays follow the scalars that some of them need.
    """
    index = len(members)
    while index and members[index - 1].shape != member.shape:
        if not members[index - 1].shape:
            break
        if have_conflict(member, members[index - 1]):
            index = len(members)
            break
        index -= 1
    members.insert(index, member)


def next_loop(members: Sequence[MemberType]) -> tuple[list[MemberType], list[MemberType]]:
    """Return the members that share a loop with the first one, and the others, in order."""
    loop, rest = [members[0]], list[MemberType]()
    for member in members[1:]:
        fits = member.shape == loop[0].shape
        fits = fits and not any(_can_disturb(member, other) for other in loop)
        if fits and not any(have_conflict(member, other) for other in rest):
            loop.append(member)
        else:
            rest.append(member)
    return loop, rest


def connected(members: Sequence[MemberType]) -> list[list[MemberType]]:
    """Return the members of a loop as groups that have no long array in common, each in order.

    Groups gain nothing from a common loop, which would access many arrays at once: compilers do not
    vectorize it, and processors have few streams for prefetching. A loop of few steps stays whole.
    """
    if prod(members[0].shape) < LONG:
        return [list(members)]
    groups: list[tuple[list[int], set[object]]] = []
    for position, member in enumerate(members):
        arrays = set(map(_array, _long(member)))
        touching = [group for group in groups if not group[1].isdisjoint(arrays)]
        groups = [group for group in groups if group[1].isdisjoint(arrays)]
        positions = sorted([position, *[i for group in touching for i in group[0]]])
        groups.append((positions, arrays.union(*[group[1] for group in touching])))
    return [[members[i] for i in positions] for positions, _ in sorted(groups, key=lambda g: g[0])]


def can_share_arrays(members: Sequence[Member], other_members: Sequence[Member]) -> bool:
    """Return True if loops of these members access parts of one long array, or if some of the
    members access no long array."""
    accesses = [x for member in members for x in _long(member)]
    other_accesses = [x for member in other_members for x in _long(member)]
    if not (accesses and other_accesses):
        return True
    return any(x.begin < y.end and y.begin < x.end for x in accesses for y in other_accesses)


def _long(member: Member) -> list[Access]:
    """Return the accesses to arrays that are worth a loop of their own."""
    return [x for x in member.accesses if prod(x.location[1]) >= LONG]


def _array(access: Access) -> object:
    return access.begin if access.elsewhere else access.location


def have_conflict(member: Member, other: Member) -> bool:
    """Return True if the order of two members matters."""
    return any(x.has_conflict(y) for x in member.accesses for y in other.accesses)


def _can_disturb(member: Member, other: Member) -> bool:
    return any(x.can_disturb(y) for x in member.accesses for y in other.accesses)
