"""Liveness of the workers, as the controller sees it: which of them was lost.

A socket monitor reports every closed connection: the process has died, or another host no longer
answers heartbeats (sent by a libzmq thread, so a busy worker still answers). /proc reports stopped
processes of this host.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import time
from typing import Any, Final, final

import zmq
from zmq.utils.monitor import recv_monitor_message

PREFIX: Final = "magmath-pool-"
"""Prefix of the names of pool directories."""

HEARTBEAT_INTERVAL: Final = 1.0
"""Maximum seconds between two heartbeats, or polls of the processes of this host."""

_END_SECONDS: Final = 1.0


def expect_heartbeats(endpoint: zmq.Socket[bytes], timeout: float) -> None:
    """Close connections of a socket whose peer is silent for `timeout` seconds."""
    endpoint.heartbeat_ivl = round(1000 * min(HEARTBEAT_INTERVAL, timeout / 4))
    endpoint.heartbeat_timeout = round(1000 * timeout)


@final
class ConnectionWatch:
    """The controller's connections: the worker of each connection, and the closed ones.

    A connection is closed if the peer has not answered for `timeout` seconds; None: no limit.
    """

    def __init__(self, router: zmq.Socket[bytes], timeout: float | None) -> None:
        if timeout is not None:
            expect_heartbeats(router, timeout)
        self.monitor: zmq.Socket[bytes] = router.get_monitor_socket(zmq.Event.DISCONNECTED)
        self._rank_of: dict[int, int] = {}

    def add(self, frame: zmq.Frame, rank: int) -> None:
        """Register the connection of `frame` as that of worker `rank`."""
        descriptor: Any = frame.get(zmq.SRCFD)
        self._rank_of[int(descriptor)] = rank

    def ended(self) -> list[int]:
        """Return the workers whose connections were closed since the last call, in order."""
        ranks = []
        while self.monitor.poll(0):
            event = recv_monitor_message(self.monitor)
            rank = self._rank_of.pop(event["value"], None)
            if rank is not None:
                ranks.append(rank)
        return ranks


@final
class ProcessWatch:
    """The workers that are processes of this host.

    They are ended through pidfds, which never refer to a later process. A process that has been
    stopped, by a signal or a debugger, for `timeout` seconds counts as lost; None: no limit.
    """

    def __init__(self, timeout: float | None) -> None:
        self._timeout = timeout
        self._interval = (
            HEARTBEAT_INTERVAL if timeout is None else min(HEARTBEAT_INTERVAL, timeout / 4)
        )
        self._last_poll = time.monotonic()
        self._pids: dict[int, int] = {}
        self._stopped: dict[int, float] = {}  # by rank: for how many seconds
        self._descriptors: list[int] = []

    def add(self, rank: int, pid: int) -> None:
        """Watch a process; ignored if it has ended, or without pidfd support."""
        self._pids[rank] = pid
        with contextlib.suppress(OSError, AttributeError):
            self._descriptors.append(os.pidfd_open(pid))

    def stopped(self) -> int | None:
        """Return a worker that has been stopped for longer than the timeout, or None.

        Adds the time since the last poll, at most two intervals, since a longer time may mean that
        this process itself was stopped or idle.
        """
        now = time.monotonic()
        passed = now - self._last_poll
        if self._timeout is None or passed < self._interval:
            return None
        self._last_poll = now
        for rank, pid in self._pids.items():
            if not _is_stopped(pid):
                self._stopped.pop(rank, None)
                continue
            seconds = self._stopped.get(rank, 0.0) + min(passed, 2 * self._interval)
            self._stopped[rank] = seconds
            if seconds >= self._timeout:
                return rank
        return None

    def end(self) -> None:
        """Wait until all processes have ended; kill those that do not end within a second."""
        deadline = time.monotonic() + _END_SECONDS
        for descriptor in self._descriptors:
            ended = select.poll()  # select.select refuses numbers of files from 1024 on
            ended.register(descriptor, select.POLLIN)
            while not ended.poll(1000 * max(0.0, deadline - time.monotonic())):
                with contextlib.suppress(OSError):
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                deadline = time.monotonic() + _END_SECONDS
            os.close(descriptor)
        self._descriptors.clear()


def _is_stopped(pid: int) -> bool:
    """Return True for a process that a signal or a debugger has stopped."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] in "Tt"
    except OSError:
        return False


def remove_pool_directory(directory: str) -> None:
    """Remove a pool directory if it exists; other directories are ignored."""
    if os.path.basename(directory).startswith(PREFIX):
        shutil.rmtree(directory, ignore_errors=True)
