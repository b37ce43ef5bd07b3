"""One contestant's process: it stays alive and runs one round whenever the runner asks.

Requests and replies are lines of JSON over a Unix socket, so whatever a library prints disturbs
nothing. Standard library only. A system of several processes has one such service in each of
them; the runner asks all at once and takes the slowest.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import traceback
from abc import ABC, abstractmethod
from importlib import import_module
from typing import Any

Record = dict[str, Any]


class Contestant(ABC):
    """What a system does when asked."""

    @abstractmethod
    def versions(self) -> dict[str, str]:
        """Names and versions of the libraries at work."""

    @abstractmethod
    def prepare(self, case: Record) -> Record:
        """Builds and compiles for `case` and settles; what is worth recording about that."""

    @abstractmethod
    def round(self) -> float:
        """Does the work of the case once and returns its seconds."""

    @abstractmethod
    def finish(self) -> Record:
        """After the last round: results to compare between systems.

        For training that is the loss after one epoch from the initial weights; later on, rounding
        errors have grown too large to tell a mistake from chance.
        """


class ContestantService:
    """Answers the runner's requests with one contestant."""

    def __init__(self, contestant: Contestant) -> None:
        self.contestant = contestant
        self.handlers = {"prepare": self.prepare, "round": self.round, "finish": self.finish}

    def prepare(self, request: Record) -> Record:
        return self.contestant.prepare(request["case"])

    def round(self, request: Record) -> Record:
        return {"seconds": self.contestant.round()}

    def finish(self, request: Record) -> Record:
        return self.contestant.finish()

    def answer(self, request: Record) -> Record:
        try:
            return {"ok": self.handlers[request["do"]](request)}
        except Exception as error:
            return failure(error)


def failure(error: BaseException) -> Record:
    """The reply that says what went wrong."""
    return {
        "error": f"{type(error).__name__}: {error}",
        "traceback": "".join(traceback.format_exception(error)),
    }


def rank() -> int:
    """Which of the system's processes this is: set by the runner, or by mpiexec."""
    names = ("MAGMATH_BENCH_RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK")
    return next((int(os.environ[name]) for name in names if name in os.environ), 0)


def restrict_to_cores(count: int) -> None:
    """Every system gets the same cores: the first `count` that this process may use."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])


def main(arguments: list[str]) -> None:
    """`FACTORY SOCKET CORES`: serves what `module:function` makes until told to stop."""
    factory, path, cores = arguments
    restrict_to_cores(int(cores))
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        with connection.makefile("rw", encoding="utf-8") as channel:
            converse(factory, channel)


def converse(factory: str, channel: Any) -> None:
    """Says who answers, then answers each line with one."""

    def send(reply: Record) -> None:
        channel.write(json.dumps(reply) + "\n")
        channel.flush()

    try:
        module, function = factory.split(":")
        contestant: Contestant = getattr(import_module(module), function)()
        service = ContestantService(contestant)
        send({"ok": {"versions": contestant.versions(), "rank": rank()}})
    except ImportError as error:
        send({"absent": str(error), **failure(error)})
        return
    except Exception as error:
        send(failure(error))
        return
    for line in channel:
        send(service.answer(json.loads(line)))


if __name__ == "__main__":
    main(sys.argv[1:])
