"""Matrix products of the other libraries, on two processes or two threads."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from magmath.bench.peers.service import Contestant

Product = Callable[[], Any]
Prepare = Callable[[Any, Any, list[str]], Product]


def operands(case: dict[str, Any]) -> list[Any]:
    """The two operands of a case, the same for every system."""
    m, n, k = case["shape"]
    random = np.random.default_rng(1)
    shapes = (m, k), (k, n)
    return [random.standard_normal(shape).astype(case["dtype"]) for shape in shapes]


def check(product: Any) -> float:
    """A number to compare between systems."""
    return float(product[0, 0])


class GemmContestant(Contestant):
    """Repeats a product that `prepare` makes ready from the operands and their layouts."""

    def __init__(self, versions: dict[str, str], prepare: Prepare) -> None:
        self._versions = versions
        self._prepare = prepare
        self._product: Product
        self._repeats = 0

    def versions(self) -> dict[str, str]:
        return self._versions

    def prepare(self, case: dict[str, Any]) -> dict[str, Any]:
        a, b = operands(case)
        self._product = self._prepare(a, b, case["layouts"])
        self._repeats = case["repeats"]
        start = time.perf_counter()
        self._product()
        return {"first_seconds": time.perf_counter() - start}

    def round(self) -> float:
        start = time.perf_counter()
        for _ in range(self._repeats):
            self._product()
        return time.perf_counter() - start

    def finish(self) -> dict[str, Any]:
        return {"check": check(self._product())}


def torch_mm() -> Contestant:
    """torch with all threads, into a result that is there already."""
    import torch

    torch.set_num_threads(len(os.sched_getaffinity(0)))

    def prepare(a: Any, b: Any, layouts: list[str]) -> Product:
        x, y = torch.from_numpy(a), torch.from_numpy(b)
        out = torch.empty(x.shape[0], y.shape[1], dtype=x.dtype)
        return lambda: torch.mm(x, y, out=out)

    return GemmContestant({"torch": torch.__version__}, prepare)


def numpy_matmul() -> Contestant:
    """NumPy with all threads, into a result that is there already."""

    def prepare(a: Any, b: Any, layouts: list[str]) -> Product:
        out = np.empty((a.shape[0], b.shape[1]), a.dtype)
        return lambda: np.matmul(a, b, out=out)

    return GemmContestant({"numpy": np.__version__}, prepare)


def heat_matmul() -> Contestant:
    """Heat, a process for each part; it has no cyclic layout, and splits rows instead."""
    import heat
    import torch

    torch.set_num_threads(1)
    splits = {"rows": 0, "columns": 1, "whole": None, "cyclic": 0}

    def prepare(a: Any, b: Any, layouts: list[str]) -> Product:
        x, y = (
            heat.array(whole, split=splits[name])
            for whole, name in zip((a, b), layouts, strict=True)
        )
        return lambda: heat.matmul(x, y)

    return GemmContestant({"heat": heat.__version__}, prepare)


def dask_matmul() -> Contestant:
    """Dask's blocked product with its scheduler of threads, each with one thread of BLAS."""
    import dask
    import dask.array
    from threadpoolctl import threadpool_limits

    threads = len(os.sched_getaffinity(0))
    threadpool_limits(1)
    parts = {"rows": (threads, 1), "columns": (1, threads), "whole": (1, 1), "cyclic": (threads, 1)}

    def prepare(a: Any, b: Any, layouts: list[str]) -> Product:
        x, y = (
            dask.array.from_array(
                whole,
                chunks=tuple(-(-n // p) for n, p in zip(whole.shape, parts[name], strict=True)),
            ).persist()
            for whole, name in zip((a, b), layouts, strict=True)
        )
        return lambda: (x @ y).compute(scheduler="threads", num_workers=threads)

    return GemmContestant({"dask": dask.__version__}, prepare)
