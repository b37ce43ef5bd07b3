"""Data can make a kernel fail on a single worker: the error is raised, and the pool continues."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import magmath as mm
import operation_bodies as bodies
from engines import current, engine_of
from executors import only, use_native_code
from magmath.engine.programs import program_table
from magmath.errors import LinAlgError, MemoryLimitError
from magmath.graph import Graph, apply
from magmath.layout import Layout
from magmath.ops import OPERATIONS
from magmath.ops.redistribute import redistribute
from magmath.runtime import Pool, queue_limit
from operation_table import ROWS, Case, cases

LINE = ("script.py", 7)
POOLS = [("shared", 2), ("messages", 2), ("messages", 3), ("shared", 4)]
slow = settings(max_examples=4, suppress_health_check=list(HealthCheck))


def bad_index(first: int) -> Callable[[Case, np.random.Generator], Case]:
    """One position out of range, in one of the operands from the `first` on, the indices."""

    def spoil(case: Case, random: np.random.Generator) -> Case:
        operands = list(case.operands)
        spoilt = int(random.integers(first, len(operands))) if len(operands) > first else first
        assume(spoilt < len(operands) and all(x.numel() > 0 for x in operands[first:]))
        operands[spoilt] = operands[spoilt].clone()
        operands[spoilt].view(-1)[random.integers(operands[spoilt].numel())] = 100
        return Case(tuple(operands), case.attributes)

    return spoil


def bad_matrix(case: Case, random: np.random.Generator) -> Case:
    """A matrix of zeros among the others."""
    matrices = case.operands[0].clone()
    assume(matrices.numel() > 0)
    stack = matrices.view(-1, *matrices.shape[-2:])
    stack[random.integers(len(stack))] = 0
    return Case((matrices, *case.operands[1:]), case.attributes)


SPOILT = {
    "take": (bad_index(1), IndexError, "100 is out of range"),
    "put": (bad_index(2), IndexError, "100 is out of range"),
    "scatter_add": (bad_index(1), IndexError, "100 is out of range"),
    "take_along": (bad_index(1), IndexError, "100 is out of range"),
    "scatter_along": (bad_index(1), IndexError, "100 is out of range"),
    "dynamic_slice": (bad_index(1), IndexError, "is out of range"),
    "dynamic_update_slice": (bad_index(2), IndexError, "is out of range"),
    "cholesky": (bad_matrix, LinAlgError, "not positive definite"),
    "solve": (bad_matrix, LinAlgError, "singular"),
}


@pytest.mark.parametrize("name", sorted(SPOILT))
@pytest.mark.parametrize(("kind", "workers"), POOLS)
@given(data=st.data())
@slow
def test_bad_data_is_an_error_and_the_pool_goes_on(
    kind: str, workers: int, name: str, data: st.DataObject
) -> None:
    spoil, expected, words = SPOILT[name]
    engine = engine_of(kind, workers)
    good = data.draw(cases(ROWS[name], "float32"))
    result = np.shape(bodies.reference(name, good))
    assume(0 not in result and 0 not in good.operands[0].shape)
    assume(
        None not in good.attributes.get("extents", ())
        or name in ("dynamic_slice", "dynamic_update_slice")
    )
    assume(0 not in good.attributes.get("extents", ()))
    bad = spoil(good, np.random.default_rng(data.draw(st.integers(0, 99))))
    at = [data.draw(bodies.placements(x, engine)) for x in bad.operands]
    operands = [bodies.leaf(engine, x, lay) for x, lay in zip(bad.operands, at, strict=True)]
    node = apply(OPERATIONS[name], *operands, line=LINE, **bad.attributes)
    target = data.draw(bodies.placements(torch.empty(result), engine, partial=False))
    (first,) = engine.evaluate([redistribute(node, target)])
    (later,) = engine.evaluate([apply(OPERATIONS["negative"], first)])
    for failed in (later, first, later):  # what is computed from it fails alike, again and again
        with pytest.raises(expected, match=words) as caught:
            bodies.values(engine, failed)
        assert "script.py:7" in str(caught.value)
    assert not engine.pool.closed
    bodies.check_any_layout(engine, name, good, data)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.timeout(300)  # the compiler's time
def test_native_code_reports_bad_positions(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a loop, where a worker that stopped would leave the others alone at a barrier."""
    use_native_code(monkeypatch, only(0))
    engine = engine_of("shared", workers)
    table = bodies.leaf(engine, torch.arange(8, dtype=torch.float32))
    split = Layout.even((6,), engine.pool.mesh, 0)

    def run(positions: list[int], start: int, single: int) -> list[list[float]]:
        index = bodies.leaf(engine, torch.tensor(positions), split)
        first, one = (bodies.leaf(engine, torch.tensor(i)) for i in (start, single))
        window = {"axes": (0,), "extents": (4,), "steps": (-2,)}
        element = {"axes": (0,), "extents": (None,), "steps": (1,)}
        picked = apply(OPERATIONS["take"], table, index, line=("script.py", 7), axes=(0,), at=0)
        total = apply(OPERATIONS["sum"], picked, axis=(0,), keepdims=False)
        cut = apply(OPERATIONS["dynamic_slice"], table, first, line=("script.py", 8), **window)
        alone = apply(OPERATIONS["dynamic_slice"], table, one, line=("script.py", 9), **element)
        graph = Graph((redistribute(total, Layout.replicated_on((), engine.pool.mesh)), cut, alone))
        outputs, _ = engine.runs.run(engine.compile(graph), graph.leaves, steps=3)
        return [engine.pool.get(data.array_id).reshape(-1).tolist() for data in outputs]

    good = [0, 1, -8, 3, 4, -1]
    assert run(good, 7, -1) == [[15.0], [7.0, 5.0, 3.0, 1.0], [7.0]]
    for wrong, words in (
        (([0, 1, -8, 3, -9, 5], 7, -1), r"index -9 is out of range for extent 8.*script.py:7"),
        ((good, 8, -1), r"index 8 is out of range for extent 8.*script.py:8"),
        ((good, 5, -1), r"index -1 is out of range for extent 8.*script.py:8"),
        ((good, 7, 8), r"index 8 is out of range for extent 8.*script.py:9"),
    ):
        with pytest.raises(IndexError) as caught:
            run(*wrong)
        assert re.search(
            words, str(caught.value) + " ".join(getattr(caught.value, "__notes__", []))
        )
        assert run(good, 6, 0) == [[15.0], [6.0, 4.0, 2.0, 0.0], [0.0]]


