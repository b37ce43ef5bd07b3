"""The immediate exit of a worker whose controller has gone, and of one that is stuck.

A thread of the worker watches the connection to the controller, another one the processor time of
runs.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import zmq
from zmq.utils.monitor import recv_monitor_message

from magmath.core.cache_dir import remove_abandoned_fallbacks
from magmath.runtime.health import remove_pool_directory

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

_END_EVENTS: Final = (
    zmq.Event.DISCONNECTED
    | zmq.Event.CLOSED
    | zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
    | zmq.Event.HANDSHAKE_FAILED_PROTOCOL
    | zmq.Event.HANDSHAKE_FAILED_AUTH
)


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
    a deadlock within this process, unless it waits for a disk, or for another worker
    (`is_waiting`), which may work or be stopped for as long as it likes. A run with processor time
    is indistinguishable from long work and continues.
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
        is_idle = processor_time - former_time < _STUCK_SHARE and not (
            is_waiting() or _is_waiting_for_disk()
        )
        idle_seconds = idle_seconds + 1 if run is not None and run is former_run and is_idle else 0
    report = f"magmath worker {rank}: it has used no processor time for {idle_seconds} s of a run"
    print(report, file=sys.stderr, flush=True)
    faulthandler.dump_traceback()
    os._exit(1)


def _is_waiting_for_disk() -> bool:
    """Return True if a thread of this process waits in the kernel for a disk, a file system or
    memory that was swapped out; False where the states of threads are unknown."""
    for path in Path("/proc/self/task").glob("*/stat"):
        with suppress(OSError):  # the thread has ended
            if path.read_text().rpartition(")")[2].split()[0] == "D":
                return True
    return False
