"""Common functions of magmath's contestants: version, pool of workers, evaluation."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, final

import magmath as mm
from magmath.bench.host_info import package_version
from magmath.bench.peers.repeated import Work

VERSIONS = {"magmath": package_version("magmath") or "unknown"}


@lru_cache(maxsize=1)
def use_workers(count: int, device: str = "cpu", deterministic: bool = False) -> None:
    """Start a pool of `count` workers, or keep the pool of the previous case if it is the same."""
    mm.shutdown()
    mm.init(count, device=device, deterministic=deterministic)


@final
class WarmUpTime(NamedTuple):
    """The seconds of the first run, and of the last one, before which all programs are compiled."""

    first: float
    steady: float

    @property
    def compile_seconds(self) -> float:
        """The seconds in which the first run compiled."""
        return max(0.0, self.first - self.steady)


def warm_up(seconds: float, first: Callable[[], float], again: Callable[[], float]) -> WarmUpTime:
    """Repeat a run for some seconds, in which programs are compiled to native code in the
    background; `first` and `again` return the seconds of a run."""
    first_seconds = first()
    end = time.perf_counter() + seconds
    steady = again()
    while time.perf_counter() < end:
        steady = again()
    return WarmUpTime(first_seconds, steady)


def evaluating_work(function: Callable[[], Any]) -> Work:
    """Return work that evaluates the arrays of a function, and waits for the last one."""

    def work(times: int) -> Any:
        for _ in range(times):
            result = function()
            arrays = result if isinstance(result, tuple) else (result,)
            mm.evaluate(*arrays)
        last = arrays[-1]
        complex(last[(0,) * last.ndim])  # is available after all arrays are computed
        return result

    return work