# failures for which no call has waited ------------------------------------------------------------


def not_definite() -> Any:
    """An array that no worker can compute; a large one, since small ones fail at once."""
    return mm.linalg.cholesky(-mm.eye(160, dtype="float64"))


def test_a_pool_that_ends_tells_what_went_wrong() -> None:
    mm.init(workers=2, launcher="threads", device="cpu")
    mm.evaluate(not_definite())
    with pytest.raises(LinAlgError, match="positive definite"):
        mm.shutdown()
    mm.shutdown()  # it is closed all the same
    with pytest.raises(LinAlgError), mm.init(workers=2, launcher="threads", device="cpu"):
        mm.evaluate(not_definite())


def test_the_next_pool_starts_before_a_failure_of_the_former_one_is_raised() -> None:
    """Later lines compute in the pool that was asked for."""
    mm.init(workers=2, launcher="threads", device="cpu")
    mm.evaluate(not_definite())
    with pytest.raises(LinAlgError, match="positive definite"):
        mm.init(workers=3, launcher="threads", device="cpu")
    assert mm.pool().workers == 3
    assert mm.arange(4).tolist() == [0, 1, 2, 3]
    mm.shutdown()


def test_a_block_that_fails_raises_its_own_error() -> None:
    def block() -> None:
        with mm.init(workers=2, launcher="threads", device="cpu"):
            mm.evaluate(not_definite())
            raise KeyError

    with pytest.raises(KeyError):
        block()


def test_a_failure_that_was_told_is_not_told_again() -> None:
    mm.init(workers=2, launcher="threads", device="cpu")
    with pytest.raises(LinAlgError):
        np.asarray(not_definite())
    mm.shutdown()


