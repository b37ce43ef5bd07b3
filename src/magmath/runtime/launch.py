"""The launcher of worker processes: command line, environment, termination.

The launcher (by default `mpiexec` of the mpich wheel) runs in its own session, so that Ctrl-C in
the terminal reaches the controller only. Its output and that of the workers goes to a file in the
pool's directory, which error messages quote.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Final, final

from magmath.core import cache_dir
from magmath.core.python_processes import search_path
from magmath.errors import OptionError, WorkerError
from magmath.runtime.hosts import HostList, address_towards, remote_shell

_THREAD_VARIABLES: Final = (
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS",
)  # fmt: skip
_PROCESS_PREFIXES: Final = ("PMI_", "PMIX_", "OMPI_COMM_WORLD_", "PRTE_", "HYDI_", "MPI_LOCAL")
"""Prefixes of variables by which MPI launchers set the rank of a process. Workers must not inherit
those of this process."""
_JOB_PREFIXES: Final = (
    "SLURM", "PBS_", "LSB_", "LSF_", "COBALT_", "LOADL", "PE_HOSTFILE", "SGE_", "FLUX_", "PALS_",
    "HYDRA_", "MPIEXEC_", "OMPI_",
)  # fmt: skip
"""Prefixes of variables by which schedulers describe a job and its hosts to launchers."""
_THIS_HOST: Final = {"HYDRA_LAUNCHER": "fork", "HYDRA_RMK": "user"}
"""Options with which MPICH's mpiexec starts processes on this host, without a scheduler."""
_OUTPUT_SHOWN: Final = 4_000
_LINES_SHOWN: Final = 10  # lines of the launcher's output in an error
_TERMINATION_TIME: Final = 2.0

_CAUSES: Final = (
    re.compile(r"^magmath worker \d+: (.+)", re.MULTILINE),
    re.compile(r"APPLICATION TERMINATED WITH THE EXIT STRING: (.+)"),  # MPICH
    re.compile(r"(exited on signal \d+ \([^)]*\))"),  # Open MPI
    re.compile(r"srun: error: (.+)"),
)
_NAMED_DEAD: Final = re.compile(r"PID (\d+) RUNNING AT")  # MPICH


def launcher_command(launcher: str | Sequence[str], workers: int) -> list[str]:
    """Return the command that starts `workers` copies of the appended command.

    `launcher`: "mpiexec", "srun", or a custom command, as a string or a list, in which {n} stands
    for the number of workers. Raises WorkerError if it is missing, OptionError if it is malformed.
    """
    if launcher == "mpiexec":
        return [*_mpiexec(), "-n", str(workers)]
    words = ["srun", "--ntasks={n}"] if launcher == "srun" else _split_command(launcher)
    program, *options = [word.replace("{n}", str(workers)) for word in words]
    return [_resolve_program(program), *options]


def check_launcher(launcher: str | Sequence[str]) -> None:
    """Raise OptionError if a launcher is neither a known name nor a command with {n}."""
    if launcher not in ("mpiexec", "srun", "threads"):
        _split_command(launcher)


def hosts_command(hosts: HostList) -> list[str]:
    """Return the command of MPICH's mpiexec that starts copies of the appended command on hosts, by
    the remote shell.

    Raises OptionError if the installed mpiexec is another one.
    """
    path, *arguments = _mpiexec()
    if arguments:
        raise OptionError(
            f"init: hosts needs the mpiexec of MPICH, and {path} is that of Open MPI; install the "
            f'package mpich, or use launcher="mpirun -n {{n}} --host {hosts}"'
        )
    command = [path, "-launcher", "ssh", "-launcher-exec", remote_shell(), "-hosts", str(hosts)]
    own_address = address_towards(hosts.names[-1])
    if own_address is not None:  # otherwise the hosts must know the name of this host
        command += ["-localhost", own_address]
    return [*command, "-n", str(hosts.workers)]


def _split_command(launcher: str | Sequence[str]) -> list[str]:
    """Split and check a user's command."""
    words, reason = list[str](), ""
    try:
        if isinstance(launcher, str):
            words = shlex.split(launcher)
        elif isinstance(launcher, Sequence):
            words = list(launcher)
    except ValueError as error:  # an unclosed quote
        reason = f" ({error})".lower()
    fits = all(isinstance(word, str) for word in words) and "{n}" in "".join(words[1:])
    if not fits:
        raise OptionError(
            f'init: launcher must be "mpiexec", "srun", "threads", or a command in which {{n}} '
            f'stands for the number of workers, such as "mpiexec -n {{n}} -hosts a,b", was '
            f"given {launcher!r}{reason}"
        )
    return words


