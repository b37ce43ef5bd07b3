"""Workers as threads of the controller's process: a simulated pool.

Commands and replies are encoded, and tiles copied, exactly as between processes; queues replace
sockets, and `comm.local_group` replaces MPI. One process can so test the layouts, programs and
messages of a large pool.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence
from typing import final

import torch

from magmath.comm.communicator import Communicator
from magmath.comm.local_group import LocalGroup
from magmath.comm.local_hosts import LocalHosts
from magmath.kernels.thread_count import BlasThreads, set_threads
from magmath.runtime.command_loop import CommandLoop, CommandPort
from magmath.runtime.device import HOST, can_be_gpu
from magmath.runtime.executable_program import LoadProgram, load_program
from magmath.runtime.failures import exception_from, failure_from
from magmath.runtime.messages import Command, Failure, Hello, Reply, Stop, decode_reply, encode
from magmath.runtime.tiles import TileData, tile_bytes
from magmath.runtime.transport_interface import (
    HandleReply,
    Payload,
    Transport,
    WorkerOptions,
    encode_frames,
)
from magmath.runtime.worker import Worker

_JOIN_SECONDS = 5.0
_Mail = tuple[int, list[bytes]]
"""The rank of a worker, and the frames of its reply."""


@final
class ThreadTransport(Transport):
    """`size` workers, each a thread of this process.

    `hosts`: the simulated host of each worker, by number; by default all are on one host.
    """

    def __init__(
        self,
        size: int,
        options: WorkerOptions,
        load: LoadProgram = load_program,
        *,
        shares_memory: bool = True,
        hosts: Sequence[int] | None = None,
    ) -> None:
        super().__init__(size)
        self.options = options
        self._load = load
        shares_memory = shares_memory and not can_be_gpu(options.device)
        count = len(set(hosts or (0,)))
        if 1 < count < size:
            group: LocalHosts | LocalGroup = LocalHosts(hosts or ())
        else:  # one host, or hosts of one worker each
            group = LocalGroup(size, shares_memory and count == 1, hosts=hosts or None)
        self._communicators = [group.communicator(rank) for rank in range(size)]
        self._inboxes: list[queue.SimpleQueue[list[bytes]]] = [
            queue.SimpleQueue() for _ in range(size)
        ]
        # Not a SimpleQueue: its `get` may wait forever if a signal arrives near the timeout.
        self._outbox: queue.Queue[_Mail] = queue.Queue()
        self._threads: list[threading.Thread] = []
        self._own_blas_threads: BlasThreads | None = None
        """The threads of every BLAS before the workers change them; set by `start`."""

    def start(self, handle_reply: HandleReply) -> list[Hello]:
        self._handle_reply = handle_reply
        self._own_blas_threads, own_threads = BlasThreads(), torch.get_num_threads()
        try:
            return self._started()
        except BaseException:  # of a worker, or Ctrl-C
            self.close(force=True)
            raise
        finally:
            torch.set_num_threads(own_threads)  # those of the workers apply to their threads only

    def _started(self) -> list[Hello]:
        """Start the threads of the workers, and return their Hello messages."""
        for rank in range(self.size):
            thread = threading.Thread(
                target=self._serve, args=(rank,), name=f"magmath-worker-{rank}", daemon=True
            )
            self._threads.append(thread)
            thread.start()
        hellos: dict[int, Hello] = {}
        while len(hellos) < self.size:
            reply = decode_reply(self._outbox.get()[1][0])
            if isinstance(reply, Failure):
                raise exception_from(reply)
            if isinstance(reply, Hello):
                hellos[reply.rank] = reply
        return [hellos[rank] for rank in range(self.size)]

    def send(
        self, command: Command, ranks: Sequence[int], payloads: Sequence[Payload] = ()
    ) -> None:
        messages = encode_frames(command, ranks, payloads, self.traffic)
        for rank, frames in zip(ranks, messages, strict=True):
            self._inboxes[rank].put([bytes(frame) for frame in frames])

    def pump(self, seconds: float) -> None:
        try:
            rank, frames = self._outbox.get(timeout=seconds)
            while True:
                reply = decode_reply(frames[0])
                self._handle_reply(rank, reply, frames[1] if len(frames) > 1 else None)
                rank, frames = self._outbox.get_nowait()
        except queue.Empty:
            return

    def close(self, *, force: bool) -> None:
        if force:
            for communicator in self._communicators:
                communicator.abort()
        for inbox in self._inboxes:
            inbox.put([encode(Stop())])
        deadline = time.monotonic() + _JOIN_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        self._threads.clear()
        if self._own_blas_threads is not None:
            self._own_blas_threads.restore()
            self._own_blas_threads = None

    def _serve(self, rank: int) -> None:
        port = _QueuePort(rank, self._inboxes[rank], self._outbox)
        if self.options.threads is not None:
            set_threads(self.options.threads)
        communicator: Communicator = self._communicators[rank]
        try:
            worker = Worker(communicator, self.options, self._load)
            port.send(worker.hello())
            CommandLoop(worker, port).run()
            worker.close()
        except Exception as error:
            port.send(failure_from(error, 0, rank, HOST))


@final
class _QueuePort(CommandPort):
    def __init__(
        self, rank: int, inbox: queue.SimpleQueue[list[bytes]], outbox: queue.Queue[_Mail]
    ) -> None:
        self._rank = rank
        self._inbox = inbox
        self._outbox = outbox

    def frames(self, wait: bool) -> list[bytes | memoryview] | None:
        try:
            return list(self._inbox.get(block=wait))
        except queue.Empty:
            return None

    def send(self, reply: Reply, data: TileData | None = None, *, hold: bool = False) -> None:
        frames = [encode(reply)]
        if data is not None:
            frames.append(bytes(tile_bytes(data)))
        self._outbox.put((self._rank, frames))
