"""`bench start`: the time of the import, the help, a first result, and a pool.

Every round starts a new Python. If torch is needed, its import is the reference.
"""

from __future__ import annotations

from typing import NamedTuple, final

from magmath.bench.case import Bench, Case, Comparison, RunOptions, System

_TIMED_POOL = """
import time
import magmath as mm
mm.ones(3) + 1
start = time.perf_counter()
mm.init({workers})
print(time.perf_counter() - start)
mm.shutdown()
"""


@final
class _Start(NamedTuple):
    """The arguments of Python for magmath and for the reference, if there is one, and the seconds
    allowed above that. A program that `prints_seconds` measures itself."""

    title: str
    own: list[str]
    reference: list[str] | None
    mark: float
    prints_seconds: bool = False


_STARTS = (
    _Start("import magmath", ["-c", "import magmath"], ["-c", "pass"], 0.3),
    _Start("magmath --help", ["-m", "magmath", "--help"], None, 0.4),
    _Start(
        "first result",
        ["-c", "import magmath as mm; print(mm.ones(3) + 1)"],
        ["-c", "import torch; print(torch.ones(3) + 1)"],
        0.3,
    ),
    _Start("pool up", ["-c", _TIMED_POOL], None, 3.0, prints_seconds=True),
)


def _cases(options: RunOptions) -> list[Case]:
    return [
        Case(
            name=start.title,
            parameters={
                "own": [part.replace("{workers}", str(options.workers)) for part in start.own],
                "reference": start.reference,
                "prints_seconds": start.prints_seconds,
            },
            work=1.0,
            unit="s",
            group="start",
            x=x,
        )
        for x, start in enumerate(_STARTS)
    ]


def _systems(options: RunOptions) -> list[System]:
    factory = "magmath.bench.contestants.command:command"
    return [
        System("magmath", factory, settings={"side": "own"}),
        System("reference", factory, settings={"side": "reference"}),
    ]


def _comparisons(options: RunOptions) -> list[Comparison]:
    marks = {start.title: start.mark for start in _STARTS}
    return [
        Comparison(
            "seconds over the reference",
            "magmath",
            ("reference",),
            lambda case: marks[case.name],
            kind="excess",
        )
    ]


BENCH = Bench("start", "import, help, first result, pool", "", _cases, _systems, _comparisons)
