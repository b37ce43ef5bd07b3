"""Every operation of the table on two and on three worker processes, some on one and on four.

Threads run the same programs (tests/sim), in one process and one interpreter. Only here do the
operations cross MPI, windows of shared memory that every process maps at another address, and
messages that are encoded. One example of a row is enough for that; layouts are tested extensively
on threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import operation_bodies as bodies
from engines import close_pool, engine_of
from operation_table import FOLDED, ROWS, cases

TABLE = {**ROWS, **FOLDED}

# A failure may cost a pool, so a failing example is shown as it was found.
two = settings(
    max_examples=2, suppress_health_check=list(HealthCheck), phases=[Phase.generate], database=None
)


OPERATIONS = {1: [*TABLE][::8], 2: [*TABLE], 3: [*TABLE], 4: [*TABLE][1::2]}
"""By the number of processes. Two and three already divide every array in all ways, and other tests
need these pools anyway. So one process, which divides nothing, gets every eighth operation, and four
get every second one, beginning with the second so as to have others than the one process."""


@pytest.fixture(autouse=True, scope="module")
def _own_pools_end() -> Iterator[None]:
    """Close the pools that no other module needs after the last test of this one. (A fixture that
    got the number of processes as its parameter would end after each test: together with the name
    of the operation it is another parameter.)"""
    yield
    for workers in (1, 4):
        close_pool("processes", workers)


@pytest.mark.parametrize(
    ("workers", "name"),
    [(workers, name) for workers, names in OPERATIONS.items() for name in names],
)
def test_any_layout_gives_the_same(workers: int, name: str) -> None:
    examples = count()

    @given(data=st.data())
    @two
    def check(data: st.DataObject) -> None:
        case = data.draw(cases(TABLE[name]))
        if next(examples):  # the first is always the simplest, mostly empty or of one element
            bodies.check_any_layout(engine_of("processes", workers), name, case, data)

    check()
    assert next(examples) >= 2, "an example was run"
