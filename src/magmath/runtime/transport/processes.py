"""Workers as processes: the controller's sockets, and the pool's directory.

The controller uses a ROUTER socket in a directory that only the owner can enter, or over TCP with
CURVE keys for this pool. A worker's identity is a secret of the pool followed by its rank; messages
from other identities, and malformed messages, are logged and dropped.
"""

from __future__ import annotations

import logging
import os
import secrets
import shlex
import socket
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final, final

import zmq
from zmq.auth.thread import ThreadAuthenticator

from magmath.core.python_processes import module_command
from magmath.core.resources import processor_count
from magmath.errors import ProtocolError, WorkerError, WorkerLost
from magmath.runtime.direct_socket import DirectListener
from magmath.runtime.failures import exception_from
from magmath.runtime.health import PREFIX, ConnectionWatch, ProcessWatch, remove_pool_directory
from magmath.runtime.hosts import HostList, address_towards
from magmath.runtime.interrupts import Interrupts
from magmath.runtime.launch import Launch, hosts_command, launcher_command, worker_environment
from magmath.runtime.messages import Command, Failure, Hello, Reply, Stop, decode_reply
from magmath.runtime.mpich_buffers import SHM_FOLDER, mpich_settings, warn_without_shared_memory
from magmath.runtime.out_of_memory import OutOfMemoryWatch, is_sigkill
from magmath.runtime.process import SECRET_VARIABLE, worker_arguments
from magmath.runtime.tiles import TileData
from magmath.runtime.transport.worker_messages import WorkerMessages
from magmath.runtime.transport_interface import (
    HEARTBEAT_TIMEOUT,
    HandleReply,
    Payload,
    Transport,
    WorkerOptions,
    encode_frames,
)

logger = logging.getLogger(__name__)

START_SECONDS: Final = 60.0
"""Seconds in which every worker must have sent Hello, if each has its own processor."""
SHARED_START_SECONDS: Final = 10.0
"""Additional seconds per further worker of a processor: loading torch and starting MPI takes three
seconds of an otherwise idle processor."""
FIRST_NOTICE: Final = 10.0
"""Seconds of waiting for workers until the first notice; the interval then doubles."""
STOP_SECONDS: Final = 5.0
"""Seconds that workers have to exit after a Stop command."""
REPORT_SECONDS: Final = 3.0
"""Seconds that the launcher has to report how a lost worker has ended, on a busy machine too."""
_CLOSED: Final = "the pool is closed, start a new one"
_IPC_PATH_LIMIT: Final = 100
"""Maximum bytes of a socket path, with a margin."""

WORKER_COMMAND: Final = module_command("magmath.runtime.process")


