"""magmath's contestant of the Fourier transforms, with the public names.

The array is split by rows; the planner chooses the layout of the result.
"""

from __future__ import annotations

from typing import Any

import magmath as mm
from magmath.bench.contestants.common import VERSIONS, evaluating_work, use_workers
from magmath.bench.peers.fft import axes_of, check, signal
from magmath.bench.peers.repeated import RepeatedContestant, Work
from magmath.bench.peers.service import Contestant


def transform() -> Contestant:
    """`mm.fft` on the case's workers."""
    return RepeatedContestant(VERSIONS, _prepare, check)


def _prepare(case: dict[str, Any]) -> Work:
    use_workers(case["workers"])
    function = mm.fft.fftn if case["dtype"].startswith("complex") else mm.fft.rfftn
    x, axes = mm.asarray(signal(case), layout=mm.Layout.split(0)), axes_of(case)
    return evaluating_work(lambda: function(x, axes=axes))
