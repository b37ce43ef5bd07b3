"""The main program of a worker process: MPI to the workers, a socket to the controller.

The launcher starts `python -m magmath.runtime.process` with the controller's address and the pool's
directory as arguments and the pool's keys in the environment. It sends Hello, executes commands
until Stop, and exits immediately when the controller has gone.
"""

from __future__ import annotations

import argparse
import atexit
import gc
import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, final

import msgspec
import zmq

from magmath.comm import Communicator
from magmath.comm.host_memory import allow_many_mappings
from magmath.comm.network_speed import measure_network
from magmath.core.resources import processor_count
from magmath.errors import WorkerError
from magmath.kernels.thread_count import set_threads
from magmath.runtime.command_loop import CommandLoop, CommandPort
from magmath.runtime.device import HOST, can_be_gpu
from magmath.runtime.direct_socket import DirectSocket, Frames, connect
from magmath.runtime.executable_program import LoadProgram, load_program
from magmath.runtime.failures import failure_from
from magmath.runtime.health import expect_heartbeats
from magmath.runtime.messages import Reply, encode
from magmath.runtime.tiles import TileData, tile_bytes
from magmath.runtime.transport_interface import WorkerOptions
from magmath.runtime.worker import Worker
from magmath.runtime.worker_exit import (
    CONTROLLER_PATIENCE,
    exit_when_stuck,
    exit_with_controller,
)

SECRET_VARIABLE: Final = "MAGMATH_POOL_SECRET"
"""Passes the pool's keys to the workers; the launcher must forward the environment."""

_LINGER: Final = 2_000
"""Milliseconds that a failing worker waits for the delivery of its last message."""


@final
class SocketPort(CommandPort):
    """A worker's sockets to its controller; a direct one if they are on one host."""

    def __init__(self, dealer: zmq.Socket[bytes]) -> None:
        self._dealer = dealer
        self.direct: DirectSocket | None = None

    def frames(self, wait: bool) -> Frames | None:
        if self.direct is None:
            return self._dealer_frames(wait)
        return self.direct.receive(lambda: self._dealer_frames(wait), wait=wait)

    def _dealer_frames(self, wait: bool) -> Frames | None:
        try:
            frames = self._dealer.recv_multipart(0 if wait else zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return None
        return [frame.buffer for frame in frames]

    def send(self, reply: Reply, data: TileData | None = None, *, hold: bool = False) -> None:
        parts: list[bytes | memoryview] = [encode(reply)]
        if data is not None:
            parts.append(tile_bytes(data))
        if self.direct is None:
            self._dealer.send_multipart(parts)
        else:
            self.direct.send(parts, self._dealer.send_multipart, hold=hold)


def worker_arguments(
    address: str,
    directory: str,
    workers: int,
    options: WorkerOptions,
    heartbeat_timeout: float | None = None,
) -> list[str]:
    """Return the command-line arguments that `main` parses.

    `heartbeat_timeout`: seconds that a worker on another host may be silent, or None.
    """
    arguments = ["--connect", address, "--directory", directory, "--workers", str(workers)]
    if heartbeat_timeout is not None:
        arguments += ["--heartbeat-timeout", str(heartbeat_timeout)]
    arguments += ["--device", options.device]
    if options.threads is not None:
        arguments += ["--threads", str(options.threads)]
    if options.memory_limit is not None:
        arguments += ["--memory-limit", str(options.memory_limit)]
    if options.deterministic:
        arguments.append("--deterministic")
    if not options.winograd:
        arguments.append("--no-winograd")
    arguments += ["--workspace-limit", str(options.workspace_limit)]
    if not options.flush_denormals:
        arguments.append("--keep-denormals")
    return arguments


def main(
    arguments: Sequence[str] | None = None,
    load: LoadProgram = load_program,
    join: Callable[[], Communicator] | None = None,
) -> int:
    """Run a worker until the controller sends Stop; return the exit code.

    `join` returns the communicator of all workers; by default that of MPI.
    """
    settings = _parse_arguments(arguments)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the controller handles Ctrl-C
    allow_many_mappings()
    gc.freeze()  # the loaded modules stay: no collection needs to visit them
    atexit.register(gc.freeze)  # nor that of the exit, which takes half a second
    options = _worker_options(settings)
    key, *curve = os.environ.pop(SECRET_VARIABLE).split()

    communicator = (join or partial(_join_mpi, options.device))()
    if options.threads is None and "OMP_NUM_THREADS" not in os.environ:
        share = communicator.processors // communicator.ranks_on_host
        set_threads(max(1, min(processor_count(), share)))
    context = zmq.Context()
    identity = f"{key}:{communicator.rank}"
    dealer = _connect(context, identity, curve, settings)
    port = SocketPort(dealer)
    try:
        _check_size(communicator.size, settings.workers)
        network = measure_network(communicator) if any(communicator.hosts) else None
        worker = Worker(communicator, options, load)
    except Exception as error:
        port.send(failure_from(error, 0, communicator.rank, HOST))
        dealer.close(linger=_LINGER)
        context.term()
        raise
    direct = connect(settings.directory, identity) if settings.connect.startswith("ipc") else None
    port.send(msgspec.structs.replace(worker.hello(), network=network))
    port.direct = direct
    service = CommandLoop(worker, port)
    if worker.device.type == "cpu":  # on a GPU the processor is idle while the device computes
        exit_when_stuck(worker.rank, lambda: service.running, lambda: worker.comm.is_waiting)
    service.run()
    if direct is not None:
        direct.close()
    dealer.disable_monitor()  # the connection may be closed from here on
    worker.close()
    context.destroy(linger=0)
    return 0


def _parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="magmath.runtime.process", description="A worker process; started by mm.init."
    )
    parser.add_argument("--connect", required=True, metavar="ADDRESS")
    parser.add_argument("--directory", required=True)
    parser.add_argument("--workers", required=True, type=int)
    parser.add_argument("--heartbeat-timeout", type=float)
    parser.add_argument("--device", required=True)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--memory-limit", type=int)
    parser.add_argument("--deterministic", action="store_true")
    parser.add_argument("--no-winograd", dest="winograd", action="store_false")
    parser.add_argument("--workspace-limit", type=int, required=True)
    parser.add_argument("--keep-denormals", dest="flush_denormals", action="store_false")
    return parser.parse_args(arguments)


