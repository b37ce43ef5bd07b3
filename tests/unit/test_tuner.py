"""The tuner: its choices, its stored decisions, and damaged decisions."""

from __future__ import annotations

import json
import multiprocessing
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from magmath.kernels.dispatch import tuner as module
from magmath.kernels.dispatch.tuner import DECISIONS, Tuner, tuner_for
from magmath.kernels.free_processors import Waits


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAGMATH_CACHE", str(tmp_path))


class Candidates(dict[str, Callable[[], Callable[[], None]]]):
    """Candidates that sleep a given time and count how often they are bound."""

    def __init__(self, **seconds: float) -> None:
        super().__init__({name: partial(self._bind, s) for name, s in seconds.items()})
        self.bound = 0

    def _bind(self, seconds: float) -> Callable[[], None]:
        self.bound += 1
        return lambda: time.sleep(seconds)


def test_a_clearly_faster_candidate_wins() -> None:
    assert Tuner().choose("op", Candidates(default=0.02, fast=0.001)) == "fast"


def test_the_default_is_kept_unless_it_is_clearly_beaten(monkeypatch: pytest.MonkeyPatch) -> None:
    for other, chosen in ((0.96, "default"), (0.94, "other")):
        rounds = {"default": [1.0, 1.1], "other": [other, 3.0]}
        monkeypatch.setattr(module, "_rounds", lambda calls, wait, budget, rounds=rounds: rounds)
        assert Tuner().choose("op", Candidates(default=0, other=0)) == chosen


def test_a_single_candidate_is_not_measured() -> None:
    only = Candidates(only=0)
    assert Tuner().choose("op", only) == "only"
    assert only.bound == 0


def test_a_tuner_that_is_off_takes_the_first_without_measuring(tmp_path: Path) -> None:
    candidates = Candidates(slow=0.01, fast=0)
    assert Tuner(DECISIONS, enabled=False).choose("op", candidates) == "slow"
    assert candidates.bound == 0
    assert not list(tmp_path.iterdir())


def test_a_device_is_waited_for() -> None:
    waits: list[None] = []
    Tuner().choose("op", Candidates(a=0, b=0), lambda: waits.append(None))
    assert waits


def test_decisions_are_remembered_by_key_in_memory_and_on_disk() -> None:
    first, candidates = Tuner(DECISIONS), Candidates(slow=0.01, fast=0)
    assert first.choose("a", candidates) == "fast"
    assert first.choose("a", candidates) == "fast"
    assert candidates.bound == 2
    first.choose("b", candidates)
    assert candidates.bound == 4

    _store("c", "slow", {"slow": 1.0, "fast": 2.0})
    again = Candidates(slow=0.01, fast=0)
    assert Tuner(DECISIONS).choose("c", again) == "slow"
    assert again.bound == 0


def test_other_candidates_under_a_known_key_are_measured() -> None:
    _store("op", "gone", {"a": 1.0, "gone": 0.5})
    candidates = Candidates(a=0.01, b=0)
    assert Tuner(DECISIONS).choose("op", candidates) == "b"
    assert candidates.bound == 2


def test_a_disturbed_measurement_is_not_kept_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for taken, kept in (([1.0, 1.0, 5.0], True), ([1.0, 3.0, 5.0], False)):
        monkeypatch.setattr(
            module, "_rounds", lambda calls, wait, budget, t=taken: {"a": t, "b": [9.0]}
        )
        assert Tuner(DECISIONS).choose(f"{kept}", Candidates(a=0, b=0)) == "a"
        assert any(str(kept) in timing.key for timing in Tuner(DECISIONS).table()) == kept


def test_the_table_names_every_candidate_and_its_time() -> None:
    tuner = Tuner()
    tuner.choose("op", Candidates(slow=0.01, fast=0))
    (timing,) = tuner.table()
    assert timing.key.startswith("op | ")
    assert timing.chosen == "fast"
    assert list(timing.seconds) == ["slow", "fast"]
    assert timing.seconds["slow"] >= 0.01


@pytest.mark.parametrize(
    "damage",
    [
        b"\x00\xff\xfe not json",
        b"{}",
        b"[1, 2]",
        b"null",
        b'{"key": 1, "chosen": "a", "seconds": {"a": 1}}',
        b'{"key": "k", "chosen": "b", "seconds": {"a": 1}}',
        b'{"key": "k", "chosen": "a", "seconds": {"a": "soon"}}',
        b'{"key": "k", "chosen": "a", "seconds": ["a"]}',
        b"[" * 100_000,
    ],
)
def test_an_entry_that_is_no_decision_is_measured_anew(damage: bytes) -> None:
    _store("sound", "b", {"a": 2.0, "b": 1.0})
    _store("op", "b", {"a": 2.0, "b": 1.0})
    DECISIONS.write(module._name(_key("op")), damage)
    candidates = Candidates(a=0, b=0)
    assert [t.chosen for t in Tuner(DECISIONS).table()] == ["b"]
    Tuner(DECISIONS).choose("op", candidates)
    assert candidates.bound == 2


def _keep_many(worker: int) -> None:
    for i in range(50):
        _measure_calmly(Tuner(DECISIONS), f"{worker}/{i}")


def test_several_processes_share_the_decisions() -> None:
    context = multiprocessing.get_context("fork")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking while torch's threads run
        workers = [context.Process(target=_keep_many, args=(w,)) for w in range(4)]
        for worker in workers:
            worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    assert len(Tuner(DECISIONS).table()) == 200


def test_the_process_has_one_tuner_and_a_deterministic_one() -> None:
    tuner_for.cache_clear()
    try:
        tuner = tuner_for(False)
        assert tuner is tuner_for(False)
        assert not tuner_for(True).enabled
        _measure_calmly(tuner, "op")
        assert [json.loads(content)["chosen"] for content in DECISIONS.contents()] == ["b"]
    finally:
        tuner_for.cache_clear()


def _measure_calmly(tuner: Tuner, key: str) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_rounds", lambda calls, wait, budget: {"a": [2.0], "b": [1.0]})
        return tuner.choose(key, Candidates(a=0, b=0))


def _store(key: str, chosen: str, seconds: dict[str, float]) -> None:
    """Keep a decision as another process on this machine would have."""
    timing = module.TunerDecision(_key(key), chosen, seconds)
    DECISIONS.write(module._name(timing.key), module._encoded(timing))


def _key(key: str) -> str:
    """The key with what the decision depends on."""
    probe = Tuner()
    probe.choose(key, Candidates(a=0, b=0))
    (timing,) = probe.table()
    return timing.key


@pytest.mark.parametrize("busy", [False, True])
def test_decisions_of_a_busy_machine_are_not_stored(
    monkeypatch: pytest.MonkeyPatch, busy: bool
) -> None:
    monkeypatch.setattr(Waits, "has_contention", lambda self, threads: busy)
    rounds = {"slow": [1.0, 1.0], "fast": [0.5, 0.5]}
    monkeypatch.setattr(module, "_rounds", lambda calls, wait, budget: rounds)
    candidates = Candidates(slow=0, fast=0)
    assert Tuner(DECISIONS).choose("op", candidates) == "fast"
    assert Tuner(DECISIONS).choose("op", candidates) == "fast"
    assert candidates.bound == (4 if busy else 2)
