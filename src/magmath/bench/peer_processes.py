"""The processes of the measured systems, controlled by the runner.

A system is one or several processes, each with a Unix socket to the runner (the other end is
`peers/service.py`). They share one session, so that the whole system can be stopped.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, final

from magmath.bench.case import Case, System
from magmath.core.resources import processor_count
from magmath.errors import MagmathError

START_SECONDS = 120.0
REQUEST_SECONDS = 1800.0
STOP_SECONDS = 10.0
_BOOTSTRAP = Path(__file__).with_name("peers") / "bootstrap.py"
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")

Record = dict[str, Any]


@final
class PeerNotInstalled(MagmathError):
    """A library that a system needs is not installed."""


@final
class SystemFailed(MagmathError):
    """A system could not start, raised an error, or died."""


@final
class SystemProcesses:
    """A running system: `_ask` sends a request to each process and merges the replies."""

    def __init__(self, system: System, python: str, device: str = "cpu") -> None:
        self.system = system
        self._python, self._device = python, device
        self.versions: dict[str, str] = {}
        self._children: list[subprocess.Popen[bytes]] = []
        self._channels: list[_Channel] = []
        self._folder: TemporaryDirectory[str]
        self._log: Path
        self._start()

    def prepare(self, case: Case) -> Record:
        """Prepare the system for `case`; return its record. A system that failed in an
        earlier case is started again."""
        if not self._channels:
            self._start()
        return self._ask({"do": "prepare", "case": {**case.parameters, **self.system.settings}})

    def round(self) -> float:
        """Return the seconds of one round, of the slowest process."""
        return float(self._ask({"do": "round"})["seconds"])

    def finish(self) -> Record:
        """Return the results of the system, for comparison with others."""
        return self._ask({"do": "finish"})

    def peak_bytes(self, case: Case, variant: str) -> int:
        """Return the peak of resident memory of new processes of the system, which compute `case`
        in this variant."""
        fresh = SystemProcesses(self.system, self._python, self._device)
        try:
            parameters = {**case.parameters, **self.system.settings, "variant": variant}
            answer = fresh._ask({"do": "measure memory", "case": parameters})
        finally:
            fresh.stop()
        return int(answer["peak_bytes"])

    def stop(self, patience: float = STOP_SECONDS) -> None:
        """End every process of the system, by force after `patience` seconds. Idempotent."""
        for channel in self._channels:
            channel.close()
        deadline = time.monotonic() + patience
        for child in self._children:
            try:
                child.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        self._children.clear()
        self._channels.clear()
        self._folder.cleanup()

    def _start(self) -> None:
        # A socket's path must be short, whatever the user's TMPDIR is.
        self._folder = TemporaryDirectory(prefix="magmath-bench-", dir="/tmp")
        self._log = Path(self._folder.name, "output")
        try:
            self._connect()
        except BaseException:
            self.stop()
            raise

    def _connect(self) -> None:
        """Start the processes, and accept their connections."""
        address = str(Path(self._folder.name, "socket"))
        with socket.socket(socket.AF_UNIX) as listener, self._log.open("wb") as log:
            listener.bind(address)
            listener.listen(self.system.processes)
            listener.settimeout(0.2)
            for command, environment in self._commands(address):
                self._children.append(
                    subprocess.Popen(
                        command,
                        env=environment,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )
                )
            for _ in range(self.system.processes):
                self._channels.append(_Channel(self._accept(listener)))
        hellos = [self._receive(channel) for channel in self._channels]
        order = sorted(range(len(hellos)), key=lambda i: int(hellos[i]["rank"]))
        self._channels = [self._channels[i] for i in order]
        self.versions = hellos[order[0]]["versions"]

    def _commands(self, address: str) -> list[tuple[list[str], dict[str, str]]]:
        """Return the commands to start, each with its environment."""
        if self.system.peer:
            start = [self._python, "-P", str(_BOOTSTRAP)]
        else:
            start = [self._python, "-m", "magmath.bench.peers.service"]
        service = [*start, self.system.factory, address, str(processor_count())]
        if self.system.launcher == "mpiexec":
            command = [_mpiexec(), "-n", str(self.system.processes), *service]
            return [(command, self._environment())]
        return [
            (service, self._environment() | {"MAGMATH_BENCH_RANK": str(rank)})
            for rank in range(self.system.processes)
        ]

    def _environment(self) -> dict[str, str]:
        """Return this process's environment with that of the system; for a peer with its share of
        the threads."""
        environment = os.environ | self.system.environment
        if self.system.peer:
            share = str(max(1, processor_count() // self.system.processes))
            environment |= dict.fromkeys(_THREAD_VARIABLES, share)
        environment["JAX_PLATFORMS"] = self._device
        environment["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # the systems share the GPU
        environment["MAGMATH_BENCH_SIZE"] = str(self.system.processes)
        environment["MAGMATH_BENCH_MEETING"] = str(Path(self._folder.name, "meeting"))
        return environment

    def _accept(self, listener: socket.socket) -> socket.socket:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            try:
                connection, _ = listener.accept()
                return connection
            except TimeoutError:
                if any(child.poll() is not None for child in self._children):
                    break
        raise SystemFailed(f"{self.system.name} did not start:\n{self._output()}")

    def _ask(self, request: Record) -> Record:
        for channel in self._channels:
            channel.send(request)
        try:
            replies = self._receive_all()
        except SystemFailed:
            self.stop()  # other processes may wait forever for the failed one
            raise
        merged = dict(replies[0])
        if "seconds" in merged:
            merged["seconds"] = max(reply["seconds"] for reply in replies)
        if "peak_bytes" in merged:
            merged["peak_bytes"] = sum(reply["peak_bytes"] for reply in replies)
        return merged

    def _receive_all(self) -> list[Record]:
        """Return the reply of each process; raise as soon as one reports an error."""
        answers: dict[int, Record] = {}
        with selectors.DefaultSelector() as selector:
            for rank, channel in enumerate(self._channels):
                selector.register(channel.connection, selectors.EVENT_READ, rank)
            while len(answers) < len(self._channels):
                ready = selector.select(REQUEST_SECONDS)
                if not ready:
                    raise SystemFailed(f"{self.system.name} did not answer:\n{self._output()}")
                for key, _ in ready:
                    answers[key.data] = self._receive(self._channels[key.data])
                    selector.unregister(key.fileobj)
        return [answers[rank] for rank in range(len(answers))]

    def _receive(self, channel: _Channel) -> Record:
        reply = channel.receive()
        if reply is None:
            raise SystemFailed(f"{self.system.name} died:\n{self._output()}")
        if "absent" in reply:
            raise PeerNotInstalled(str(reply["absent"]))
        if "error" in reply:
            raise SystemFailed(f"{reply['error']}\n{reply['traceback']}")
        answer: Record = reply["ok"]
        return answer

    def _output(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]


@final
class _Channel:
    """Lines of JSON over a socket."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(REQUEST_SECONDS)
        self.connection = connection
        self._lines = connection.makefile("rw", encoding="utf-8")

    def send(self, request: Record) -> None:
        try:
            self._lines.write(json.dumps(request) + "\n")
            self._lines.flush()
        except OSError:
            return  # the process has ended, which `receive` reports

    def receive(self) -> Record | None:
        """Return the next reply; None if the process has ended or timed out."""
        try:
            line = self._lines.readline()
        except OSError:
            return None
        return json.loads(line) if line else None

    def close(self) -> None:
        try:
            self._lines.close()
        except OSError:
            pass
        finally:
            self.connection.close()


def _mpiexec() -> str:
    """Return the mpiexec next to this Python, or on the path."""
    neighbour = Path(sys.executable).with_name("mpiexec")
    mpiexec = str(neighbour) if neighbour.is_file() else shutil.which("mpiexec")
    if mpiexec is None:
        raise PeerNotInstalled("no mpiexec next to this Python or on the PATH")
    return mpiexec
