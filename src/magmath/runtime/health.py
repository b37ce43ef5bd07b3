"""Liveness of the workers, as the controller sees it: which of them was lost.

A socket monitor reports every closed connection: the process has died, or another host no longer
answers heartbeats (sent by a libzmq thread, so a busy worker still answers). /proc reports stopped
processes of this host.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import shutil
import signal
import time
from pathlib import Path
from typing import Any, Final, final

import zmq
from zmq.utils.monitor import recv_monitor_message

logger = logging.getLogger(__name__)

PREFIX: Final = "magmath-pool-"
"""Prefix of the names of pool directories."""

HEARTBEAT_INTERVAL: Final = 1.0
"""Maximum seconds between two heartbeats, or polls of the processes of this host."""

_END_SECONDS: Final = 1.0
_KILL_SECONDS: Final = 5.0
"""Seconds in which killed processes have to end."""


def expect_heartbeats(endpoint: zmq.Socket[bytes], timeout: float) -> None:
    """Close connections of a socket whose peer is silent for `timeout` seconds, but at least for
    a millisecond."""
    endpoint.heartbeat_ivl = max(1, round(1000 * min(HEARTBEAT_INTERVAL, timeout / 4)))
    endpoint.heartbeat_timeout = max(1, round(1000 * timeout))


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
    """The workers that are processes of this host; `pids`: their numbers, by rank.

    They are ended through pidfds, which never refer to a later process. A process that has been
    stopped, by a signal or a debugger, for `timeout` seconds counts as lost; None: no limit.
    """

    def __init__(self, timeout: float | None) -> None:
        self._timeout = timeout
        self._interval = (
            HEARTBEAT_INTERVAL if timeout is None else min(HEARTBEAT_INTERVAL, timeout / 4)
        )
        self._last_poll = time.monotonic()
        self.pids: dict[int, int] = {}
        self._stopped: dict[int, float] = {}  # by rank: for how many seconds
        self._descriptors: list[int] = []

    def add(self, rank: int, pid: int, argument: str) -> None:
        """Watch the process that has told its number, and has `argument` in its command line.

        Ignored if the process of this number has ended or is another one: a worker in a container,
        or on another host of the same name, is counted there.
        """
        descriptors = []
        with contextlib.suppress(OSError, AttributeError):
            descriptors.append(os.pidfd_open(pid))
        # Read after the opening, so that it is the command line of the opened process.
        if argument in _command_line(pid):
            self.pids[rank] = pid
            self._descriptors += descriptors
        else:
            for descriptor in descriptors:
                os.close(descriptor)

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
        for rank, pid in self.pids.items():
            if not _is_stopped(pid):
                self._stopped.pop(rank, None)
                continue
            seconds = self._stopped.get(rank, 0.0) + min(passed, 2 * self._interval)
            self._stopped[rank] = seconds
            if seconds >= self._timeout:
                return rank
        return None

    def end(self) -> None:
        """Wait until all processes have ended; kill those that do not end within a second.

        A killed process ends only when the kernel lets it: if it waits for a file system or a
        device, that may be never. Then this method returns after some seconds, with a warning.
        """
        remaining = _running(self._descriptors, _END_SECONDS)
        for descriptor in remaining:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        if remaining and (left := _running(remaining, _KILL_SECONDS)):
            logger.warning(
                "%d of %d workers of this host were killed and have not ended: they wait in the "
                "kernel, for a file system or a device",
                *(len(left), len(self._descriptors)),
            )
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors.clear()


def _running(descriptors: list[int], seconds: float) -> list[int]:
    """Wait until the processes of these pidfds have ended; return those of the processes that have
    not ended within this time."""
    deadline, running = time.monotonic() + seconds, []
    for descriptor in descriptors:
        ended = select.poll()  # select.select refuses numbers of files from 1024 on
        ended.register(descriptor, select.POLLIN)
        if not ended.poll(1000 * max(0.0, deadline - time.monotonic())):
            running.append(descriptor)
    return running


def _command_line(pid: int) -> list[str]:
    """Return the command of a process, as words; none if it has ended."""
    try:
        return os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes()).split("\0")
    except OSError:
        return []


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
