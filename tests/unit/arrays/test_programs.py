"""The cost of expressions: programs, messages, repeated computations, memory, layouts."""

from __future__ import annotations

import gc
import inspect
import re
from collections.abc import Callable

import numpy as np
import pytest

import magmath as mm
from arrays import GRID, SHAPE, check, programs
from engines import NOTHING_IS_SMALL, current
from magmath.engine import session
from magmath.errors import (
    LayoutError,
    MemoryLimitError,
)
from magmath.memory.heap import Block
from magmath.memory.temporaries import Temporaries
from magmath.runtime import Pool


# programs and messages ----------------------------------------------------------------------------
def test_numbers_are_no_part_of_a_program(every_pool: Pool) -> None:
    x = mm.asarray(GRID)
    (x * 1.0).numpy()
    known = programs(every_pool)
    for i in range(2, 30):
        check(x * float(i), GRID * i)
        check(x * i, GRID * i)
    assert programs(every_pool) == known


def test_second_run_of_a_program_is_one_message(every_pool: Pool) -> None:
    x = mm.asarray(GRID)
    mm.evaluate(mm.sum(x * 2.0))
    gc.collect()
    mm.evaluate(mm.sum(x * 3.0))  # carries what was released meanwhile
    before = every_pool.traffic.messages, every_pool.traffic.bytes
    y = mm.sum(x * 4.0)
    mm.evaluate(y)
    assert every_pool.traffic.messages - before[0] <= 2, "the run, and arrays released"
    assert every_pool.traffic.bytes - before[1] < 200 * every_pool.workers
    assert float(y) == GRID.sum() * 4


@pytest.mark.parametrize("kind", ["shared", "messages"])
def test_repeated_lines_cost_their_run_and_the_value(kind: str) -> None:
    """Three messages, of hardly over a hundred bytes a worker, from plain expressions and compiled
    functions alike: what was released, the run, and the request for the number."""
    with current(kind, 2) as pool:
        a = mm.asarray(np.ones(100_000, np.float32))
        compiled = mm.compile(lambda a: mm.sum(a * 2 + 1))

        def cost(line: Callable[[], float]) -> tuple[int, int]:
            before = pool.traffic.messages, pool.traffic.bytes
            assert line() == 300_000
            return pool.traffic.messages - before[0], pool.traffic.bytes - before[1]

        for line in (lambda: float(mm.sum(a * 2 + 1)), lambda: float(compiled(a))):
            first, *later = [cost(line) for _ in range(10)]
            assert all(messages <= 3 and nbytes < 200 * 2 for messages, nbytes in later), later
            assert first[0] <= 5


@pytest.mark.usefixtures("planned")
def test_nothing_is_sent_until_a_value_is_needed(pool: Pool) -> None:
    x = mm.asarray(GRID)
    mm.evaluate(x)
    before = pool.traffic.messages
    y = mm.exp(x) + mm.sum(x, axis=0) * 2
    y = y.mT[0] if y.ndim > 2 else y
    assert pool.traffic.messages == before
    y.numpy()
    assert pool.traffic.messages - before <= 3, "the program, its run, get"


