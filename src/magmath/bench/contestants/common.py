"""Common functions of magmath's contestants: version, pool of workers, evaluation."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import magmath as mm
from magmath.bench.host_info import package_version
from magmath.bench.peers.repeated import Work

VERSIONS = {"magmath": package_version("magmath") or "unknown"}


@lru_cache(maxsize=1)
def use_workers(count: int, device: str = "cpu", deterministic: bool = False) -> None:
    """Start a pool of `count` workers, or keep the pool of the previous case if it is the same."""
    mm.shutdown()
    mm.init(count, device=device, deterministic=deterministic)


def evaluating_work(function: Callable[[], Any]) -> Work:
    """Return work that evaluates the arrays of a function, and waits for the last one."""

    def work(times: int) -> Any:
        for _ in range(times):
            result = function()
            arrays = result if isinstance(result, tuple) else (result,)
            mm.evaluate(*arrays)
        complex(
            arrays[-1][(0,) * arrays[-1].ndim]
        )  # an element is available after all arrays are computed
        return result

    return work
