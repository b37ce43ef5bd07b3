"""Contestants for the tests of the benchmark runner: each takes a given time."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from magmath.bench.peers.service import Contestant, rank


class Scripted(Contestant):
    """Reports the seconds in the case, notes each round in a file, and fails where the case says
    so."""

    def __init__(self) -> None:
        self.case: dict[str, Any] = {}

    def versions(self) -> dict[str, str]:
        return {"scripted": "1"}

    def prepare(self, case: dict[str, Any]) -> dict[str, Any]:
        self.case = case
        print("noise on standard output")
        if case.get("fails_in") == "prepare":
            raise RuntimeError("cannot prepare")
        return {"variant": "plain", "rank": rank()}

    def round(self) -> float:
        if self.case.get("fails_in") == "round" and rank() == self.case.get("fails_on", 0):
            raise ArithmeticError("cannot go round")
        if self.case.get("fails_in") == "death":
            os._exit(3)
        with Path(self.case["log"]).open("a") as log:
            log.write(self.case["letter"])
        return float(self.case["seconds"] * (rank() + 1))

    def peak_bytes(self, case: dict[str, Any]) -> int:
        if case.get("fails_in") == "memory":
            raise MemoryError("cannot be measured")
        return int(case["megabytes"] * 1e6 * (rank() + 1))

    def finish(self) -> dict[str, Any]:
        if self.case.get("fails_in") == "finish":
            raise ArithmeticError("cannot finish")
        return {"loss": self.case["loss"]} if "loss" in self.case else {}


def scripted() -> Contestant:
    return Scripted()


def absent() -> Contestant:
    import a_library_that_is_not_installed  # noqa: F401

    raise AssertionError


def broken() -> Contestant:
    raise RuntimeError("broken from the start")
