"""The contestant of most benchmarks: repeated work."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from magmath.bench.peers.service import Contestant

Work = Callable[[int], Any]
"""Repeats the work of a case a number of times; returns the last result."""


class RepeatedContestant(Contestant):
    """Repeats the work that `prepare` returns for a case, `repeats` times per round.

    `check` returns a number of a case and a result that is compared between systems. For slow
    systems, a case has `calls`: so many repetitions are measured and extrapolated. `prepare`
    repeats the work for `warm_up_seconds`, in which a system may compile in the background; the
    record contains the seconds of the first time.
    """

    def __init__(
        self,
        versions: dict[str, str],
        prepare: Callable[[dict[str, Any]], Work],
        check: Callable[[dict[str, Any], Any], float],
        warm_up_seconds: float = 0.0,
    ) -> None:
        self._versions = versions
        self._prepare = prepare
        self._check = check
        self._warm_up_seconds = warm_up_seconds
        self._case: dict[str, Any]
        self._work: Work

    def versions(self) -> dict[str, str]:
        return self._versions

    def prepare(self, case: dict[str, Any]) -> dict[str, Any]:
        self._case, self._work = case, self._prepare(case)
        start = time.perf_counter()
        self._work(1)
        first = time.perf_counter() - start
        while time.perf_counter() - start < self._warm_up_seconds:
            self._work(1)
        return {"first_seconds": first}

    def round(self) -> float:
        repeats: int = self._case["repeats"]
        calls: int = self._case.get("calls", repeats)
        start = time.perf_counter()
        self._work(calls)
        return (time.perf_counter() - start) * repeats / calls

    def finish(self) -> dict[str, Any]:
        return {"check": self._check(self._case, self._work(1))}


def repeat_call(function: Callable[[], Any]) -> Work:
    """Return work that calls a function."""

    def work(times: int) -> Any:
        for _ in range(times):
            result = function()
        return result

    return work