def _worker_options(settings: argparse.Namespace) -> WorkerOptions:
    return WorkerOptions(
        settings.device,
        settings.threads,
        settings.deterministic,
        settings.memory_limit,
        settings.winograd,
        settings.workspace_limit,
        settings.flush_denormals,
    )


def _join_mpi(device: str) -> Communicator:
    from magmath.comm.mpi import world_communicator  # importing it starts MPI

    return world_communicator(shares_memory=not can_be_gpu(device))


def _check_size(size: int, workers: int) -> None:
    """Raise WorkerError if the launcher has started another number of MPI ranks."""
    if size != workers:
        raise WorkerError(
            f"init: the launcher has started this worker as one of {size} MPI ranks, not of "
            f"{workers}: it belongs to another MPI than the one that mpi4py uses, or starts "
            f'another number; use the launcher of that MPI, or leave launcher="mpiexec"'
        )


def _connect(
    context: zmq.Context[zmq.Socket[bytes]],
    identity: str,
    curve: list[str],
    settings: argparse.Namespace,
) -> zmq.Socket[bytes]:
    dealer = context.socket(zmq.DEALER)
    dealer.set_hwm(0)
    dealer.routing_id = identity.encode()
    dealer.reconnect_ivl = -1  # a closed connection is not reopened: the pool ends
    if curve:
        server, public, secret = (key.encode() for key in curve)
        dealer.curve_serverkey = server
        dealer.curve_publickey = public
        dealer.curve_secretkey = secret
    if settings.heartbeat_timeout is not None:
        expect_heartbeats(dealer, CONTROLLER_PATIENCE * settings.heartbeat_timeout)
    exit_with_controller(dealer, settings.directory)
    dealer.connect(settings.connect)
    return dealer


if __name__ == "__main__":
    sys.exit(main())
