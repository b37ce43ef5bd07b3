"""The servers of asynchronous updates of workers that exchange messages, on one or several hosts.

Each server belongs to one worker, whose second thread, the server thread, sends copies of its
arrays and applies the updates of all workers, while the main thread computes. The server thread of
worker 0 also gives the numbers of steps and updates. A request is a message of four integers, which
arrays may follow. Requests and replies have communicators of their own, so that no thread receives
what another one waits for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import partial
from typing import NoReturn, final

import numpy as np
import torch
from torch import Tensor

from magmath.comm.communicator import Communicator
from magmath.core.update_rules import COUNTERS, Denied, UpdateRules
from magmath.errors import DeviceError, WorkerLost
from magmath.executor.context import Context
from magmath.executor.servers import Bind, ServerRun, Servers, ServerStep, allocate_slots
from magmath.executor.step_values import StepValues
from magmath.kernels.denormals import flushed, is_flushing
from magmath.program.instructions import Program

_NONE = -1
"""The reply to a request for a step if none is left."""


@final
class _Request(IntEnum):
    """The first integer of a request; those that follow are in parentheses."""

    TAKE = 0  # the number of a step
    BEGIN = 1  # the number of an update
    COMPLETE = 2  # all servers have an update
    VALUES = 3  # (step) what it has emitted
    STOP = 4
    COPY = 5  # (server) its arrays
    UPDATE = 6  # (server, number) with the operands of the update
    END = 7  # the worker makes no other request in this run


@final
@dataclass
class _Server:
    """The arrays of a server, on the worker to which it belongs.

    copied    the arrays that workers copy
    operands  the operands of an update that workers send
    apply     applies the update with a number to the arrays, from the operands
    version   the number of updates that were applied
    early     updates that arrived before those with smaller numbers: the worker, and operands
    """

    copied: Sequence[Tensor]
    operands: Sequence[Tensor]
    apply: Callable[[int], object]
    version: int = 0
    early: dict[int, tuple[int, Sequence[Tensor]]] = field(default_factory=dict)


@final
class _ServerThread:
    """Serves the requests of all workers during one run."""

    def __init__(
        self,
        requests: Communicator,
        replies: Communicator,
        servers: dict[int, _Server],
        rules: UpdateRules,
        values: StepValues,
        steps: int,
    ) -> None:
        self._requests, self._replies = requests, replies
        self._servers, self._rules, self._values, self._steps = servers, rules, values, steps
        self._waiting: list[tuple[int, _Request]] = []
        self._row = torch.empty(values.width, dtype=torch.float64)
        self.failure: Exception | None = None
        """The first exception of an update."""
        self.error: BaseException | None = None
        """The exception that ended this thread."""
        self._flush = is_flushing()
        self._thread = threading.Thread(
            target=self._serve, name=f"magmath-server-{requests.rank}", daemon=True
        )
        self._thread.start()

    def join(self) -> None:
        """Return when all workers have ended their requests. Raises what ended the thread."""
        self._thread.join()
        if self.error is not None:
            raise self.error

    def _serve(self) -> None:
        try:
            with flushed(self._flush):
                active = self._requests.size
                while active:
                    worker = self._requests.probe()
                    kind, first, second, _ = self._receive(worker)
                    if kind == _Request.END:
                        active -= 1
                    else:
                        self._handle(worker, _Request(kind), first, second)
        except BaseException as error:
            self.error = error
            self._requests.abort()

    def _receive(self, worker: int) -> list[int]:
        header = torch.empty(4, dtype=torch.int64)
        self._requests.exchange([], [(worker, header)])
        numbers: list[int] = header.tolist()
        return numbers

    def _handle(self, worker: int, kind: _Request, first: int, second: int) -> None:
        if kind is _Request.COPY:
            server = self._servers[first]
            self._reply(worker, server.version, server.copied)
        elif kind is _Request.UPDATE:
            self._update(worker, self._servers[first], second)
        elif kind is _Request.VALUES:
            self._requests.exchange([], [(worker, self._row)])
            self._values.set(first, self._row.tolist())
        else:
            self._count(worker, kind)

    def _reply(self, worker: int, number: int, arrays: Sequence[Tensor] = ()) -> None:
        header = torch.tensor([number])
        self._replies.exchange([(worker, x) for x in (header, *arrays)], [])

    # numbers of steps and updates -----------------------------------------------------------------

    def _count(self, worker: int, kind: _Request) -> None:
        """Handle a request on the rules, and those of the workers that it permits to continue."""
        if kind is _Request.COMPLETE:
            self._rules.complete()
        elif kind is _Request.STOP:
            self._rules.stop(worker)
        else:
            self._waiting.append((worker, kind))
        while any(self._permit(*request) for request in list(self._waiting)):
            continue

    def _permit(self, worker: int, kind: _Request) -> bool:
        """Reply to a waiting worker if the rules permit it; return True if they do."""
        rules = self._rules
        is_step = kind is _Request.TAKE
        number = rules.take(worker, self._steps) if is_step else rules.begin(worker)
        if number is Denied.NOT_YET:
            return False
        self._waiting.remove((worker, kind))
        self._reply(worker, _NONE if isinstance(number, Denied) else number)
        return True

    # updates --------------------------------------------------------------------------------------

    def _update(self, worker: int, server: _Server, number: int) -> None:
        """Receive an update, and apply it and those that have waited for it."""
        received = server.operands
        if number != server.version:
            received = [torch.empty_like(x) for x in received]
        self._requests.exchange([], [(worker, x) for x in received])
        server.early[number] = worker, received
        while server.version in server.early:
            worker, received = server.early.pop(server.version)
            if received is not server.operands:
                for operand, x in zip(server.operands, received, strict=True):
                    operand.copy_(x)
            if self.failure is None:
                self._apply(server)
            server.version += 1
            self._reply(worker, int(self.failure is None))

    def _apply(self, server: _Server) -> None:
        try:
            server.apply(server.version)
        except WorkerLost:
            raise
        except Exception as failure:
            self.failure = failure


@final
class MessageServers(Servers):
    """The servers of workers that exchange messages.

    Server s belongs to worker s modulo the number of workers. `context` is that of the worker,
    `alone` that of programs for one worker, `width` the numbers that a step emits.
    """

    def __init__(
        self, program: Program, context: Context, alone: Context, bind: Bind, width: int
    ) -> None:
        step = program.asynchronous
        assert step is not None
        self._step, self._comm = step, context.comm
        self._owners = [server % context.comm.size for server in range(len(step.updates))]
        private = {i for i, slot in enumerate(program.slots) if slot.kind == "temporary"}
        counts = {private_slot for _, private_slot in step.updates_counted}
        self._operands = [[i for i in x.inputs if i in private - counts] for x in step.updates]
        used = {i for part in step.updates for i in part.inputs if i in private}
        with ExitStack() as resources:
            self._executables = [
                resources.enter_context(closing(bind(part.program, alone))) for part in step.updates
            ]
            self._received = allocate_slots(program, sorted(used | counts), context, resources)
            """What the server thread has in place of this worker's own arrays."""
            # At the end, since they are closed collectively, and a failure may be of one worker.
            self._replies = _duplicate(context.comm)
            self._requests = _duplicate(context.comm)
            resources.callback(self._replies.close)
            resources.callback(self._requests.close)
            self._resources = resources.pop_all()
        self.values = StepValues(width, lambda nbytes: torch.empty(nbytes, dtype=torch.uint8))
        self._failure: Exception | None = None

    def start(self, run: ServerRun) -> None:
        self._run, self._failure = run, None
        if self._comm.rank == 0:
            self.values.start(run.steps)
            self.values.clear()
        counters = np.zeros(COUNTERS + self._comm.size, dtype=np.uint64)
        self._rules = UpdateRules(counters, self._step.staleness)
        received = replace(run, arrays={**run.arrays, **self._received})
        servers = {
            server: self._create_server(server, received)
            for server, owner in enumerate(self._owners)
            if owner == self._comm.rank
        }
        self._thread = _ServerThread(
            self._requests, self._replies, servers, self._rules, self.values, run.steps
        )

    def _create_server(self, server: int, run: ServerRun) -> _Server:
        """Return a server of this worker, for the arrays that its thread has."""
        try:
            step: ServerStep = run.prepare(self._step.updates[server], self._executables[server])
        except Exception as error:
            step = partial(_raise, error)

        def apply(number: int) -> None:
            run.count(self._step.updates_counted, number)
            step()

        copied = [run.arrays[shared].tensor for shared, _ in self._step.copies[server]]
        return _Server(copied, [run.arrays[i].tensor for i in self._operands[server]], apply)

    # requests -------------------------------------------------------------------------------------

    def take(self) -> int | None:
        number = self._number(_Request.TAKE)
        return None if number == _NONE else number

    def copy(self) -> list[int]:
        """Ask each owner for one server at a time, in the order of the owners.

        So a server thread whose reply is not received yet waits for one with a smaller number, and
        none waits for itself.
        """
        versions: list[int] = []
        arrays, count = self._run.arrays, len(self._owners)
        for first in range(0, count, self._comm.size):
            servers = range(first, min(first + self._comm.size, count))
            self._request([(self._owners[i], _Request.COPY, i) for i in servers])
            for i in servers:
                private = [arrays[private_slot].tensor for _, private_slot in self._step.copies[i]]
                versions.append(self._answer(self._owners[i], private))
        return versions

    def begin(self) -> int:
        return self._number(_Request.BEGIN)

    def apply(self, number: int) -> bool:
        headers = [(x, _Request.UPDATE, i, number) for i, x in enumerate(self._owners)]
        arrays = self._run.arrays
        self._request(headers, [[arrays[i].tensor for i in x] for x in self._operands])
        applied = [self._answer(owner) for owner in self._owners]
        self._request([(0, _Request.COMPLETE)])
        return all(applied)

    def set_values(self, step: int, values: Sequence[float]) -> None:
        row = torch.tensor(values, dtype=torch.float64)
        self._request([(0, _Request.VALUES, step)], [[row]])

    def stop(self) -> None:
        self._request([(0, _Request.STOP)])

    def _number(self, kind: _Request) -> int:
        self._request([(0, kind)])
        return self._answer(0)

    def _request(
        self, headers: Sequence[tuple[int, ...]], arrays: Sequence[Sequence[Tensor]] = ()
    ) -> None:
        """Send requests (worker, kind, numbers), each with its arrays."""
        sends = []
        for (worker, *numbers), sent in zip(headers, arrays or [()] * len(headers), strict=True):
            header = torch.zeros(4, dtype=torch.int64)
            header[: len(numbers)] = torch.tensor(numbers)
            sends += [(worker, x) for x in (header, *sent)]
        self._requests.exchange(sends, [])

    def _answer(self, worker: int, arrays: Sequence[Tensor] = ()) -> int:
        """Receive the number and the arrays of a reply."""
        header = torch.empty(1, dtype=torch.int64)
        self._replies.exchange([], [(worker, x) for x in (header, *arrays)])
        return int(header)

    # the end --------------------------------------------------------------------------------------

    def finish(self) -> int:
        self._request([(worker, _Request.END) for worker in range(self._comm.size)])
        self._thread.join()
        self._failure = self._thread.failure
        sends: list[tuple[int, Tensor]] = []
        receives: list[tuple[int, Tensor]] = []
        for owner, part in zip(self._owners, self._step.updates, strict=True):
            updated = [self._run.arrays[i].tensor for i in part.outputs]
            if owner == self._comm.rank:
                other_ranks = [rank for rank in range(self._comm.size) if rank != owner]
                sends += [(rank, x) for rank in other_ranks for x in updated]
            else:
                receives += [(owner, x) for x in updated]
        self._comm.exchange(sends, receives)
        return self._comm.allreduce_max(self._rules.steps_taken)  # worker 0 alone has taken some

    def raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        self._resources.close()


def _duplicate(comm: Communicator) -> Communicator:
    """Return a communicator for another thread. Raises DeviceError if there is none."""
    duplicate = comm.duplicate()
    if duplicate is None:
        raise DeviceError(
            "Asynchronous: the servers of workers without common memory need an MPI library that "
            "supports several threads (MPI_THREAD_MULTIPLE); give schedule=, the delays of the "
            "updates, or use workers of one host"
        )
    return duplicate


def _raise(error: Exception) -> NoReturn:
    raise error
