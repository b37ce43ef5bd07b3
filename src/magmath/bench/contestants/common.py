"""What magmath's sides of the benchmarks have in common: its version, its workers, waiting."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import magmath as mm
from magmath.bench.host_info import package_version
from magmath.bench.peers.repeated import Work

VERSIONS = {"magmath": package_version("magmath") or "unknown"}


@lru_cache(maxsize=1)
def use_workers(count: int) -> None:
    """Have so many workers: those of the case before, if it had as many, or else a new pool."""
    mm.shutdown()
    mm.init(count, device="cpu")


def evaluating_work(function: Callable[[], Any]) -> Work:
    """Work that makes an array, or a tuple of arrays; each is computed, and the last waited for."""

    def work(times: int) -> Any:
        for _ in range(times):
            result = function()
            arrays = result if isinstance(result, tuple) else (result,)
            mm.evaluate(*arrays)
        complex(arrays[-1][(0,) * arrays[-1].ndim])  # a number is there when all of them are
        return result

    return work
