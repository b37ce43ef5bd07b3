"""Matrix products of the other libraries."""

from __future__ import annotations

from typing import Any

import numpy as np

from magmath.bench.peers.repeated import RepeatedContestant, Work, repeat_call
from magmath.bench.peers.service import Contestant, core_count


def operands(case: dict[str, Any]) -> list[Any]:
    """Return the two operands of a case, the same for every system."""
    m, n, k = case["shape"]
    random = np.random.default_rng(1)
    shapes = (m, k), (k, n)
    return [random.standard_normal(shape).astype(case["dtype"]) for shape in shapes]


def check(case: dict[str, Any], product: Any) -> float:
    """Return a number that is compared between systems."""
    return float(product[0, 0])


def torch_mm() -> Contestant:
    """Return torch's contestant, with all threads and a preallocated result."""
    import torch

    torch.set_num_threads(core_count())

    def prepare(case: dict[str, Any]) -> Work:
        x, y = map(torch.from_numpy, operands(case))
        out = torch.empty(x.shape[0], y.shape[1], dtype=x.dtype)
        return repeat_call(lambda: torch.mm(x, y, out=out))

    return RepeatedContestant({"torch": torch.__version__}, prepare, check)


def numpy_matmul() -> Contestant:
    """Return NumPy's contestant, with all threads and a preallocated result."""

    def prepare(case: dict[str, Any]) -> Work:
        a, b = operands(case)
        out = np.empty((a.shape[0], b.shape[1]), a.dtype)
        return repeat_call(lambda: np.matmul(a, b, out=out))

    return RepeatedContestant({"numpy": np.__version__}, prepare, check)


def heat_matmul() -> Contestant:
    """Return Heat's contestant, one process per part; it splits rows instead of a cyclic layout."""
    import heat
    import torch

    torch.set_num_threads(1)
    splits = {"rows": 0, "columns": 1, "whole": None, "cyclic": 0}

    def prepare(case: dict[str, Any]) -> Work:
        x, y = (
            heat.array(whole, split=splits[name])
            for whole, name in zip(operands(case), case["layouts"], strict=True)
        )
        return repeat_call(lambda: heat.matmul(x, y))

    return RepeatedContestant({"heat": heat.__version__}, prepare, check)


def dask_matmul() -> Contestant:
    """Dask's blocked product with its scheduler of threads, each with one thread of BLAS."""
    import dask
    import dask.array
    from threadpoolctl import threadpool_limits

    threads = core_count()
    threadpool_limits(1)
    parts = {"rows": (threads, 1), "columns": (1, threads), "whole": (1, 1), "cyclic": (threads, 1)}

    def prepare(case: dict[str, Any]) -> Work:
        x, y = (
            dask.array.from_array(
                whole,
                chunks=tuple(-(-n // p) for n, p in zip(whole.shape, parts[name], strict=True)),
            ).persist()
            for whole, name in zip(operands(case), case["layouts"], strict=True)
        )
        return repeat_call(lambda: (x @ y).compute(scheduler="threads", num_workers=threads))

    return RepeatedContestant({"dask": dask.__version__}, prepare, check)
