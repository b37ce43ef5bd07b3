"""`bench start`: the time of the import, the help, a first result, and a pool.

Every round starts a new Python. If torch is needed, its import is the reference.
"""

from __future__ import annotations

from magmath.bench.case import Bench, Case, Comparison, RunOptions, System

# case: (magmath's command, the reference command, seconds allowed above it)
_TIMED_POOL = """
import time
import magmath as mm
mm.ones(3) + 1
start = time.perf_counter()
mm.init({workers})
print(time.perf_counter() - start)
mm.shutdown()
"""
_COMMANDS: dict[str, tuple[list[str], list[str] | None, float]] = {
    "import": (["-c", "import magmath"], ["-c", "pass"], 0.3),
    "help": (["-m", "magmath.cli", "--help"], None, 0.4),
    "first result": (
        ["-c", "import magmath as mm; print(mm.ones(3) + 1)"],
        ["-c", "import torch; print(torch.ones(3) + 1)"],
        0.3,
    ),
    "pool": (["-c", _TIMED_POOL], None, 3.0),
}
_TITLES = {
    "import": "import magmath",
    "help": "magmath --help",
    "first result": "first result",
    "pool": "pool up",
}


def _cases(options: RunOptions) -> list[Case]:
    return [
        Case(
            name=_TITLES[key],
            parameters={
                "own": [part.replace("{workers}", str(options.workers)) for part in own],
                "reference": reference,
                "prints_seconds": key == "pool",
            },
            work=1.0,
            unit="s",
            group="start",
            x=index,
        )
        for index, (key, (own, reference, _)) in enumerate(_COMMANDS.items())
    ]


def _systems(options: RunOptions) -> list[System]:
    factory = "magmath.bench.contestants.command:command"
    return [
        System("magmath", factory, settings={"side": "own"}),
        System("reference", factory, settings={"side": "reference"}),
    ]


def _comparisons(options: RunOptions) -> list[Comparison]:
    marks = {_TITLES[key]: seconds for key, (_, _, seconds) in _COMMANDS.items()}
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