def _resolve_program(program: str) -> str:
    """Return the name of a program on the PATH, or the path of one in this Python environment."""
    if "/" in program or shutil.which(program) is not None:
        return program
    installed = _find_installed(program)
    if installed is None:
        raise WorkerError(
            f"init: the launcher {program!r} was found neither on the PATH nor next to Python; "
            f'install it, give its path, or leave launcher="mpiexec"'
        )
    return installed


@lru_cache(maxsize=1)
def _mpiexec() -> tuple[str, ...]:
    """Return the mpiexec of this Python environment or of the system, with required options."""
    path = _find_installed("mpiexec") or shutil.which("mpiexec")
    if path is None:
        raise WorkerError(
            'init: launcher "mpiexec" was not found next to Python or on the PATH; install the '
            "package mpich, or name another launcher"
        )
    version = subprocess.run(
        [path, "--version"], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    if "Open MPI" in version.stdout or "OpenRTE" in version.stdout:
        return path, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"
    return (path,)


def _find_installed(program: str) -> str | None:
    """Return the path of a program next to Python, or in the package mpich; None if missing."""
    neighbour = Path(sys.executable).parent / program
    if neighbour.exists():
        return str(neighbour)
    try:
        files = importlib.metadata.distribution("mpich").files or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == program:
            # With `pip install --target`, the record names a place outside, where another may be.
            root = file.dist.locate_file("")
            for path in (Path(str(file.locate())), Path(str(root)) / "bin" / program):
                if path.exists() and path.stat().st_size == file.size:
                    return str(path)
    return None


def worker_environment(
    threads: int | None, secrets: dict[str, str], *, on_this_host: bool
) -> dict[str, str]:
    """Return the environment of launcher and workers.

    It is this environment with the thread counts divided and this magmath on the path, without the
    variables of an MPI launcher and, for workers `on_this_host`, of the job of this process."""
    foreign = (*_PROCESS_PREFIXES, *_JOB_PREFIXES) if on_this_host else _PROCESS_PREFIXES
    environment = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
    environment |= cache_dir.child_environment() | secrets
    if on_this_host:
        environment |= _THIS_HOST
    if threads is not None:
        environment |= dict.fromkeys(_THREAD_VARIABLES, str(threads))
    return environment | search_path(environment)


@final
class Launch:
    """A running launcher, and its output."""

    def __init__(self, command: Sequence[str], environment: dict[str, str], directory: str) -> None:
        self._log = os.path.join(directory, "output")
        try:
            with open(self._log, "wb") as log:
                self._process = subprocess.Popen(
                    command,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as error:
            raise WorkerError(
                f"init: the launcher could not be started: {command[0]!r}: {error.strerror}; "
                f'install it, give its path, or leave launcher="mpiexec"'
            ) from error

    def exit_code(self) -> int | None:
        """Return the launcher's exit code; None while it runs."""
        return self._process.poll()

    def wait(self, seconds: float) -> bool:
        """Wait for the launcher; return whether it has ended within this time."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def output(self) -> str:
        """Return the end of the output of the launcher and the workers."""
        try:
            with open(self._log, "rb") as log:
                log.seek(0, os.SEEK_END)
                log.seek(max(0, log.tell() - _OUTPUT_SHOWN))
                return log.read().decode(errors="replace").strip()
        except OSError:
            return ""

    def printed_lines(self) -> str:
        """Return the last lines of `output`, indented, with an introduction; or an empty string."""
        lines = self.output().splitlines()[-_LINES_SHOWN:]
        return "\n  ".join(["\nThe launcher and the workers printed:", *lines]) if lines else ""

    def cause(self) -> str | None:
        """Return the launcher's description of how the workers ended; None if it has none."""
        output = self.output()
        for pattern in _CAUSES:
            if match := pattern.search(output):
                return match[1].strip()
        return None

    def dead_process(self) -> int | None:
        """Return the process that the launcher reports as ended, or None."""
        match = _NAMED_DEAD.search(self.output())
        return int(match[1]) if match else None

    def kill(self) -> None:
        """Terminate the launcher, which ends its workers, and then kill its whole process group;
        nothing if it has ended."""
        if self._process.poll() is None:
            self._process.terminate()
            self.wait(_TERMINATION_TIME)
            with suppress(ProcessLookupError):  # the process group has ended
                os.killpg(self._process.pid, signal.SIGKILL)
            self.wait(_TERMINATION_TIME)