@pytest.fixture
def planned(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small arrays are computed by programs too."""
    monkeypatch.setattr(session.engine(), "small_sizes", NOTHING_IS_SMALL)


@pytest.mark.parametrize("extent", [10, 20_000])
def test_referenced_intermediates_are_computed_once(pool: Pool, extent: int) -> None:
    others = pool.stats()[0]["arrays"]  # that tests before have left
    x = mm.asarray(np.ones(extent, np.float32))
    y = x * 3
    assert float(mm.sum(y)) == 3 * extent
    np.testing.assert_array_equal(np.asarray(mm.grad(mm.sum(y * y), x)), np.full(extent, 18.0))
    before = pool.traffic.messages
    mm.evaluate(y)
    assert pool.traffic.messages == before
    for _ in range(50):
        y = y * 0.5 + 1
        assert float(mm.max(y)) < 3
    assert pool.stats()[0]["arrays"] - others < 25, "no value is kept for ever"


@pytest.mark.usefixtures("planned")
def test_values_are_computed_once(pool: Pool) -> None:
    y = mm.sum(mm.asarray(GRID) * 1.25)
    assert float(y) == float(y)
    known = programs(pool)
    before = pool.traffic.messages
    y.numpy()
    assert pool.traffic.messages - before == 0, "no run"
    z = y + 1  # what is known is not computed again
    mm.evaluate(z)
    assert programs(pool) == known + 1
    assert z.explain() == z.explain()
    assert "nothing to compute" in str(z.explain())


@pytest.mark.usefixtures("planned")
def test_pending_expressions_use_values_that_have_become_known(pool: Pool) -> None:
    x = mm.asarray(GRID)
    y = mm.exp(x * 0.01)
    z = y + 1.0
    assert "exp" in str(z.explain())
    mm.evaluate(y)
    assert "exp" not in str(z.explain())
    check(z, np.exp(GRID * 0.01) + 1)


@pytest.mark.usefixtures("planned")
def test_arrays_evaluated_together_are_one_program(pool: Pool) -> None:
    x = mm.asarray(GRID)
    a, b = mm.sin(x), mm.cos(mm.sin(x))
    known = programs(pool)
    before = pool.traffic.messages
    mm.evaluate(a, b, a)
    assert pool.traffic.messages - before == 2, "define and run"
    assert programs(pool) == known + 1
    mm.evaluate()
    mm.evaluate(a, b)
    check(b, np.cos(np.sin(GRID)))


def test_arrays_let_go_give_their_memory_back(every_pool: Pool) -> None:
    def arrays() -> int:
        gc.collect()
        return int(every_pool.stats()[0]["arrays"])

    x = mm.asarray(GRID)
    mm.evaluate(x + 1.0)
    known, held = arrays(), int(every_pool.stats()[0]["in_use"])
    for i in range(20):
        mm.evaluate(x + float(i))
    assert arrays() == known
    assert int(every_pool.stats()[0]["in_use"]) == held


def test_long_chains_are_no_trouble(pool: Pool) -> None:
    x = mm.asarray([0.0])
    for _ in range(3000):
        x = x + 1
    assert float(x[0]) == 3000


# layouts ------------------------------------------------------------------------------------------
def test_redistribution_and_replication() -> None:
    with current("shared", 3) as pool:
        x = mm.asarray(GRID, layout=mm.Layout.split(0))
        y = x.redistribute(mm.Layout.cyclic(1))
        assert y.layout == mm.Layout.cyclic(1).bind(SHAPE, pool.mesh)
        check(y, GRID)
        half = x.redistribute(mm.Layout.grid((3, 1)), dtype="float32")
        check(half, GRID.astype(np.float32))
        for wait in (True, False):
            whole = x.replicate(wait=wait)
            assert whole.layout.is_replicated
            check(whole, GRID)


def test_explanation_tells_instructions_bytes_and_the_users_line() -> None:
    with current("messages", 3):
        x = mm.asarray(np.ones((6, 4)), layout=mm.Layout.split(0))
        y = (x * 2).redistribute(mm.Layout.split(1))
        text = str(y.explain())
    assert "multiply" in text
    assert re.search(r"all_to_all, \d+ bytes, 6 messages", text)
    assert f"# {__file__}:" in text
    assert "bytes moved between workers" in text


def test_memory_that_is_short_names_the_line_that_needs_it() -> None:
    weights = mm.ones((4, 4)).numpy()
    line = inspect.currentframe().f_lineno + 2  # type: ignore[union-attr]
    needed = (
        lambda: mm.full((1000, 1000, 4), 2.0) @ weights,  # for an output
        lambda: mm.sum(mm.full((1000, 1000, 4), 2.0) @ weights),  # for a temporary
    )
    with mm.init(workers=2, launcher="threads", device="cpu", memory_limit=1 << 20):
        for i, make in enumerate(needed):
            with pytest.raises(MemoryLimitError, match=rf"test_programs\.py:{line + i}\]"):
                make().numpy()
        check(mm.ones(3), np.ones(3, np.float32))


def test_memory_that_is_short_for_a_run_of_many_steps_names_the_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Which needs temporaries that no other program shares."""

    def take(self: Temporaries, nbytes: int, owner: object) -> Block:
        raise MemoryLimitError(f"the temporaries of programs needs {nbytes} bytes")

    monkeypatch.setattr(Temporaries, "take", take)
    with current("planned"):
        x = mm.ones(100_000)
        line = inspect.currentframe().f_lineno + 1  # type: ignore[union-attr]
        step = lambda i, v: mm.sort(mm.cumsum(v)) - v  # noqa: E731
        with pytest.raises(MemoryLimitError, match=rf"test_programs\.py:{line}"):
            mm.fori_loop(0, 5, step, x).numpy()


def test_layouts_that_do_not_fit_are_refused() -> None:
    with current("shared", 2):
        x = mm.zeros((4, 6))
        with pytest.raises(LayoutError, match=r"needs workers \[5\].*mm\.init"):
            mm.asarray(np.zeros((4, 6)), layout=mm.Layout.on(5))
        with pytest.raises(LayoutError, match=r"grid.*needs 4 workers, there are 2"):
            x.redistribute(mm.Layout.grid((2, 2)))
        with pytest.raises(LayoutError, match=r"dimension 2; the array has shape \(4, 6\)"):
            x.redistribute(mm.Layout.split(2))
        bound = mm.Layout.split(0).bind((4, 6), mm.Mesh.line(3))
        with pytest.raises(LayoutError, match=r"another mesh.*workers 0 to 1.*\[2\].*workers=3"):
            x.redistribute(bound)
        with pytest.raises(LayoutError, match=r"layout is for shape \(4, 6\).*shape \(4, 5\)"):
            mm.zeros((4, 5)).redistribute(mm.Layout.split(0).bind((4, 6), mm.Mesh.line(2)))
        for other in ("rows", 0, mm.Layout.split):
            with pytest.raises(LayoutError, match=r"needs a layout such as .*, was given"):
                x.redistribute(other)  # type: ignore[arg-type]
