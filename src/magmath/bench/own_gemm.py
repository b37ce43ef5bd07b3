"""magmath's side of the matrix products, with the public names: a line of Python for each."""

from __future__ import annotations

import time
from typing import Any

import magmath as mm
from magmath.bench.machine import version_of
from magmath.bench.peers.gemm import check, operands
from magmath.bench.peers.service import Contestant

BLOCK = 256  # indices dealt at a time in a cyclic layout
LAYOUTS = {
    "rows": mm.Layout.split(0),
    "columns": mm.Layout.split(1),
    "whole": mm.Layout.replicated(),
    "cyclic": mm.Layout.cyclic(0, BLOCK),
}


def gemm() -> Contestant:
    """`a @ b` on the case's workers."""
    return OwnGemm()


class OwnGemm(Contestant):
    """Operands lie on the workers in the case's layouts; results in whatever layout comes out."""

    def __init__(self) -> None:
        self._workers = 0
        self._operands: list[Any] = []
        self._repeats = 0

    def versions(self) -> dict[str, str]:
        return {"magmath": version_of("magmath") or "unknown"}

    def prepare(self, case: dict[str, Any]) -> dict[str, Any]:
        if case["workers"] != self._workers:
            mm.shutdown()
            mm.init(case["workers"], device="cpu")
            self._workers = case["workers"]
        self._operands = [
            mm.asarray(x, layout=LAYOUTS[name])
            for x, name in zip(operands(case), case["layouts"], strict=True)
        ]
        self._repeats = case["repeats"]
        start = time.perf_counter()
        self._product()
        return {"first_seconds": time.perf_counter() - start}

    def round(self) -> float:
        start = time.perf_counter()
        self._product()
        return time.perf_counter() - start

    def finish(self) -> dict[str, Any]:
        return {"check": check(self._product())}

    def _product(self) -> Any:
        a, b = self._operands
        for _ in range(self._repeats):
            c = a @ b
            mm.evaluate(c)
        float(c[0, 0])  # waits for all of them
        return c
