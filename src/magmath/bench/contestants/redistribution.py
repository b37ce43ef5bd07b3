"""magmath's contestant of the redistributions, with the public names."""

from __future__ import annotations

from typing import Any

import magmath as mm
from magmath.bench.contestants.common import VERSIONS
from magmath.bench.peers.redistribution import Change, RedistributionContestant
from magmath.bench.peers.service import Contestant

LAYOUTS = {
    "columns": mm.Layout.split(1),
    "whole": mm.Layout.replicated(),
    "cyclic": mm.Layout.cyclic(0),
}


def redistribution() -> Contestant:
    """`redistribute` on the case's workers."""
    return RedistributionContestant(VERSIONS, _prepare)


def _prepare(values: Any, case: dict[str, Any]) -> Change:
    mm.shutdown()
    mm.init(case["workers"], device="cpu")
    rows = mm.asarray(values, layout=mm.Layout.split(0))
    factor = 0

    def fresh() -> Any:
        nonlocal factor  # a new array each time, since redistributed copies are cached
        factor += 1
        array = rows * factor
        mm.evaluate(array)
        float(array[0, 0])  # waits for it
        return array

    def change(array: Any) -> Any:
        result = array.redistribute(LAYOUTS[case["layout"]])
        mm.evaluate(result)
        float(result[-1, -1])
        return result

    return fresh, change, lambda result: float(result[0, 1]) / factor
