"""magmath's contestants of the element-wise expressions, with the public names."""

from __future__ import annotations

from typing import Any, final

import magmath as mm
from magmath.bench.contestants.common import VERSIONS, use_workers, warm_up
from magmath.bench.peers.elementwise import ElementwiseContestant
from magmath.bench.peers.repeated import Work, repeat_call
from magmath.bench.peers.service import Contestant

WARM_UP_SECONDS = 10.0  # loops are also compiled to native code in the background


def eager() -> Contestant:
    """Return the contestant of eager expressions, evaluated at the end of a round (large: every
    time)."""
    return MagmathEager()


def compiled() -> Contestant:
    """Return the contestant of functions compiled by `mm.compile`."""
    return MagmathCompiled()


def loop() -> Contestant:
    """Return the contestant of `mm.fori_loop`, in which the repeats also run on the workers."""
    return MagmathLoop()


class MagmathElementwise(ElementwiseContestant):
    """The common base of the three contestants."""

    def __init__(self) -> None:
        super().__init__(VERSIONS)

    def prepare(self, case: dict[str, Any]) -> dict[str, Any]:
        use_workers(case["workers"])
        return super().prepare(case)

    def warm_up(self) -> None:
        warm_up(WARM_UP_SECONDS, self.round, self.round)


def _wait_for(array: mm.Array) -> mm.Array:
    """Evaluate an array and wait for the workers by reading a number."""
    mm.evaluate(array)
    float(array[0])
    return array


@final
class MagmathEager(MagmathElementwise):
    """Eager expressions."""

    def large(self, a: Any, b: Any, c: Any, d: Any) -> Work:
        a, b, c, d = (mm.asarray(array) for array in (a, b, c, d))
        return repeat_call(lambda: _wait_for(mm.sqrt(a * a + b * b) * c - d))

    def small(self, x: Any, y: Any) -> Work:
        x, y = mm.asarray(x), mm.asarray(y)

        def work(times: int) -> Any:
            nonlocal x
            for _ in range(times):
                x += 2 * y
            return _wait_for(x)

        return work


class MagmathCompiled(MagmathElementwise):
    """Compiled functions."""

    def large(self, a: Any, b: Any, c: Any, d: Any) -> Work:
        function = mm.compile(lambda a, b, c, d: mm.sqrt(a * a + b * b) * c - d)
        arrays = [mm.asarray(array) for array in (a, b, c, d)]
        return repeat_call(lambda: _wait_for(function(*arrays)))

    def small(self, x: Any, y: Any) -> Work:
        function = mm.compile(lambda x, y: x + 2 * y)
        x, y = mm.asarray(x), mm.asarray(y)

        def work(times: int) -> Any:
            nonlocal x
            for _ in range(times):
                x = function(x, y)
            return _wait_for(x)

        return work


@final
class MagmathLoop(MagmathCompiled):
    """Loops on the workers; long arrays do not benefit and use the compiled function."""

    def small(self, x: Any, y: Any) -> Work:
        x, y = mm.asarray(x), mm.asarray(y)

        def work(times: int) -> Any:
            nonlocal x
            x = mm.fori_loop(0, times, lambda i, z: z + 2 * y, x)
            return _wait_for(x)

        return work
