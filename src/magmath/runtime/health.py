"""Liveness of processes: connection monitors, in the controller and in the workers.

A socket monitor reports every closed connection: the process has died, or another host no longer
answers heartbeats (sent by a libzmq thread, so a busy worker still answers). /proc reports stopped
processes of this host. The controller learns which worker was lost; a worker exits immediately when
its controller has gone, or when the worker is stuck.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import select
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final, final

import zmq
from zmq.utils.monitor import recv_monitor_message

from magmath.core.cache_dir import remove_abandoned_fallbacks

PREFIX: Final = "magmath-pool-"
"""Prefix of the names of pool directories."""

HEARTBEAT_INTERVAL: Final = 1.0
"""Maximum seconds between two heartbeats, or polls of the processes of this host."""

CONTROLLER_PATIENCE: Final = 4
"""Heartbeat timeouts that a worker on another host waits for a silent controller: longer than the
controller waits for a worker, because a user may stop the controller for a while."""

LOCK_PATIENCE: Final = 5.0
"""Seconds that a worker waits until its killed controller has released the temporary cache."""

HANDSHAKE_TIMEOUT: Final = 20_000
"""Milliseconds that a worker waits for its controller to accept the connection."""

STUCK_SECONDS: Final = 10
"""Seconds without processor time in a run after which a worker counts as stuck."""

_STUCK_SHARE: Final = 0.002  # of a processor; most waits for another worker poll, and use more

_END_SECONDS: Final = 1.0

_END_EVENTS: Final = (
    zmq.Event.DISCONNECTED
    | zmq.Event.CLOSED
    | zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
    | zmq.Event.HANDSHAKE_FAILED_PROTOCOL
    | zmq.Event.HANDSHAKE_FAILED_AUTH
)


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
            while not select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
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


def exit_with_controller(dealer: zmq.Socket[bytes], directory: str) -> None:
    """Start a thread that exits this worker when the connection of its socket is closed.

    Call it before connecting. If the connection is closed, or not accepted in time, the thread
    removes the directory of the pool and a temporary cache (the controller, which owns them, may
    have been killed) and exits the process immediately.
    """
    monitor = dealer.get_monitor_socket(
        zmq.Event.HANDSHAKE_SUCCEEDED | zmq.Event.MONITOR_STOPPED | _END_EVENTS
    )
    watch = threading.Thread(
        target=_watch_controller, args=(monitor, directory), name="magmath-watch", daemon=True
    )
    watch.start()


def _watch_controller(monitor: zmq.Socket[bytes], directory: str) -> None:
    timeout: int | None = HANDSHAKE_TIMEOUT
    while monitor.poll(timeout):
        event = recv_monitor_message(monitor)["event"]
        if event == zmq.Event.MONITOR_STOPPED:
            return  # this process closed the socket after a Stop command
        if event != zmq.Event.HANDSHAKE_SUCCEEDED:
            break
        timeout = None
    remove_pool_directory(directory)
    remove_abandoned_fallbacks(LOCK_PATIENCE)
    os._exit(1)


def exit_when_stuck(
    rank: int, current_run: Callable[[], object], is_waiting: Callable[[], bool]
) -> None:
    """Start a thread that exits this process, worker `rank`, if it is stuck.

    `current_run` returns the run in progress, None between runs. A run without processor time is in
    a deadlock within this process, unless it waits for another worker (`is_waiting`), which may
    work or be stopped for as long as it likes. A run with processor time is indistinguishable from
    long work and continues.
    """
    watch = threading.Thread(
        target=_watch_run,
        args=(rank, current_run, is_waiting),
        name="magmath-watch-run",
        daemon=True,
    )
    watch.start()


def _watch_run(
    rank: int, current_run: Callable[[], object], is_waiting: Callable[[], bool]
) -> None:
    idle_seconds, run, processor_time = 0, current_run(), time.process_time()
    while idle_seconds < STUCK_SECONDS:
        time.sleep(1)
        former_run, run = run, current_run()
        former_time, processor_time = processor_time, time.process_time()
        is_idle = processor_time - former_time < _STUCK_SHARE and not is_waiting()
        idle_seconds = idle_seconds + 1 if run is not None and run is former_run and is_idle else 0
    report = f"magmath worker {rank}: it has used no processor time for {idle_seconds} s of a run"
    print(report, file=sys.stderr, flush=True)
    faulthandler.dump_traceback()
    os._exit(1)


def remove_pool_directory(directory: str) -> None:
    """Remove a pool directory if it exists; other directories are ignored."""
    if os.path.basename(directory).startswith(PREFIX):
        shutil.rmtree(directory, ignore_errors=True)