@final
class ProcessTransport(Transport):
    """`size` worker processes, started by a launcher.

    launcher        "mpiexec", "srun", or a command with {n} for the number of workers
    hosts           the hosts on which "mpiexec" starts the workers; by default this one
    endpoint        "ipc", or "tcp" with an address of this host that the workers can reach:
                    "tcp://10.0.0.1"; by default ipc for "mpiexec" on this host, otherwise tcp
    heartbeat_timeout   seconds that a worker may be stopped, or its host silent, until it counts as
                        lost; None: no limit
    worker_command  what the launcher starts, before the worker's own arguments
    """

    def __init__(
        self,
        size: int,
        options: WorkerOptions,
        *,
        launcher: str | Sequence[str] = "mpiexec",
        endpoint: str | None = None,
        heartbeat_timeout: float | None = HEARTBEAT_TIMEOUT,
        worker_command: Sequence[str] = WORKER_COMMAND,
        hosts: HostList | None = None,
    ) -> None:
        super().__init__(size)
        self.options = options
        self._hosts = hosts
        self._on_this_host = launcher == "mpiexec" and hosts is None
        self._heartbeat_timeout = heartbeat_timeout
        self._launch_command = (
            launcher_command(launcher, size) if hosts is None else hosts_command(hosts)
        )
        self._worker_command = worker_command
        self._endpoint = endpoint or ("ipc" if self._on_this_host else "tcp")
        self._key = secrets.token_hex(16)
        self._rank_of = {f"{self._key}:{rank}".encode(): rank for rank in range(size)}
        self._hellos: dict[int, Hello] = {}
        self._processes = ProcessWatch(heartbeat_timeout)
        self._watch = OutOfMemoryWatch()
        self._resources = ExitStack()
        """Releases what `start` has made, the latest first."""
        self._launch: Launch | None = None
        self.directory = ""
        """The directory of the pool; set by `start`."""
        self.address = ""
        """The address of the controller; set by `start`."""

    def start(self, handle_reply: HandleReply) -> list[Hello]:
        self._handle_reply = handle_reply
        with Interrupts() as interrupts:  # Ctrl-C must not leave a running launcher
            try:
                self._wait_for_hellos(self._start_launcher(), interrupts)
            except BaseException:
                self.close(force=True)
                raise
        hellos = [self._hellos[rank] for rank in range(self.size)]
        if self._worker_command is WORKER_COMMAND:
            warn_without_shared_memory(hellos)
        return hellos

    def _start_launcher(self) -> Launch:
        self.directory = directory = _new_directory()
        self._resources.callback(self._processes.end)
        self._resources.callback(remove_pool_directory, directory)
        self.address, keys = self._open(directory)
        environment = worker_environment(
            self.options.threads,
            {SECRET_VARIABLE: " ".join([self._key, *keys])},
            on_this_host=self._on_this_host,
        )
        environment |= mpich_settings(self.size, environment, self._on_this_host)
        command = [*self._launch_command, *self._worker_command]
        silence = self._heartbeat_timeout if self._endpoint != "ipc" else None
        command += worker_arguments(
            self.address, directory, self.size, self.options, heartbeat_timeout=silence
        )
        self._launch = launch = Launch(command, environment, directory)
        self._resources.callback(launch.kill)
        return launch

    def send(
        self, command: Command, ranks: Sequence[int], payloads: Sequence[Payload] = ()
    ) -> None:
        messages = encode_frames(command, ranks, payloads, self.traffic)
        for rank, frames in zip(ranks, messages, strict=True):
            try:
                self._messages.send(rank, frames)
            except (zmq.ZMQError, OSError) as error:
                raise self._lost([*self._connections.ended(), rank]) from error

    def pump(self, seconds: float) -> None:
        has_other_news = self._messages.wait(seconds)
        ended = self._connections.ended() if has_other_news else []
        gone = has_other_news and (
            bool(ended) or self._launch is None or self._launch.exit_code() is not None
        )
        while (received := self._receive()) is not None:
            self._handle_reply(*received)
        if gone:
            raise self._lost(ended)
        stopped = self._processes.stopped()
        if stopped is not None:
            raise WorkerLost(
                f"{self._worker_name(stopped)} was lost: it has been stopped, by a signal or a "
                f"debugger, for {self._heartbeat_timeout:g} s; the pool is closed, start a new "
                f"one; mm.init(heartbeat_timeout=…) sets another limit, and None no limit"
            )

    def close(self, *, force: bool) -> None:
        if not force and self._launch is not None and self._launch.exit_code() is None:
            try:
                self.send(Stop(), range(self.size))
                self._launch.wait(STOP_SECONDS)
            except WorkerLost:
                pass  # the pool is ending anyway
        self._launch = None
        self._resources.close()

    def _open(self, directory: str) -> tuple[str, list[str]]:
        """Open the socket; return the address and the keys for the workers."""
        context = zmq.Context()
        self._resources.callback(context.destroy, linger=0)
        self._router = context.socket(zmq.ROUTER)
        self._router.set_hwm(0)  # the pool limits pending commands
        self._router.router_mandatory = True
        # An ipc connection closes with its process; `ProcessWatch` detects stopped processes.
        silence = None if self._endpoint == "ipc" else self._heartbeat_timeout
        self._connections = ConnectionWatch(self._router, silence)
        self._resources.callback(self._router.disable_monitor)
        is_local = self._endpoint == "ipc"
        listener = DirectListener(directory, self.size) if is_local else None
        self._messages = WorkerMessages(
            self._router, self._connections.monitor, self._rank_of, listener
        )
        self._resources.callback(self._messages.close)
        if is_local:
            address = f"ipc://{directory}/controller"
            self._router.bind(address)
            return address, []
        return self._open_tcp(context)

    def _open_tcp(self, context: zmq.Context[zmq.Socket[bytes]]) -> tuple[str, list[str]]:
        public, secret = zmq.curve_keypair()
        worker_public, worker_secret = zmq.curve_keypair()
        authenticator = ThreadAuthenticator(context)
        authenticator.start()
        self._resources.callback(authenticator.stop)
        authenticator.configure_curve_callback("*", _SingleKeyPolicy(worker_public))
        self._router.curve_server = True
        self._router.curve_publickey = public
        self._router.curve_secretkey = secret
        host = self._endpoint.removeprefix("tcp").removeprefix("://") or self._own_address()
        try:
            port = self._router.bind_to_random_port(f"tcp://{host}")
        except zmq.ZMQError as error:
            raise WorkerError(
                f"endpoint {self._endpoint!r} cannot be opened at {host}: {error}; give an "
                f'address of this host, such as endpoint="tcp://10.0.0.1"'
            ) from error
        keys = [public, worker_public, worker_secret]
        return f"tcp://{host}:{port}", [key.decode() for key in keys]

    def _own_address(self) -> str:
        """Return the address of this host that other hosts most likely use."""
        towards = None if self._hosts is None else address_towards(self._hosts.names[-1])
        if towards is not None:
            return towards
        try:
            return socket.gethostbyname(socket.gethostname())
        except OSError:
            return "127.0.0.1"

    def _wait_for_hellos(self, launch: Launch, interrupts: Interrupts) -> None:
        """Wait until every worker has sent Hello; notify the user if that takes long."""
        begun, notice = time.monotonic(), FIRST_NOTICE
        patience = _start_timeout(self.size)
        while len(self._hellos) < self.size:
            self._messages.wait(0.1)
            interrupts.deliver()
            exited, waited = launch.exit_code(), time.monotonic() - begun
            while (received := self._receive()) is not None:
                _, reply, _ = received
                if isinstance(reply, Failure):
                    raise exception_from(reply)
            missing = self.size - len(self._hellos)
            if missing and (exited is not None or waited > patience):
                raise self._not_started(launch, missing, patience)
            if missing and waited > notice:
                notice *= 2
                logger.warning(
                    "init: %d of %d workers have started after %.0f s; waits for %.0f s at most%s",
                    *(len(self._hellos), self.size, waited, patience, launch.printed_lines()),
                )

    def _not_started(self, launch: Launch, missing: int, patience: float) -> WorkerError:
        exited = launch.exit_code()
        reason = f" after {patience:.0f} s"
        if exited is not None:
            reason = f": the launcher ended with exit code {exited}"
            if "Bus error" in launch.output():
                reason += f" after a bus error, so {SHM_FOLDER} of a host may be full"
        where = "" if self._hosts is None else f" (on {self._missing_hosts()})"
        return WorkerError(
            f"init: {missing} of {self.size} workers did not start{where}{reason}; they were "
            f"started by: {shlex.join(self._launch_command)}; try that command with `hostname` "
            f"after it{launch.printed_lines()}"
        )

    def _missing_hosts(self) -> str:
        """Return the names of the hosts of which workers are missing."""
        assert self._hosts is not None
        of_worker = self._hosts.of_worker
        missing = {of_worker[rank] for rank in range(self.size) if rank not in self._hellos}
        return ", ".join([self._hosts.names[number] for number in sorted(missing)])

    def _receive(self) -> tuple[int, Reply, TileData | None] | None:
        """Return the next reply of a worker of this pool; drop and log any other message."""
        while (received := self._messages.next()) is not None:
            rank, frames, source = received
            try:
                if rank is None or len(frames) not in (1, 2):
                    raise ProtocolError("not from a worker of this pool, or not a reply's frames")
                reply = decode_reply(frames[0])
                if isinstance(reply, Hello):
                    self._register(reply, rank, source)
                elif isinstance(reply, Failure) and reply.rank != rank:
                    raise ProtocolError(f"worker {rank} sent a reply of worker {reply.rank}")
            except ProtocolError as error:
                logger.warning("dropped a message to the controller: %s", error)
                continue
            return rank, reply, frames[1] if len(frames) == 2 else None
        return None

    def _register(self, hello: Hello, rank: int, source: zmq.Frame | None) -> None:
        if hello.rank != rank or rank in self._hellos or source is None:
            raise ProtocolError(f"worker {rank} sent Hello as worker {hello.rank}, or twice")
        self._hellos[rank] = hello
        self._connections.add(source, rank)
        self._messages.use_direct_socket(rank)
        if hello.host == socket.gethostname():
            self._processes.add(rank, hello.pid, self.directory)

    def _lost(self, ended: list[int]) -> WorkerLost:
        """Return the error that names the worker that was lost first, and how."""
        launch = self._launch
        if launch is None:
            return WorkerLost("the workers of this pool have been stopped; start a new one")
        exited = launch.wait(REPORT_SECONDS)
        if not ended:  # the launcher may name a process that it has killed itself
            named = launch.dead_process()
            ended = [rank for rank, hello in self._hellos.items() if hello.pid == named]
        cause = launch.cause() if exited else None
        if exited:
            how = cause or f"the launcher ended with exit code {launch.exit_code()}"
        else:
            how = "it closed its connection"
            if self._endpoint != "ipc" and self._heartbeat_timeout is not None:
                how += f" or did not answer for {self._heartbeat_timeout:g} s"
        lost = self._worker_name(ended[0]) if ended else "a worker"
        remedy = self._memory_report(cause) or _CLOSED
        error = WorkerLost(f"{lost} was lost: {how}; {remedy}")
        if said := f"\n{launch.output()}".split("\n====")[0].strip():  # omits MPICH's report
            error.add_note(f"The workers' last output:\n{said}")
        return error

    def _worker_name(self, rank: int) -> str:
        hello = self._hellos[rank]
        return f"worker {rank} on {hello.host} (process {hello.pid})"

    def _memory_report(self, cause: str | None) -> str | None:
        """Return a report that a worker was killed for lack of memory; None without evidence.

        Evidence is available for this host only. `cause`: the launcher's description of the end.
        """
        killed = cause is not None and is_sigkill(cause)
        if cause is not None and not killed:
            return None
        evidence = self._watch.evidence(self._processes.pids.values())
        has_others = any(hello.host != socket.gethostname() for hello in self._hellos.values())
        if evidence is None and killed and has_others:
            evidence = "a process that is killed on another host is most often killed for memory"
        if evidence is None:
            return None
        return (
            f"{evidence}; {self.describe_memory_use()}; the pool is closed: start a new one, and "
            f"free arrays, divide them over more hosts, or set a smaller memory_limit, which "
            f"refuses what is too large"
        )


@final
class _SingleKeyPolicy:
    """Accepts only the key of this pool's workers."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def callback(self, domain: str, key: bytes) -> bool:
        """Return whether a client with this public key may connect."""
        return secrets.compare_digest(key, self._key)


def _start_timeout(workers: int) -> float:
    """Return the start timeout in seconds: longer if workers share processors."""
    processors = processor_count()
    return START_SECONDS + SHARED_START_SECONDS * max(0, workers - processors) / processors


def _new_directory() -> str:
    """Create a directory that only the owner can enter, with a path short enough for a socket."""
    directory = tempfile.mkdtemp(prefix=PREFIX)
    if len(directory) > _IPC_PATH_LIMIT - len("/controller"):
        os.rmdir(directory)
        directory = tempfile.mkdtemp(prefix=PREFIX, dir="/tmp")
    return directory
