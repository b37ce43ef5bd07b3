"""magmath's side of the Fourier transforms, with the public names."""

from __future__ import annotations

import time
from typing import Any

import magmath as mm
from magmath.bench.machine import version_of
from magmath.bench.peers.fft import axes_of, signal
from magmath.bench.peers.service import Contestant


def transform() -> Contestant:
    """`mm.fft` on the case's workers."""
    return OwnFft()


class OwnFft(Contestant):
    """The array lies on the workers by rows; results in whatever layout comes out."""

    def __init__(self) -> None:
        self._workers = 0
        self._case: dict[str, Any] = {}
        self._signal: Any = None

    def versions(self) -> dict[str, str]:
        return {"magmath": version_of("magmath") or "unknown"}

    def prepare(self, case: dict[str, Any]) -> dict[str, Any]:
        if case["workers"] != self._workers:
            mm.shutdown()
            mm.init(case["workers"], device="cpu")
            self._workers = case["workers"]
        self._case = case
        self._signal = mm.asarray(signal(case), layout=mm.Layout.split(0))
        start = time.perf_counter()
        self._transformed(1)
        return {"first_seconds": time.perf_counter() - start}

    def round(self) -> float:
        start = time.perf_counter()
        self._transformed(self._case["repeats"])
        return time.perf_counter() - start

    def finish(self) -> dict[str, Any]:
        result = self._transformed(1)
        return {"check": abs(complex(result[(1,) * result.ndim]))}

    def _transformed(self, repeats: int) -> Any:
        function = mm.fft.fftn if self._case["dtype"].startswith("complex") else mm.fft.rfftn
        for _ in range(repeats):
            result = function(self._signal, axes=axes_of(self._case))
            mm.evaluate(result)
        complex(result[(0,) * result.ndim])  # waits for all of them
        return result
