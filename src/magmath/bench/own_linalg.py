"""magmath's side of the linear algebra, with the public names."""

from __future__ import annotations

import time
from typing import Any

import magmath as mm
from magmath.bench.machine import version_of
from magmath.bench.peers.linalg import check, operands, table
from magmath.bench.peers.service import Contestant


def linalg() -> Contestant:
    """`mm.linalg` on the case's workers."""
    return OwnLinalg()


class OwnLinalg(Contestant):
    """The matrix lies on the workers by rows; results in whatever layout comes out."""

    def __init__(self) -> None:
        self._workers = 0
        self._case: dict[str, Any] = {}
        self._operands: list[Any] = []

    def versions(self) -> dict[str, str]:
        return {"magmath": version_of("magmath") or "unknown"}

    def prepare(self, case: dict[str, Any]) -> dict[str, Any]:
        if case["workers"] != self._workers:
            mm.shutdown()
            mm.init(case["workers"], device="cpu")
            self._workers = case["workers"]
        self._case = case
        self._operands = [mm.asarray(x, layout=mm.Layout.split(0)) for x in operands(case)]
        start = time.perf_counter()
        self._results(1)
        return {"first_seconds": time.perf_counter() - start}

    def round(self) -> float:
        start = time.perf_counter()
        self._results(self._case["repeats"])
        return time.perf_counter() - start

    def finish(self) -> dict[str, Any]:
        return {"check": check(self._case["function"], self._results(1))}

    def _results(self, repeats: int) -> Any:
        function = table(mm.linalg)[self._case["function"]]
        for _ in range(repeats):
            results = function(*self._operands)
            mm.evaluate(*(results if isinstance(results, tuple) else (results,)))
        last = results[-1] if isinstance(results, tuple) else results
        float(last[(0,) * last.ndim])  # waits for all of them
        return results