@pytest.mark.parametrize(("end", "told"), [("", "LinAlgError"), ("1 / 0", "ZeroDivisionError")])
def test_a_script_that_ends_tells_what_went_wrong(end: str, told: str) -> None:
    script = f"""
import magmath as mm
mm.init(workers=2, launcher="threads", device="cpu")
mm.evaluate(mm.linalg.cholesky(-mm.eye(160, dtype="float64")))
{end}
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert told in done.stderr


@pytest.mark.parametrize(("kind", "workers"), POOLS)
def test_a_failure_that_is_known_when_the_next_command_is_sent_is_raised_once(
    kind: str, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read of the failed array raises it; commands that read others do not."""
    monkeypatch.setattr(queue_limit, "MIN_COMMANDS", 1)
    monkeypatch.setattr(queue_limit, "MAX_COMMANDS", 1)
    with current(kind, workers) as pool:
        monkeypatch.setattr(pool._queue._limit, "commands", 1)
        good = mm.asarray(np.ones((300, 300)))
        for _ in range(3):
            failed = mm.linalg.cholesky(mm.asarray(-np.eye(300)))
            mm.evaluate(failed)
            mm.evaluate(good * 1.5, good + 2.0)
            for _ in range(3):
                with pytest.raises(LinAlgError):
                    (-failed).numpy()
            assert float(mm.sum(good)) == 90_000


# arrays that do not fit into memory ---------------------------------------------------------------


@pytest.fixture(params=["threads", "mpiexec"])
def limited(request: pytest.FixtureRequest) -> Iterator[Pool]:
    """A pool with 10 MB for each worker."""
    options = {"launcher": request.param, "device": "cpu", "memory_limit": 10_000_000}
    session = mm.init(workers=2, **options)
    yield session.pool
    mm.shutdown()  # raises what was not raised


@pytest.fixture
def unchecked(limited: Pool, monkeypatch: pytest.MonkeyPatch) -> Pool:
    """The same, where only the workers know the limit, as for temporary memory."""
    limited.memory_bound = None
    return limited


LINE_HERE = r"needs 12 MB.*test_failures\.py:\d+"


def too_large() -> mm.Array:
    return mm.asarray(np.ones(3_000_000), dtype="float64")


def works() -> bool:
    """Whether statements work that use other arrays."""
    return float(mm.ones(10)[0] + 0) == 1 and float(mm.sum(mm.arange(10_000.0) * 0 + 1)) == 10_000


@pytest.mark.parametrize("held", [0, 800_000])
def test_an_array_that_does_not_fit_is_refused_at_its_line(limited: Pool, held: int) -> None:
    kept = mm.ones(held, dtype="float64")
    mm.evaluate(kept)
    for _ in range(2):
        with pytest.raises(MemoryLimitError, match=LINE_HERE):
            too_large()
        assert works()
        mm.evaluate(mm.asarray(np.ones(500_000), dtype="float64"))  # fits
    assert float(mm.sum(kept)) == held


def test_a_failed_transfer_is_raised_by_uses_of_the_array_only(unchecked: Pool) -> None:
    for waits in (False, True):
        large = too_large()
        sums = large[:3_000] + 1
        mm.evaluate(large[:2_000] * 2)
        if waits:
            unchecked.stats()
        for x in (large, sums, mm.copy(large), large[5:6] * 2):
            assert works()
            for _ in range(2):
                with pytest.raises(MemoryLimitError, match=LINE_HERE):
                    x.numpy()
    unchecked.finish()


def test_the_end_reports_a_failed_transfer_of_an_array_in_use(unchecked: Pool) -> None:
    large = too_large()
    unchecked.stats()
    with pytest.raises(MemoryLimitError, match=LINE_HERE):
        unchecked.finish()
    unchecked.finish()
    del large


def test_the_end_does_not_report_a_failed_transfer_of_a_released_array(unchecked: Pool) -> None:
    too_large()
    unchecked.finish()
    assert works()


@pytest.mark.parametrize("command", ["read", "define", "run"])
def test_each_failed_command_is_reported_once(
    limited: Pool, command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(program_table, "check_memory", lambda *_: None)  # the workers refuse
    np.save(tmp_path / "x.npy", np.ones(3_000_000))
    line = mm.ones(1_000_000, dtype="float64")
    failing = {
        "read": lambda: mm.load(str(tmp_path / "x.npy")),
        "define": lambda: float(mm.sum(mm.sort(mm.cumsum(line) * line))),
        "run": lambda: np.asarray(mm.ones(3_000_000, dtype="float64") * 2),
    }[command]
    for _ in range(2):
        with pytest.raises(MemoryLimitError):
            failing()
        assert works()
        assert works()
