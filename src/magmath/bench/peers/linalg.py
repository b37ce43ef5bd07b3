"""Linear algebra of the other libraries, with all threads of the machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from magmath.bench.peers.service import Contestant

Compute = Callable[[], Any]
Functions = dict[str, Callable[[Any, Any], Any]]


def operands(case: dict[str, Any]) -> tuple[Any, Any]:
    """A matrix fit for the case's function, and a tenth as many right-hand sides as it has columns;
    the same for every system."""
    m, n = case["shape"]
    random = np.random.default_rng(1)
    a = random.standard_normal((m, n))
    if case["function"] == "cholesky":
        a = a @ a.T + n * np.eye(n)
    if case["function"] == "eigh":
        a = a + a.T
    return a.astype(case["dtype"]), random.standard_normal((m, n // 10)).astype(case["dtype"])


def check(function: str, results: Any) -> float:
    """A number to compare between systems: of what does not depend on the choice of signs."""
    parts = results if isinstance(results, (tuple, list)) else (results,)
    chosen = {"qr": -1, "svd": 1, "eigh": 0, "det": -1}.get(function, 0)
    return float(abs(np.asarray(parts[chosen]).reshape(-1)[0]))


class LinalgContestant(Contestant):
    """Repeats one function of a table on the case's operands."""

    def __init__(
        self, versions: dict[str, str], functions: Functions, convert: Callable[[Any], Any]
    ) -> None:
        self._versions = versions
        self._functions = functions
        self._convert = convert
        self._name = ""
        self._compute: Compute
        self._repeats = 0

    def versions(self) -> dict[str, str]:
        return self._versions

    def prepare(self, case: dict[str, Any]) -> dict[str, Any]:
        self._name, self._repeats = case["function"], case["repeats"]
        a, b = map(self._convert, operands(case))
        function = self._functions[self._name]
        self._compute = lambda: function(a, b)
        start = time.perf_counter()
        self._compute()
        return {"first_seconds": time.perf_counter() - start}

    def round(self) -> float:
        start = time.perf_counter()
        for _ in range(self._repeats):
            self._compute()
        return time.perf_counter() - start

    def finish(self) -> dict[str, Any]:
        return {"check": check(self._name, self._compute())}


def table(linalg: Any) -> Functions:
    """The functions that NumPy, torch and magmath have under the same names."""
    return {
        "cholesky": lambda a, b: linalg.cholesky(a),
        "qr": lambda a, b: linalg.qr(a),
        "solve": linalg.solve,
        "eigh": lambda a, b: linalg.eigh(a),
        "svd": lambda a, b: linalg.svd(a, full_matrices=False),
        "inv": lambda a, b: linalg.inv(a),
        "det": lambda a, b: linalg.slogdet(a),
    }


def numpy_linalg() -> Contestant:
    """NumPy."""
    return LinalgContestant({"numpy": np.__version__}, table(np.linalg), lambda x: x)


def torch_linalg() -> Contestant:
    """torch."""
    import torch

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    return LinalgContestant({"torch": torch.__version__}, table(torch.linalg), torch.from_numpy)


def heat_linalg() -> Contestant:
    """Heat, its matrices split by rows."""
    import heat

    functions: Functions = {
        "cholesky": lambda a, b: heat.linalg.cholesky(a),
        "qr": lambda a, b: heat.linalg.qr(a),
        "solve": lambda a, b: heat.linalg.solve(a, b),
        "eigh": lambda a, b: heat.linalg.eigh(a),
        "svd": lambda a, b: heat.linalg.svd(a),
        "inv": lambda a, b: heat.linalg.inv(a),
        "det": lambda a, b: heat.linalg.det(a),
    }
    return LinalgContestant({"heat": heat.__version__}, functions, lambda x: heat.array(x, split=0))
