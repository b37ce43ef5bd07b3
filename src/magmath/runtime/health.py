"""Which processes are still alive: the watch over connections, on both sides.

A socket's monitor reports every connection that ends: because the process died, or because another
host no longer answers heartbeats (sent by libzmq's own thread, so a worker that computes is not
suspected). Whether a process of this host is stopped, the system says. The controller learns which
worker was lost; a worker whose controller is gone ends at once, and so does one that is stuck.
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
from typing import Any, Final

import zmq
from zmq.utils.monitor import recv_monitor_message

from magmath.core.cache_dir import remove_abandoned_fallbacks

PREFIX: Final = "magmath-pool-"
"""How the names of pools' directories begin."""

HEARTBEAT_INTERVAL: Final = 1.0
"""Seconds between two heartbeats, or looks at the processes of this host; less where a worker shall
count as lost soon."""

HANDSHAKE_TIMEOUT: Final = 20_000
"""Milliseconds that a worker waits for its controller to accept it."""

STUCK_SECONDS: Final = 10
"""Seconds in a run without processor time until a worker counts as stuck."""

_STUCK_SHARE: Final = 0.002  # of a processor; who waits for another worker looks, and uses more

_END_SECONDS: Final = 1.0

_END_EVENTS: Final = (
    zmq.Event.DISCONNECTED
    | zmq.Event.CLOSED
    | zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
    | zmq.Event.HANDSHAKE_FAILED_PROTOCOL
    | zmq.Event.HANDSHAKE_FAILED_AUTH
)


class ConnectionWatch:
    """The controller's connections: which worker is at the other end, and which have ended.

    A connection ends when its other end has not answered for `timeout` seconds; None: it may be
    silent for ever.
    """

    def __init__(self, router: zmq.Socket[bytes], timeout: float | None) -> None:
        if timeout is not None:
            router.heartbeat_ivl = round(1000 * min(HEARTBEAT_INTERVAL, timeout / 4))
            router.heartbeat_timeout = round(1000 * timeout)
        self.monitor: zmq.Socket[bytes] = router.get_monitor_socket(zmq.Event.DISCONNECTED)
        self._rank_of: dict[int, int] = {}

    def add(self, frame: zmq.Frame, rank: int) -> None:
        """Note that the connection by which `frame` came is worker `rank`'s."""
        descriptor: Any = frame.get(zmq.SRCFD)
        self._rank_of[int(descriptor)] = rank

    def ended(self) -> list[int]:
        """The workers whose connections have ended since the last call, the first one first."""
        ranks = []
        while self.monitor.poll(0):
            event = recv_monitor_message(self.monitor)
            rank = self._rank_of.pop(event["value"], None)
            if rank is not None:
                ranks.append(rank)
        return ranks


class ProcessWatch:
    """The workers that are processes of this host.

    They are ended by descriptors that no later process can inherit. One that has been stopped, by
    a signal or a debugger, for `timeout` seconds counts as lost; None: it is waited for.
    """

    def __init__(self, timeout: float | None) -> None:
        self._timeout = timeout
        self._interval = (
            HEARTBEAT_INTERVAL if timeout is None else min(HEARTBEAT_INTERVAL, timeout / 4)
        )
        self._looked = time.monotonic()
        self._pids: dict[int, int] = {}
        self._stopped: dict[int, float] = {}  # by rank: for how many seconds
        self._descriptors: list[int] = []

    def add(self, rank: int, pid: int) -> None:
        """Watch a process; one that has ended already, or a system without pidfd, is passed by."""
        self._pids[rank] = pid
        with contextlib.suppress(OSError, AttributeError):
            self._descriptors.append(os.pidfd_open(pid))

    def stopped(self) -> int | None:
        """A worker that has been stopped for too long.

        Counts the time between two looks, at most two intervals: when this process was stopped
        itself, or has not looked because it waited for nothing, a longer time says nothing.
        """
        now = time.monotonic()
        passed = now - self._looked
        if self._timeout is None or passed < self._interval:
            return None
        self._looked = now
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
        """Return when all have ended; those that do not within a second are killed."""
        deadline = time.monotonic() + _END_SECONDS
        for descriptor in self._descriptors:
            while not select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
                with contextlib.suppress(OSError):
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                deadline = time.monotonic() + _END_SECONDS
            os.close(descriptor)
        self._descriptors.clear()


def _is_stopped(pid: int) -> bool:
    """True for a process that a signal or a debugger has stopped, where the system tells."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] in "Tt"
    except OSError:
        return False


def exit_with_controller(dealer: zmq.Socket[bytes], directory: str) -> None:
    """Watch the connection of a worker's socket, to be connected next, from a thread of its own.

    When it ends, or is not accepted in time, the directory of the pool and a temporary cache are
    removed (the controller, which owns them, may have been killed) and the process exits at once,
    whatever it is doing.
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
            return  # this process closed the socket itself: it was told to stop
        if event != zmq.Event.HANDSHAKE_SUCCEEDED:
            break
        timeout = None
    remove_pool_directory(directory)
    remove_abandoned_fallbacks()
    os._exit(1)


def exit_when_stuck(rank: int, under_way: Callable[[], object]) -> None:
    """Watch from a thread of its own whether this process, worker `rank`, is stuck; end it if so.

    `under_way` tells what the worker computes, None between two runs. A run that uses no processor
    time waits for something within this process that will not come. One that does use some cannot
    be told from long work, and is left alone.
    """
    watch = threading.Thread(
        target=_watch_run, args=(rank, under_way), name="magmath-watch-run", daemon=True
    )
    watch.start()


def _watch_run(rank: int, under_way: Callable[[], object]) -> None:
    still, run, used = 0, under_way(), time.process_time()
    while still < STUCK_SECONDS:
        time.sleep(1)
        before, run = run, under_way()
        taken, used = time.process_time() - used, time.process_time()
        still = still + 1 if run is not None and run is before and taken < _STUCK_SHARE else 0
    said = f"magmath worker {rank}: it has used no processor time for {still} s of a run"
    print(said, file=sys.stderr, flush=True)
    faulthandler.dump_traceback()
    os._exit(1)


def remove_pool_directory(directory: str) -> None:
    """Remove a pool's directory, if it is one and still there."""
    if os.path.basename(directory).startswith(PREFIX):
        shutil.rmtree(directory, ignore_errors=True)
