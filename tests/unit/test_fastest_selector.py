"""The selection of the executor of a program's steps, with fake executors."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import magmath as mm
from engines import current
from magmath.executor import step_loop
from magmath.executor.fastest_selector import RECHECK, TRIALS, writing_factor
from magmath.executor.step_executors import Executor, ExecutorSelector


class Fake(Executor):
    """A fake executor of a given speed; the test sets when it is ready."""

    def __init__(self, name: str, pace: float, ready: bool = True) -> None:
        self.name = name
        self.pace = pace
        self.was_built = ready
        self.closed = False

    def is_ready(self) -> bool:
        return self.was_built

    def start(self) -> None: ...

    def run(self, steps: int) -> list[float]:
        return [self.pace] * steps

    def close(self) -> None:
        self.closed = True


def selector_of(
    executors: list[Executor], former: ExecutorSelector | None = None
) -> ExecutorSelector:
    alone: Any = SimpleNamespace(rank=0, allreduce_max=lambda value: value)
    return ExecutorSelector(alone, executors[0], lambda: executors[1:], 0.0, former)


def run(selector: ExecutorSelector, executors: list[Executor], chunks: int) -> list[str]:
    """The names of the executors that executed some chunks."""
    pace: Callable[[str], float] = {
        executor.name: executor.pace for executor in executors
    }.__getitem__  # type: ignore[attr-defined]
    used = []
    selector.start()
    for _ in range(chunks):
        name = selector.current.name
        selector.run(1)
        selector.add_measurement(pace(name), 1)
        used.append(name)
    return used


def test_every_ready_executor_is_tried_and_the_fastest_goes_on() -> None:
    executors: list[Executor] = [Fake("replay", 3.0), Fake("native", 1.0), Fake("team", 2.0)]
    used = run(selector_of(executors), executors, 6 * TRIALS)
    assert set(used) == {"replay", "native", "team"}
    assert used[-TRIALS:] == ["native"] * TRIALS


def test_an_executor_that_becomes_slow_is_left() -> None:
    native = Fake("native", 1.0)
    executors: list[Executor] = [Fake("replay", 3.0), native, Fake("team", 2.0)]
    selector = selector_of(executors)
    run(selector, executors, 6 * TRIALS)
    native.pace = 9.0
    assert run(selector, executors, 2 * TRIALS)[-1] == "team"


def test_what_is_known_of_a_program_holds_for_its_next_arrays() -> None:
    executors: list[Executor] = [Fake("replay", 3.0), Fake("native", 1.0), Fake("team", 2.0)]
    former = selector_of(executors)
    run(former, executors, 6 * TRIALS)
    assert set(run(selector_of(executors, former), executors, 6)[1:]) == {"native"}


def test_a_known_executor_is_not_taken_before_it_is_ready() -> None:
    executors: list[Executor] = [Fake("replay", 3.0), Fake("native", 1.0), Fake("team", 2.0)]
    former = selector_of(executors)
    run(former, executors, 6 * TRIALS)
    native = Fake("native", 1.0, ready=False)
    later: list[Executor] = [Fake("replay", 3.0), native, Fake("team", 2.0)]
    selector = selector_of(later, former)
    assert "native" not in run(selector, later, 4)
    native.was_built = True
    assert run(selector, later, 4)[-1] == "native"


def test_a_candidate_timed_on_a_busy_machine_is_timed_again() -> None:
    team = Fake("team", 2.0)
    executors: list[Executor] = [Fake("replay", 3.0), Fake("native", 1.5), team]
    selector = selector_of(executors)
    assert run(selector, executors, 4 * TRIALS)[-1] == "native"
    team.pace = 1.0
    assert run(selector, executors, 2 * RECHECK)[-1] == "team"


def test_the_fastest_returns_soon_after_other_processes_have_slowed_it() -> None:
    native = Fake("native", 1.0)
    executors: list[Executor] = [Fake("replay", 1.5), native]
    selector = selector_of(executors)
    assert run(selector, executors, 20 * RECHECK)[-1] == "native"  # the intervals have become long
    native.pace = 9.0
    assert run(selector, executors, 2 * TRIALS)[-1] == "replay"
    native.pace = 1.0
    assert run(selector, executors, RECHECK + 2 * TRIALS)[-1] == "native"


def test_times_measured_while_a_compiler_runs_are_measured_again() -> None:
    native, team = Fake("native", 2.0), Fake("team", 1.0, ready=False)
    executors: list[Executor] = [Fake("replay", 1.8), native, team]
    selector = selector_of(executors)
    run(selector, executors, 4 * TRIALS)
    native.pace, team.was_built = 0.5, True
    assert run(selector, executors, 4 * TRIALS)[-1] == "native"


def test_runs_on_ever_new_arrays_are_worth_one_compilation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each run of `x = loop(x)` is bound to other memory, and has a selector of its own: the
    seconds of all of them count."""
    requests: list[object] = []
    native = step_loop.native_executors

    def counted(*given: Any) -> Any:
        requests.append(given)
        return native(*given)

    monkeypatch.setattr(step_loop, "native_executors", counted)
    monkeypatch.setattr(step_loop, "COMPILE_AFTER_SECONDS", 0.2)
    with current("inline"):
        x = mm.asarray(np.arange(1024.0))
        kept = []
        for _ in range(300):
            x = mm.fori_loop(0, 5_000, lambda i, z: z * 0.5 + 1.0, x)
            x.numpy()
            kept.append(x)  # so that no memory is used again
            if requests:
                break
    assert requests


def test_long_programs_are_compiled_in_proportion_to_their_length(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run waits while the source of native code is written."""
    assert [writing_factor(n) for n in (1, 1000, 12_000)] == [1.0, 1.0, 12.0]
    monkeypatch.setattr(step_loop, "COMPILE_AFTER_SECONDS", 1e-4)
    factors: list[int] = []
    monkeypatch.setattr(step_loop, "writing_factor", lambda n: factors.append(n) or np.inf)
    monkeypatch.setattr(step_loop, "native_executors", lambda *_: pytest.fail("compiled"))
    with current("inline"):
        x = mm.fori_loop(0, 5_000, lambda i, z: z * 0.5 + 1.0, mm.asarray(np.arange(1027.0)))
        assert x.numpy()[0] == pytest.approx(2.0)
    assert factors


def test_runs_on_new_arrays_replay_one_step_before_known_code_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first chunk of a run must not be as long as those of the native code before."""
    replayed: list[int] = []
    replay = step_loop.ExecutorSelector.run

    def noted(selector: ExecutorSelector, steps: int) -> list[float]:
        if selector.current.name == "replay":
            replayed.append(steps)
        return replay(selector, steps)

    monkeypatch.setattr(step_loop.ExecutorSelector, "run", noted)
    monkeypatch.setattr(step_loop, "COMPILE_AFTER_SECONDS", 0.0)
    with current("inline"):
        x = mm.asarray(np.arange(1024.0))
        kept = []
        deadline = time.monotonic() + 120.0
        while time.monotonic() < deadline:
            x = mm.fori_loop(0, 5_000, lambda i, z: z * 0.5 + 1.0, x)
            x.numpy()
            kept.append(x)
            if sum(replayed[-3:]) == 3:
                break
            time.sleep(0.02)  # the compiler needs a processor
        replayed.clear()
        for _ in range(5):
            x = mm.fori_loop(0, 5_000, lambda i, z: z * 0.5 + 1.0, x)
            x.numpy()
            kept.append(x)
    assert max(replayed, default=1) <= 4
