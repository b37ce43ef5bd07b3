"""magmath's contestant of the matrix products, with the public names.

Operands have the layouts of the case; the planner chooses the layout of the result.
"""

from __future__ import annotations

from typing import Any

import magmath as mm
from magmath.bench.contestants.common import VERSIONS, evaluating_work, use_workers
from magmath.bench.peers.gemm import check, operands
from magmath.bench.peers.repeated import RepeatedContestant, Work
from magmath.bench.peers.service import Contestant

BLOCK = 256  # block length of the cyclic layout
LAYOUTS = {
    "rows": mm.Layout.split(0),
    "columns": mm.Layout.split(1),
    "whole": mm.Layout.replicated(),
    "cyclic": mm.Layout.cyclic(0, BLOCK),
}


def gemm() -> Contestant:
    """`a @ b` on the case's workers."""
    return RepeatedContestant(VERSIONS, _prepare, check)


def _prepare(case: dict[str, Any]) -> Work:
    use_workers(case["workers"])
    a, b = [
        mm.asarray(x, layout=LAYOUTS[name])
        for x, name in zip(operands(case), case["layouts"], strict=True)
    ]
    return evaluating_work(lambda: a @ b)
