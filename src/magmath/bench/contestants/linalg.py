"""magmath's contestant of the linear algebra, with the public names.

The matrix is split by rows; the planner chooses the layouts of the results.
"""

from __future__ import annotations

from typing import Any

import magmath as mm
from magmath.bench.contestants.common import VERSIONS, evaluating_work, use_workers
from magmath.bench.peers.linalg import check, operands, table
from magmath.bench.peers.repeated import RepeatedContestant, Work
from magmath.bench.peers.service import Contestant


def linalg() -> Contestant:
    """`mm.linalg` on the case's workers."""
    return RepeatedContestant(VERSIONS, _prepare, check)


def _prepare(case: dict[str, Any]) -> Work:
    use_workers(case["workers"])
    function = table(mm.linalg)[case["function"]]
    a, b = [mm.asarray(x, layout=mm.Layout.split(0)) for x in operands(case)]
    return evaluating_work(lambda: function(a, b))
