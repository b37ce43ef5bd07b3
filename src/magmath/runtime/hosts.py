"""The list of hosts of a pool: which hosts, how many workers on each, and whether they answer.

Commands are started on hosts by a remote shell: ssh, or the program that the environment variable
MAGMATH_REMOTE_SHELL names, which is called as ssh is.
"""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Final, final

from magmath.core.options import REMOTE_SHELL
from magmath.errors import OptionError, WorkerError

ANSWER_SECONDS: Final = 10.0
"""Seconds in which every host must have answered, before workers are started."""

_SSH_OPTIONS: Final = ("-o", "BatchMode=yes", "-o", f"ConnectTimeout={ANSWER_SECONDS:.0f}")
_FORM: Final = 'hosts must be names, each with its number of workers or without, as ["a:2", "b:2"]'


@final
@dataclass(frozen=True)
class HostList:
    """Names of hosts, in order, and the number of workers on each. Ranks are numbered host by
    host."""

    names: tuple[str, ...]
    counts: tuple[int, ...]

    @property
    def workers(self) -> int:
        """The number of workers on all hosts."""
        return sum(self.counts)

    @property
    def of_worker(self) -> list[int]:
        """The number of the host of each worker."""
        return [number for number, count in enumerate(self.counts) for _ in range(count)]

    def __str__(self) -> str:
        pairs = zip(self.names, self.counts, strict=True)
        return ",".join([f"{name}:{count}" for name, count in pairs])


def parse_hosts(hosts: Sequence[str] | str, workers: int = 0) -> HostList:
    """Return the list of hosts for a number of workers; 0 stands for the sum of the given counts.

    `hosts`: "name" or "name:count" of each host, in a sequence or separated by commas. Hosts
    without a count share the remaining workers evenly. Raises OptionError if the list is malformed
    or does not match `workers`.
    """
    words: object = hosts.split(",") if isinstance(hosts, str) else hosts
    if not isinstance(words, Sequence) or not words or not all(isinstance(x, str) for x in words):
        raise OptionError(f"init: {_FORM}, not {hosts!r}")
    names, counts = zip(*[_parsed(word.strip()) for word in words], strict=True)
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise OptionError(f"init: hosts names {', '.join(repeated)} more than once; add the counts")
    counted = sum(count or 0 for count in counts)
    open_ended = counts.count(None)
    total = workers or counted + open_ended
    remaining = total - counted
    if remaining < open_ended or (remaining and not open_ended):
        raise OptionError(
            f"init: hosts {','.join(words)} have room for {counted + open_ended} workers"
            f"{' or more' * bool(open_ended)}, workers={workers}; make the numbers equal"
        )
    shares = [remaining // open_ended + (i < remaining % open_ended) for i in range(open_ended)]
    return HostList(names, tuple([shares.pop(0) if n is None else n for n in counts]))


def _parsed(word: str) -> tuple[str, int | None]:
    name, colon, count = word.partition(":")
    fits = name and not name.startswith("-") and not set(name) & set(" \t/,'\"")
    if not fits or (colon and not (count.isdecimal() and int(count) > 0)):
        raise OptionError(f"init: {_FORM}; {word!r} is not of this form")
    return name, int(count) if colon else None


def remote_shell() -> str:
    """Return the program that starts a command on another host, called as `ssh -x HOST COMMAND`."""
    return REMOTE_SHELL.read()


def check_hosts(hosts: HostList) -> None:
    """Raise WorkerError if a host does not answer within `ANSWER_SECONDS`, or cannot start Python
    from the path of this process. All hosts are asked concurrently."""
    remote = [name for name in hosts.names if not is_this_host(name)]
    calls = [_Call(name) for name in remote]
    try:
        deadline = time.monotonic() + ANSWER_SECONDS
        failures = [failure for call in calls if (failure := call.failure(deadline)) is not None]
    finally:
        for call in calls:
            call.end()
    if failures:
        raise WorkerError(
            f"init: {len(failures)} of {len(hosts.names)} hosts cannot start workers: "
            f"{'; '.join(failures)}; check each with `{remote_shell()} HOST {sys.executable} "
            f"--version`, which must need no password"
        )


def is_this_host(name: str) -> bool:
    """Return True for names by which mpiexec starts processes without a remote shell."""
    return name in ("localhost", "127.0.0.1", socket.gethostname())


def address_towards(host: str) -> str | None:
    """Return the address of this host from which another one is reached; None if its name is
    unknown here. Nothing is sent."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, 9))
            address: str = probe.getsockname()[0]
            return address
    except OSError:
        return None


@final
class _Call:
    """A command on a host that tests whether the host can start workers."""

    def __init__(self, name: str) -> None:
        self._name = name
        shell = remote_shell()
        options = _SSH_OPTIONS if os.path.basename(shell) == "ssh" else ()
        command = [shell, *options, "-x", name, f"test -x {shlex.quote(sys.executable)}"]
        self._output: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed by `end`)
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            self._output.close()
            raise WorkerError(
                f"init: the remote shell {shell!r} could not be started: {error.strerror}; "
                f"install ssh, or name another program in {REMOTE_SHELL}, without arguments: a "
                f"script may add them"
            ) from error

    def failure(self, deadline: float) -> str | None:
        """Return what prevents workers on this host; None if nothing does."""
        try:
            code = self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return f"{self._name} did not answer within {ANSWER_SECONDS:.0f} s"
        if code == 0:
            return None
        self._output.seek(0)
        said = self._output.read().strip().splitlines()
        if said:
            return f"{self._name}: {said[-1]}"
        if code == 1:
            return f"{self._name} has no program {sys.executable}: install the same environment"
        return f"{self._name}: the remote shell ended with exit code {code}"

    def end(self) -> None:
        """End the command."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, 9)
            self._process.wait()
        self._output.close()
