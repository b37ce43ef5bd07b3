"""The dependence test: calls do not share a loop if one writes elements that another reads
elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from magmath.executor.dependence import Access, next_loop

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


def test_what_disturbs_begins_another_loop() -> None:
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
