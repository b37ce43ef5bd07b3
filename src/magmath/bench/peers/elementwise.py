"""Element-wise expressions of the other libraries.

There are two workloads. "large": `sqrt(a*a + b*b)*c - d` on long arrays, with a new result each
time. "small": `x += 2*y` on a short array, many times.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, final

import numpy as np

from magmath.bench.peers.repeated import Work, repeat_call
from magmath.bench.peers.service import Contestant, core_count

CHECKED = 5  # repetitions of the workload whose result is compared


def operands(case: dict[str, Any]) -> list[Any]:
    """Return a, b, c and d (large) or x and y (small), the same for every system."""
    random = np.random.default_rng(1)
    count = 4 if case["kind"] == "large" else 2
    return [random.uniform(0.5, 1, case["extent"]).astype(np.float32) for _ in range(count)]


class ElementwiseContestant(Contestant):
    """Does a workload `repeats` times in a round."""

    def __init__(self, versions: dict[str, str]) -> None:
        self._versions = versions
        self._case: dict[str, Any]
        self._work: Work

    def versions(self) -> dict[str, str]:
        return self._versions

    def prepare(self, case: dict[str, Any]) -> dict[str, Any]:
        self._case = case
        start = time.perf_counter()
        self._begin()
        self._work(2)
        first = time.perf_counter() - start
        self.warm_up()
        return {"first_seconds": first}

    def warm_up(self) -> None:
        """Warm up until all programs are compiled."""

    def round(self) -> float:
        start = time.perf_counter()
        self._work(self._case["repeats"])
        return time.perf_counter() - start

    def finish(self) -> dict[str, Any]:
        self._begin()
        return {"check": float(np.sum(np.asarray(self._work(CHECKED)), dtype=np.float64))}

    def _begin(self) -> None:
        make = self.large if self._case["kind"] == "large" else self.small
        self._work = make(*operands(self._case))

    @abstractmethod
    def large(self, a: Any, b: Any, c: Any, d: Any) -> Work:
        """Return the work of the expression on NumPy arrays."""

    @abstractmethod
    def small(self, x: Any, y: Any) -> Work:
        """Return the work of the update of a NumPy array."""


def numpy() -> Contestant:
    """NumPy as it is written; the update is in place."""
    return NumpyContestant({"numpy": np.__version__})


@final
class NumpyContestant(ElementwiseContestant):
    """NumPy."""

    def large(self, a: Any, b: Any, c: Any, d: Any) -> Work:
        return repeat_call(lambda: np.sqrt(a * a + b * b) * c - d)

    def small(self, x: Any, y: Any) -> Work:
        def work(times: int) -> Any:
            nonlocal x
            for _ in range(times):
                x += 2 * y
            return x

        return work


def numexpr() -> Contestant:
    """numexpr with a thread for each core."""
    import numexpr as ne

    ne.set_num_threads(core_count())
    return NumexprContestant({"numexpr": ne.__version__})


@final
class NumexprContestant(ElementwiseContestant):
    """numexpr, which compiles an expression to a virtual machine's code and runs it by blocks."""

    def large(self, a: Any, b: Any, c: Any, d: Any) -> Work:
        import numexpr as ne

        names = {"a": a, "b": b, "c": c, "d": d}
        return repeat_call(lambda: ne.evaluate("sqrt(a*a + b*b)*c - d", local_dict=names))

    def small(self, x: Any, y: Any) -> Work:
        import numexpr as ne

        two = np.float32(2)
        names = {"x": x, "y": y, "two": two}
        return repeat_call(lambda: ne.evaluate("x + two*y", local_dict=names, out=x))


def torch_eager() -> Contestant:
    """PyTorch as it is written."""
    return TorchContestant(compiled=False)


def torch_compiled() -> Contestant:
    """`torch.compile` of the expression, and of the update."""
    return TorchContestant(compiled=True)


@final
class TorchContestant(ElementwiseContestant):
    """PyTorch with all threads."""

    def __init__(self, compiled: bool) -> None:
        import torch

        torch.set_num_threads(core_count())
        super().__init__({"torch": torch.__version__})
        self._compiled = compiled

    def _function(self, function: Callable[..., Any]) -> Callable[..., Any]:
        import torch

        return torch.compile(function) if self._compiled else function

    def large(self, a: Any, b: Any, c: Any, d: Any) -> Work:
        import torch

        function = self._function(lambda a, b, c, d: torch.sqrt(a * a + b * b) * c - d)
        tensors = [torch.from_numpy(array) for array in (a, b, c, d)]
        return repeat_call(lambda: function(*tensors))

    def small(self, x: Any, y: Any) -> Work:
        import torch

        function = self._function(lambda x, y: x.add_(2 * y))
        tensors = torch.from_numpy(x), torch.from_numpy(y)
        return repeat_call(lambda: function(*tensors))
