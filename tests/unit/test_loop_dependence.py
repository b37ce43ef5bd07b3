"""The dependence test: calls do not share a loop if one writes elements that another reads
elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import torch

from magmath.codegen.emit import Writer
from magmath.executor.loop_dependence import Access, next_loop
from magmath.executor.loop_nests import PartLoop, joined, offset_of, write_rectangles

MEMORY = torch.arange(64, dtype=torch.float64)


def read(tensor: torch.Tensor, *, elsewhere: bool = False) -> Access:
    return Access.of(tensor, elsewhere=elsewhere)


def write(tensor: torch.Tensor) -> Access:
    return Access.of(tensor, written=True)


@dataclass
class Some:
    """A member of a loop."""

    accesses: list[Access]
    shape: tuple[int, ...] = (4, 8)


MATRIX = MEMORY[:32].view(4, 8)
CASES = {
    "the same place": ([read(MATRIX), write(MATRIX)], [read(MATRIX)], True),
    "apart": ([read(MATRIX)], [write(MEMORY[32:].view(4, 8))], True),
    "neighbours": ([read(MEMORY[:8])], [write(MEMORY[8:16])], True),
    "only read": ([read(MATRIX)], [read(MEMORY[3:7])], True),
    "over what was broadcast": ([read(MEMORY[:4].view(4, 1))], [write(MATRIX)], False),
    "read from what is written": ([write(MATRIX)], [read(MEMORY[:4].view(4, 1))], False),
    "shifted": ([read(MEMORY[:8])], [write(MEMORY[1:9])], False),
    "another type": ([read(MEMORY[:4])], [write(MEMORY[:2].view(torch.float32))], False),
    "transposed": ([read(MEMORY[:16].view(4, 4))], [write(MEMORY[:16].view(4, 4).T)], False),
    "written twice": ([write(MEMORY[:8])], [write(MEMORY[4:12])], False),
    "elsewhere": ([write(MATRIX)], [read(MATRIX, elsewhere=True)], False),
}


@pytest.mark.parametrize("case", CASES)
def test_calls_share_a_loop_unless_they_disturb_each_other(case: str) -> None:
    former, later, together = CASES[case]
    for first, second in ((former, later), (later, former)):
        loop, rest = next_loop([Some(first), Some(second)])
        assert len(loop) == (2 if together else 1)
        assert len(loop) + len(rest) == 2


def test_a_dependent_call_begins_another_loop() -> None:
    free, column = MEMORY[32:].view(4, 8), MEMORY[:4].view(4, 1)
    calls = [[read(column), write(free)], [read(free)], [write(MATRIX)], [read(free)]]
    members = [Some(accesses) for accesses in calls]
    loop, rest = next_loop(members)
    assert loop == [members[0], members[1], members[3]]  # what only reads moves before
    assert rest == [members[2]]


def test_calls_move_only_before_those_that_do_not_touch_what_they_write() -> None:
    first, second = MEMORY[:8], MEMORY[8:16]
    members = [
        Some([write(first)], (8,)),
        Some([read(first), write(second)], (2, 4)),
        Some([write(first)], (8,)),  # must stay behind the second one
        Some([write(MEMORY[32:40])], (8,)),
        Some([read(second), write(MEMORY[40:48])], (8,)),
    ]
    loop, rest = next_loop(members)
    assert loop == [members[0], members[3]]
    assert rest == [members[1], members[2], members[4]]
    assert next_loop(rest) == ([members[1]], [members[2], members[4]])


# loops over parts of an array ------------------------------------------------------------------


@dataclass
class Update:
    """A call that updates the part of `target` at some slices, from the same part of others and
    from other slices of `source`."""

    part: tuple[slice, ...]
    source: torch.Tensor
    target: torch.Tensor

    @property
    def accesses(self) -> list[Access]:
        view = self.target[self.part]
        return [read(self.source), read(view), write(view)]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.target[self.part].shape)

    def loop(self) -> PartLoop[Update]:
        offset = offset_of(self.target[self.part], self.target)
        assert offset is not None
        return PartLoop([self], self.shape, tuple(self.target.shape), offset)


OUT, IN = MEMORY[:32].view(4, 8), MEMORY[32:].view(4, 8)
UPDATES = [
    Update((slice(None), slice(None)), IN, OUT),
    Update((slice(1, None), slice(None)), IN[:-1], OUT),
    Update((slice(None, -1), slice(None)), IN[1:], OUT),
    Update((slice(None), slice(1, None)), IN[:, :-1], OUT),
    Update((slice(None), slice(None, -1)), IN[:, 1:], OUT),
]


def test_updates_of_parts_of_one_array_share_a_nest() -> None:
    loops = [update.loop() for update in UPDATES]
    assert [x.offset for x in loops] == [(0, 0), (1, 0), (0, 0), (0, 1), (0, 0)]
    assert joined(loops) == [loops]


def test_an_update_that_reads_neighbours_of_what_the_nest_writes_begins_another_one() -> None:
    loops = [UPDATES[0].loop(), Update((slice(1, None), slice(None)), OUT[:-1], IN).loop()]
    assert joined(loops) == [loops[:1], loops[1:]]


def test_every_step_of_a_nest_has_its_loops_once_and_in_order() -> None:
    loops = [update.loop() for update in UPDATES]
    writer, found = Writer(), list[tuple[int, int, int]]()

    def body(active: Sequence[PartLoop[Update]]) -> None:
        for loop in active:
            writer.line(f"found.append(({loops.index(loop)}, i, j))")

    for limits in (None, ("first", "last")):
        writer.lines.clear()
        write_rectangles(writer, (0, 1), ("i", "j"), loops, body, {}, limits)
        code = "\n".join(line.removeprefix("    ") for line in writer.lines)
        found = []
        for first, last in [(0, 4)] if limits is None else [(2, 4), (0, 2)]:
            exec(code, {"found": found, "first": first, "last": last})
        expected = {
            (number, i, j)
            for number, update in enumerate(UPDATES)
            for i in range(4)[update.part[0]]
            for j in range(8)[update.part[1]]
        }
        assert set(found) == expected
        assert len(found) == len(expected)
        for i in range(4):
            for j in range(8):
                numbers = [n for n, *at in found if at == [i, j]]
                assert numbers == sorted(numbers)


def test_views_with_steps_have_no_offset() -> None:
    assert offset_of(OUT[::2], OUT) is None
    assert offset_of(OUT.T, OUT) is None
    assert offset_of(OUT[1:3, 2:5], OUT) == (1, 2)
    assert offset_of(OUT[3:, 7:], OUT) == (3, 7)
