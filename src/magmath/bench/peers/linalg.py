"""Linear algebra of the other libraries, with all threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from magmath.bench.peers.repeated import RepeatedContestant, Work, repeat_call
from magmath.bench.peers.service import Contestant, core_count

Functions = dict[str, Callable[[Any, Any], Any]]


def operands(case: dict[str, Any]) -> tuple[Any, Any]:
    """Return a matrix for the case's function, and n / 10 right-hand sides for n columns; the same
    for every system."""
    m, n = case["shape"]
    random = np.random.default_rng(1)
    a = random.standard_normal((m, n))
    if case["function"] == "cholesky":
        a = a @ a.T + n * np.eye(n)
    if case["function"] == "eigh":
        a = a + a.T
    if case["function"] == "det":  # its square is √(2πn) on average, which does not overflow
        a *= (np.e / n) ** 0.5
    return a.astype(case["dtype"]), random.standard_normal((m, n // 10)).astype(case["dtype"])


def check(case: dict[str, Any], results: Any) -> float:
    """Return a number that is compared between systems and does not depend on the choice of
    signs."""
    parts = results if isinstance(results, (tuple, list)) else (results,)
    chosen = {"qr": -1, "svd": 1, "det": -1}.get(case["function"], 0)
    numbers = np.abs(np.asarray(parts[chosen])).reshape(-1)
    return float(numbers.max() if case["function"] == "eigh" else numbers[0])


def table(linalg: Any) -> Functions:
    """Return the functions that NumPy, torch and magmath have under the same names."""
    return {
        "cholesky": lambda a, b: linalg.cholesky(a),
        "qr": lambda a, b: linalg.qr(a),
        "solve": linalg.solve,
        "eigh": lambda a, b: linalg.eigh(a),
        "svd": lambda a, b: linalg.svd(a, full_matrices=False),
        "inv": lambda a, b: linalg.inv(a),
        "det": lambda a, b: linalg.slogdet(a),
    }


def _contestant(
    versions: dict[str, str], functions: Functions, convert: Callable[[Any], Any]
) -> Contestant:
    """Repeats one function of a table on the case's operands."""

    def prepare(case: dict[str, Any]) -> Work:
        function = functions[case["function"]]
        a, b = map(convert, operands(case))
        return repeat_call(lambda: function(a, b))

    return RepeatedContestant(versions, prepare, check)


def numpy_linalg() -> Contestant:
    """Return the contestant for numpy.linalg."""
    return _contestant({"numpy": np.__version__}, table(np.linalg), lambda x: x)


def torch_linalg() -> Contestant:
    """Return the contestant for torch.linalg."""
    import torch

    torch.set_num_threads(core_count())
    return _contestant({"torch": torch.__version__}, table(torch.linalg), torch.from_numpy)


def heat_linalg() -> Contestant:
    """Heat, a process for each part, its matrices split by rows."""
    import heat
    import torch

    torch.set_num_threads(1)
    functions: Functions = {
        "qr": lambda a, b: heat.linalg.qr(a),
        "eigh": lambda a, b: heat.linalg.eigh(a),
        "svd": lambda a, b: heat.linalg.svd(a),
        "inv": lambda a, b: heat.linalg.inv(a),
        "det": lambda a, b: (heat.log(heat.abs(heat.linalg.det(a))),),
    }

    def prepare(case: dict[str, Any]) -> Work:
        function = functions[case["function"]]
        a, b = [heat.array(x, split=0) for x in operands(case)]
        return repeat_call(lambda: function(a, b))

    def number(case: dict[str, Any], results: Any) -> float:
        parts = results if isinstance(results, (tuple, list)) else (results,)
        return check(case, [part.numpy() for part in parts])

    return RepeatedContestant({"heat": heat.__version__}, prepare, number)
