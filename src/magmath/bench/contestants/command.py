"""The contestant that starts a Python process in every round and measures its duration."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any, final

from magmath.bench.peers.service import Contestant


def command() -> Contestant:
    """Return the contestant that measures the command of the case for its side."""
    return CommandContestant()


@final
class CommandContestant(Contestant):
    """Runs Python with the arguments of the case; a side without arguments takes no time."""

    def __init__(self) -> None:
        self._arguments: list[str] | None = None
        self._prints_seconds = False

    def versions(self) -> dict[str, str]:
        return {}

    def prepare(self, case: dict[str, Any]) -> dict[str, Any]:
        self._arguments = case[case["side"]]
        self._prints_seconds = case["prints_seconds"]
        return {"first_seconds": self.round()}

    def round(self) -> float:
        if self._arguments is None:
            return 0.0
        start = time.perf_counter()
        result = subprocess.run(
            [sys.executable, *self._arguments], capture_output=True, text=True, timeout=120
        )
        seconds = time.perf_counter() - start
        if result.returncode:
            raise RuntimeError(f"{self._arguments} failed: {result.stderr[-2000:]}")
        return float(result.stdout.split()[-1]) if self._prints_seconds else seconds

    def finish(self) -> dict[str, Any]:
        return {}
