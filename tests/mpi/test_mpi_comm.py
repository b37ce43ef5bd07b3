"""Communicators whose ranks are MPI processes: the same bodies as on threads, and remaining
files."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import comm_bodies

MPIEXEC = Path(sys.executable).parent / "mpiexec"
SECONDS = 200

pytestmark = pytest.mark.skipif(not MPIEXEC.exists(), reason="no mpiexec next to python")

KILLED = """
import os, re, signal, sys, time
import torch
from magmath.comm.mpi import world_communicator
comm = world_communicator()
memory = comm.shared_window(1 << 20)
memory[comm.rank].fill_(1)
comm.allreduce(torch.ones(1 << 18))
comm.barrier()
files = set(re.findall(r"/\\S*shm/.*|/memfd:.*|/tmp/.*", open("/proc/self/maps").read()))
print("\\n".join(f"FILE {name}" for name in files), flush=True)
comm.barrier()
if comm.rank == comm.size - 1:
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(60)
"""

FORGOTTEN = """
from magmath.comm.mpi import world_communicator
comm = world_communicator()
if comm.rank == 1:
    raise ValueError("mine")
comm.barrier()
"""


LOCAL_SHELL = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
shift
exec sh -c "$*"
"""
"""Stands for ssh: starts the processes of another host on this one."""


def mpiexec(count: int, *command: str, options: tuple[str, ...] = ()) -> tuple[int, str]:
    """Run python under mpiexec; its exit code and output. Fails the test where it takes long."""
    process = subprocess.Popen(
        [str(MPIEXEC), *options, "-n", str(count), sys.executable, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        pytest.fail(f"mpiexec did not end within {SECONDS} s; its output:\n{output}")
    return process.returncode, output


def test_communicator_bodies_on_mpi_processes() -> None:
    """On four processes, and on the first one, two and three of them."""
    code, output = mpiexec(4, comm_bodies.__file__, "4", "3", "2", "1")
    assert code == 0, output
    passed = set(re.findall(r"^passed (\d \w+ \w+)$", output, re.MULTILINE))
    waking = ("abort_wakes", "failed_errand_wakes")
    for size in (1, 2, 3, 4):
        extra = {f"{size} {shares} {name}" for shares in (True, False) for name in waking}
        extra.add(f"{size} True lost_window")
        assert {name for name in passed if name.startswith(f"{size} ")} == extra | {
            f"{size} {shares} {body.__name__}"
            for shares in (True, False)
            for body in comm_bodies.bodies(shares)
        }


def test_bodies_on_two_hosts(tmp_path: Path) -> None:
    """For MPI the host is the name in the list, so one machine can stand for two."""
    shell = tmp_path / "shell"
    shell.write_text(LOCAL_SHELL)
    shell.chmod(0o700)
    options = ("-launcher", "ssh", "-launcher-exec", str(shell), "-localhost", "127.0.0.1")
    options += ("-hosts", "127.0.0.2:1,127.0.0.3:2")
    code, output = mpiexec(3, comm_bodies.__file__, options=options)
    assert code == 0, output
    passed = set(re.findall(r"^passed hosts (\w+)$", output, re.MULTILINE))
    assert passed == {body.__name__ for body in comm_bodies.bodies(False)} | {"abort_wakes"}


def test_nothing_stays_after_a_kill() -> None:
    code, output = mpiexec(2, "-c", KILLED)
    assert code != 0
    files = set(re.findall(r"^FILE (.*)$", output, re.MULTILINE))
    assert any("/memfd:magmath" in name for name in files), output
    made = [name for name in files if not name.startswith((sys.prefix, str(Path.cwd())))]
    assert [name for name in made if Path(name).exists()] == []


def test_a_rank_that_fails_does_not_leave_the_others_waiting() -> None:
    code, output = mpiexec(3, "-c", FORGOTTEN)
    assert code != 0
    assert "ValueError: mine" in output
