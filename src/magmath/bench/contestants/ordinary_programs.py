"""magmath's contestant of the ordinary programs.

The result of each case is compared with NumPy's, and the seconds that the cost model predicts with
those that the instructions take.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, final

import numpy as np

import magmath as mm
from magmath.bench.contestants.common import VERSIONS, use_workers
from magmath.bench.numpy_programs.agreement import difference
from magmath.bench.peers.ordinary_programs import WARM_UP_SECONDS, check, operands
from magmath.bench.peers.repeated import RepeatedContestant, Work, repeat_call
from magmath.bench.peers.service import Contestant
from magmath.errors import ExperimentError

TOLERANCE = 1e-6
"""Largest accepted difference of a result to NumPy's, relative to the largest value."""
ACCURATE = 1.5
"""Factor within which the prediction for an operation counts as accurate."""


def program() -> Contestant:
    """Return the contestant of one pool."""
    return ProgramContestant()


def computed(function: Any, arrays: list[mm.Array]) -> Any:
    """Return the result of a program on arrays, evaluated."""
    result = function(mm, *arrays)
    mm.evaluate(*_arrays(result), wait=True)
    return result


def _arrays(result: Any) -> list[mm.Array]:
    if isinstance(result, (tuple, list)):
        return [array for part in result for array in _arrays(part)]
    return [result] if isinstance(result, mm.Array) else []


@final
class ProgramContestant(RepeatedContestant):
    """Runs a program with Python floats as float64, like NumPy."""

    def __init__(self) -> None:
        super().__init__(VERSIONS, self._start, check, WARM_UP_SECONDS)
        self._main: Any
        self._data: tuple[Any, ...]
        self._arrays: list[mm.Array]

    def _start(self, case: dict[str, Any]) -> Work:
        use_workers(case["workers"])
        mm.set_default_dtype("float64")
        module, self._data = operands(case)
        self._main = module.main
        self._arrays = [mm.asarray(array) for array in self._data]
        return repeat_call(lambda: computed(self._main, self._arrays))

    def finish(self) -> dict[str, Any]:
        """Return the check and the accuracy of predictions. Raises ExperimentError if the result
        differs from NumPy's."""
        ours = computed(self._main, self._arrays)
        error = difference(ours, self._main(np, *self._data))
        if not error <= TOLERANCE:
            raise ExperimentError(
                f"the result differs from NumPy's by {error:.2g} of its largest value"
            )
        return {"check": check({}, ours), "difference": error, **self._predictions()}

    def _predictions(self) -> dict[str, float]:
        """Return predicted and measured seconds of all instructions, and the share of the measured
        seconds that belongs to operations with an accurate prediction."""
        with mm.profile() as profile:
            computed(self._main, self._arrays)
        seconds: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        for step in [step for run in profile.runs for step in run.instructions]:
            seconds[step.operation][0] += step.seconds
            seconds[step.operation][1] += step.measured or 0.0
        predicted, measured = (sum(column) for column in zip(*seconds.values(), strict=True))
        accurate = [m for p, m in seconds.values() if m / ACCURATE <= p <= m * ACCURATE]
        return {
            "predicted_seconds": predicted,
            "measured_seconds": measured,
            "accurate_share": sum(accurate) / max(measured, 1e-12),
        }
