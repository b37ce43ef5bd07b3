"""The process of one contestant: it runs a round on each request of the runner.

Requests and replies are lines of JSON over a Unix socket, independent of the output of libraries.
Standard library only. A system of several processes has one service in each; the runner sends each
request to all of them and uses the slowest time.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import traceback
from abc import ABC, abstractmethod
from importlib import import_module
from typing import Any, final

Record = dict[str, Any]


class Contestant(ABC):
    """The actions of a system."""

    @abstractmethod
    def versions(self) -> dict[str, str]:
        """Return names and versions of the used libraries."""

    @abstractmethod
    def prepare(self, case: Record) -> Record:
        """Build, compile and warm up for `case`; return a record of it."""

    @abstractmethod
    def round(self) -> float:
        """Do the work of the case once and return its seconds."""

    @abstractmethod
    def finish(self) -> Record:
        """Return results that are compared between systems, after the last round.

        For training, it is the loss after one epoch from the initial weights; later, accumulated
        rounding errors would hide mistakes.
        """

    def peak_bytes(self, case: Record) -> int:
        """Return the peak of this process's resident memory in the first steps of `case`, beyond
        the bytes before its network was built. The case has the `variant` of `prepare`."""
        raise NotImplementedError(f"{type(self).__name__} does not measure memory")


@final
class ContestantService:
    """Answers the runner's requests with one contestant."""

    def __init__(self, contestant: Contestant) -> None:
        self.contestant = contestant
        self.handlers = {
            "prepare": self.prepare,
            "round": self.round,
            "finish": self.finish,
            "measure memory": self.measure_memory,
        }

    def prepare(self, request: Record) -> Record:
        """Prepare the contestant for the case of a request; return what it answers."""
        return self.contestant.prepare(request["case"])

    def round(self, request: Record) -> Record:
        """Return the seconds of one round."""
        return {"seconds": self.contestant.round()}

    def finish(self, request: Record) -> Record:
        """Return the record of the contestant at the end of a case."""
        return self.contestant.finish()

    def measure_memory(self, request: Record) -> Record:
        """Return the peak of the memory of the case of a request, in bytes."""
        return {"peak_bytes": self.contestant.peak_bytes(request["case"])}

    def answer(self, request: Record) -> Record:
        """Return the answer to a request, or the failure of its handler."""
        try:
            return {"ok": self.handlers[request["do"]](request)}
        except Exception as error:
            return failure(error)


def failure(error: BaseException) -> Record:
    """Return the reply for an exception."""
    return {
        "error": f"{type(error).__name__}: {error}",
        "traceback": "".join(traceback.format_exception(error)),
    }


def rank() -> int:
    """Return the rank of this process in its system, from the runner or mpiexec."""
    names = ("MAGMATH_BENCH_RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK")
    return next((int(os.environ[name]) for name in names if name in os.environ), 0)


def core_count() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def restrict_to_cores(count: int) -> None:
    """Restrict this process to the first `count` of its cores, the same for every system."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])


def main(arguments: list[str]) -> None:
    """`FACTORY SOCKET CORES`: serves the contestant that `module:function` returns, as long as the
    runner keeps the connection."""
    factory, path, cores = arguments
    restrict_to_cores(int(cores))
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        with connection.makefile("rw", encoding="utf-8") as channel:
            answer_requests(factory, channel)


def answer_requests(factory: str, channel: Any) -> None:
    """Send a greeting, then answer each request."""

    def send(reply: Record) -> None:
        channel.write(json.dumps(reply) + "\n")
        channel.flush()

    try:
        module, function = factory.split(":")
        contestant: Contestant = getattr(import_module(module), function)()
        service = ContestantService(contestant)
        send({"ok": {"versions": contestant.versions(), "rank": rank()}})
    except ImportError as error:
        is_own = (error.name or "").partition(".")[0] == "magmath"  # which is a fault, not absence
        send({**({} if is_own else {"absent": str(error)}), **failure(error)})
        return
    except Exception as error:
        send(failure(error))
        return
    for line in channel:
        send(service.answer(json.loads(line)))


if __name__ == "__main__":
    main(sys.argv[1:])
