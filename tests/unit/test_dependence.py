"""Which calls share a loop: what one writes where another reads other elements keeps them apart."""

from __future__ import annotations

import pytest
import torch

from magmath.program.dependence import Access, undisturbed

MEMORY = torch.arange(64, dtype=torch.float64)


def read(tensor: torch.Tensor, *, elsewhere: bool = False) -> Access:
    return Access.of(tensor, elsewhere=elsewhere)


def write(tensor: torch.Tensor) -> Access:
    return Access.of(tensor, written=True)


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
    assert undisturbed([former, later]) == (2 if together else 1)
    assert undisturbed([later, former]) == (2 if together else 1)


def test_the_first_call_that_disturbs_begins_another_loop() -> None:
    free, column = MEMORY[32:].view(4, 8), MEMORY[:4].view(4, 1)
    calls = [[read(column), write(free)], [read(free)], [write(MATRIX)], [read(free)]]
    assert undisturbed(calls) == 2
    assert undisturbed([]) == 0
