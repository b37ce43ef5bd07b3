"""Redistributions of the other libraries, and a plain copy."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, final

import numpy as np

from magmath.bench.peers.service import Contestant, core_count

Change = tuple[Callable[[], Any], Callable[[Any], Any], Callable[[Any], float]]
"""Creates an array that is split by rows; redistributes it to the case's layout; returns a number
of it."""


@final
class RedistributionContestant(Contestant):
    """Repeats the change of layout that `prepare` returns for values and a case."""

    def __init__(
        self, versions: dict[str, str], prepare: Callable[[Any, dict[str, Any]], Change]
    ) -> None:
        self._versions = versions
        self._prepare = prepare
        self._change: Change
        self._repeats = 0

    def versions(self) -> dict[str, str]:
        return self._versions

    def prepare(self, case: dict[str, Any]) -> dict[str, Any]:
        side = case["side"]
        values = np.arange(side * side, dtype=np.float32).reshape(side, side)
        self._change = self._prepare(values, case)
        self._repeats = case["repeats"]
        return {"first_seconds": self._once()}

    def round(self) -> float:
        return sum(self._once() for _ in range(self._repeats))

    def _once(self) -> float:
        fresh, change, _ = self._change
        array = fresh()
        start = time.perf_counter()
        change(array)
        return time.perf_counter() - start

    def finish(self) -> dict[str, Any]:
        fresh, change, check = self._change
        return {"check": check(change(fresh()))}


def copy() -> Contestant:
    """Return the contestant of a plain copy with all threads, into allocated memory."""
    import torch

    torch.set_num_threads(core_count())

    def prepare(values: Any, case: dict[str, Any]) -> Change:
        source = torch.from_numpy(values)
        target = torch.zeros_like(source)
        return lambda: source, target.copy_, lambda result: float(result[0, 1])

    return RedistributionContestant({"torch": torch.__version__}, prepare)


def heat() -> Contestant:
    """Return Heat's `resplit`, one process per part. Cyclic rows are the middle axis of blocks."""
    import heat
    import torch

    torch.set_num_threads(1)
    world = heat.get_comm()

    def prepare(values: Any, case: dict[str, Any]) -> Change:
        is_cyclic = case["layout"] == "cyclic"
        axis = {"columns": 1, "whole": None, "cyclic": 1}[case["layout"]]
        if is_cyclic:
            values = values.reshape(-1, world.size, values.shape[1])
        rows = heat.array(values, split=0)

        def fresh() -> Any:
            world.Barrier()
            return rows

        def change(array: Any) -> Any:
            result = heat.resplit(array, axis)
            world.Barrier()
            return result

        second = (0, 0, 1) if is_cyclic else (0, 1)
        return fresh, change, lambda result: float(result[second])

    return RedistributionContestant({"heat": heat.__version__}, prepare)


def dask() -> Contestant:
    """Return Dask's `rechunk`, one thread per part. Cyclic rows are the middle axis of blocks."""
    import dask
    import dask.array

    threads = core_count()

    def prepare(values: Any, case: dict[str, Any]) -> Change:
        n, m = values.shape
        if case["layout"] == "cyclic":
            values = values.reshape(-1, threads, m)
        chunks = {"columns": (n, m // threads), "whole": (n, m), "cyclic": (n // threads, 1, m)}
        split = (len(values) // threads, *values.shape[1:])
        rows = dask.array.from_array(values, chunks=split).persist()

        def change(array: Any) -> Any:
            changed = array.rechunk(chunks[case["layout"]])
            return changed.persist(scheduler="threads", num_workers=threads)

        second = (0,) * (values.ndim - 1) + (1,)
        return lambda: rows, change, lambda result: float(result[second].compute())

    return RedistributionContestant({"dask": dask.__version__}, prepare)
