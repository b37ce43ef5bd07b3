"""The ring of panels, and the block-cyclic distribution of rows."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from magmath.comm import LocalGroup
from magmath.comm.panel_broadcast import PanelBroadcast
from magmath.core.block_cyclic import RING_DEPTH, BlockCyclicRows, panel_ring_bytes
from magmath.errors import WorkerLost

NBYTES, COUNT = 40, 4 * RING_DEPTH


def rings(group: LocalGroup) -> list[PanelBroadcast]:
    memory = [torch.zeros(panel_ring_bytes(NBYTES), dtype=torch.uint8) for _ in range(group.size)]
    return [
        PanelBroadcast(
            group.communicator(rank),
            [m if group.shares_memory or r == rank else None for r, m in enumerate(memory)],
            NBYTES,
        )
        for rank in range(group.size)
    ]


@pytest.mark.parametrize("shares_memory", [True, False])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_all_read_what_one_has_made_however_late_they_are(size: int, shares_memory: bool) -> None:
    """Twice through the same ring; the next owner makes its panel before it is done with the one
    before."""

    def work(rank: int, ring: PanelBroadcast) -> None:
        lag = random.Random(rank)
        for turn in range(2):
            ring.start()

            def make(number: int, turn: int = turn) -> None:
                if number < COUNT and number % size == rank:
                    ring.make(number, NBYTES).fill_(number + 100 * turn)
                    ring.publish(number, NBYTES, status=number * number)

            make(0)
            for number in range(COUNT):
                result, status = ring.read(number, number % size, NBYTES)
                make(number + 1)
                time.sleep(lag.choice([0, 0, 0.002]))
                assert status == number * number
                assert (result == number + 100 * turn).all()
                ring.release(number)
            group.communicator(rank).barrier()

    group = LocalGroup(size, shares_memory)
    with ThreadPoolExecutor(size) as threads:
        for done in [threads.submit(work, *pair) for pair in enumerate(rings(group))]:
            done.result(timeout=30)


@pytest.mark.parametrize("shares_memory", [True, False])
def test_a_worker_that_waits_for_a_panel_is_woken_by_an_abort(shares_memory: bool) -> None:
    group = LocalGroup(2, shares_memory)
    ring = rings(group)[1]
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(ring.read, 0, 0, NBYTES)
        time.sleep(0.05)
        assert not waiting.done()
        group.abort()
        with pytest.raises(WorkerLost):
            waiting.result(timeout=30)


@given(extent=st.integers(0, 40), rows=st.integers(1, 9), size=st.integers(1, 5))
def test_every_row_is_dealt_to_one_worker(extent: int, rows: int, size: int) -> None:
    result: list[int] = []
    for rank in range(size):
        shares = BlockCyclicRows(extent, rows, rank, size)
        own: list[int] = []
        for panel in shares.own_panels():
            assert shares.owner(panel) == rank
            assert shares.is_own(panel)
            assert shares.local_rows(panel).start == len(own)
            own += range(*shares.bounds(panel))
            assert shares.local_rows(panel).stop == len(own)
        for panel in range(shares.count):
            _, stop = shares.bounds(panel)
            assert own[shares.after(panel)] == [row for row in own if row >= stop]
        result += own
    assert sorted(result) == list(range(extent))
