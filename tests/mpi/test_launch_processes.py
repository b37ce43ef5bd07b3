"""The start of worker processes: within jobs of schedulers, by any launcher, and its failures."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from magmath.core import python_processes
from magmath.core.python_processes import search_path
from magmath.errors import OptionError, WorkerError
from magmath.layout import Layout
from magmath.runtime import Pool, process
from magmath.runtime.launch import launcher_command, worker_environment
from magmath.runtime.transport import processes
from magmath.runtime.transport.processes import ProcessTransport
from magmath.runtime.transport_interface import WorkerOptions

FAKE_WORKER = [sys.executable, str(Path(__file__).with_name("fake_worker.py"))]

JOBS = {
    "slurm": {
        "SLURM_JOB_ID": "17",
        "SLURM_JOBID": "17",
        "SLURM_NODELIST": "other[1-3]",
        "SLURM_JOB_NODELIST": "other[1-3]",
        "SLURM_NNODES": "3",
        "SLURM_NTASKS": "12",
        "SLURM_TASKS_PER_NODE": "4(x3)",
        "SLURM_PROCID": "0",
    },
    "pbs": {"PBS_JOBID": "1", "PBS_ENVIRONMENT": "PBS_BATCH", "PBS_NODEFILE": "/nonexistent"},
    "lsf": {"LSB_JOBID": "1", "LSB_MCPU_HOSTS": "other1 2", "LSF_BINDIR": "/nonexistent"},
    "cobalt": {"COBALT_JOBID": "1", "COBALT_NODEFILE": "/nonexistent"},
    "grid engine": {"PE_HOSTFILE": "/nonexistent", "SGE_ROOT": "/nonexistent", "JOB_ID": "1"},
    "mpich": {"PMI_RANK": "0", "PMI_SIZE": "4", "PMI_FD": "99", "HYDRA_HOST_FILE": "/nonexistent"},
    "open mpi": {
        "PMIX_NAMESPACE": "prterun",
        "PMIX_RANK": "1",
        "OMPI_COMM_WORLD_RANK": "1",
        "OMPI_COMM_WORLD_SIZE": "2",
    },
}
"""What jobs leave in the environment of a script that runs within them."""


def open_pool(workers: int, **options: Any) -> Pool:
    """A pool of worker processes."""
    options.setdefault("worker_command", FAKE_WORKER)
    return Pool(ProcessTransport(workers, WorkerOptions("cpu", 1), **options))


def check_works(pool: Pool) -> None:
    array = pool.put(torch.arange(6), Layout.even((6,), pool.mesh, 0))
    assert torch.equal(pool.get(array), torch.arange(6))


# Jobs.


@pytest.mark.parametrize("job", JOBS)
def test_nothing_of_a_job_reaches_workers_of_this_host(
    monkeypatch: pytest.MonkeyPatch, job: str
) -> None:
    for name, value in JOBS[job].items():
        monkeypatch.setenv(name, value)
    environment = worker_environment(1, {"SECRET": "x"}, on_this_host=True)
    left = environment.keys() & JOBS[job].keys()
    assert left <= {"JOB_ID"}
    assert environment["HYDRA_LAUNCHER"] == "fork"
    assert environment["SECRET"] == "x"
    assert environment["PATH"] == os.environ["PATH"]


def test_launchers_of_several_hosts_see_the_job_and_no_rank(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {**JOBS["slurm"], **JOBS["open mpi"], "PMI_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    environment = worker_environment(1, {}, on_this_host=False)
    assert environment["SLURM_JOB_ID"] == "17"
    assert "HYDRA_LAUNCHER" not in environment
    assert not [name for name in environment if name.startswith(("PMI", "OMPI_COMM"))]


def test_workers_of_this_host_start_within_any_job(
    monkeypatch: pytest.MonkeyPatch, no_leftovers: None
) -> None:
    for job in JOBS.values():
        for name, value in job.items():
            monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # no srun, no mpiexec
    pool = open_pool(2)
    check_works(pool)
    pool.close()


# Modules.


def test_workers_import_nothing_from_the_current_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "queue.py").write_text("raise SystemExit('a file of the current folder')")
    monkeypatch.chdir(tmp_path)
    environment = worker_environment(1, {}, on_this_host=True)
    command = [*processes.WORKER_COMMAND, "--help"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_only_folders_that_python_does_not_search_precede_its_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = python_processes._PACKAGE_ROOT
    monkeypatch.setattr("site.getsitepackages", list)
    assert search_path({}) == {"PYTHONPATH": root}
    assert search_path({"PYTHONPATH": "/a:/b"}) == {"PYTHONPATH": f"{root}:/a:/b"}
    assert search_path({"PYTHONPATH": f"/a:{root}/"}) == {"PYTHONPATH": f"/a:{root}/"}
    monkeypatch.setattr("site.getsitepackages", lambda: ["/x", root])
    assert search_path({}) == {"PYTHONPATH": ""}
    assert search_path({"PYTHONPATH": "/a"}) == {"PYTHONPATH": "/a"}


# Launchers.


@pytest.mark.parametrize("launcher", ["mpiexec -n {n} -l", ["mpirun", "-n", "{n}", "-l"]])
def test_a_command_finds_the_installed_launcher(
    monkeypatch: pytest.MonkeyPatch, launcher: str | list[str]
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    program, *options = launcher_command(launcher, 3)
    assert os.access(program, os.X_OK)
    assert options == ["-n", "3", "-l"]


def test_a_command_prefers_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = tmp_path / "mpiexec"
    own.write_text("#!/bin/sh\n")
    own.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert launcher_command("mpiexec -n {n}", 3) == ["mpiexec", "-n", "3"]


def test_a_launcher_of_ones_own_starts_the_workers(
    monkeypatch: pytest.MonkeyPatch, no_leftovers: None
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    pool = open_pool(2, launcher="mpiexec -n {n}", endpoint="ipc")
    check_works(pool)
    pool.close()


@pytest.mark.parametrize(
    ("launcher", "said"),
    [
        ("mpiexec -n 2", r"launcher must be .*\{n\}"),
        ("mpiexec '-n {n}", r"launcher must be .*\(no closing quotation\)"),
        ("{n}", "launcher must be"),
        ("", "launcher must be"),
        ([], "launcher must be"),
        (["mpiexec", 3, "{n}"], "launcher must be"),
        (7, r"launcher must be .*was given 7$"),
        ("no-such-launcher {n}", "'no-such-launcher' was found neither on the PATH nor.*install"),
        ("/no/such/launcher {n}", "'/no/such/launcher': No such file.*install"),
        ("false {n}", "2 of 2 workers did not start: the launcher ended with exit code 1"),
        (
            "sh -c 'echo no licence >&2; exit 3' {n}",
            r"exit code 3; (?s:.*)The launcher and the workers printed:\n  no licence$",
        ),
    ],
)
def test_launchers_that_cannot_start_workers_say_why(
    no_leftovers: None, launcher: Any, said: str
) -> None:
    begun = time.monotonic()
    kind = OptionError if "must be" in said else WorkerError
    with pytest.raises(kind, match=f"^init: .*{said}"):
        open_pool(2, launcher=launcher)
    assert time.monotonic() - begun < processes.START_SECONDS / 2, "it waits for nothing"


def test_what_workers_print_is_shown(no_leftovers: None) -> None:
    command = [sys.executable, "-c", "raise SystemExit('no way')"]
    with pytest.raises(WorkerError, match="did not start(?s:.*)  no way"):
        open_pool(2, worker_command=command)


def test_an_address_that_is_not_this_hosts(no_leftovers: None) -> None:
    with pytest.raises(WorkerError, match="address of this host"):
        open_pool(2, endpoint="tcp://1.2.3.4")


def test_a_launcher_that_hangs_is_told_of_and_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, no_leftovers: None
) -> None:
    monkeypatch.setattr(processes, "_start_timeout", lambda workers: 2.0)
    monkeypatch.setattr(processes, "FIRST_NOTICE", 0.5)
    launcher = "sh -c 'echo waiting for a licence; sleep 600; true' {n}"
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(WorkerError, match="after 2 s;(?s:.*)  waiting for a licence"),
    ):
        open_pool(2, launcher=launcher)
    notices = [record.getMessage() for record in caplog.records]
    assert len(notices) == 2, "after 0.5 s and 1 s"
    for notice in notices:
        assert "0 of 2 workers have started" in notice
        assert "waiting for a licence" in notice


def test_ranks_of_another_mpi_are_told_apart() -> None:
    """A launcher whose MPI is not that of mpi4py starts each worker as the only one of its
    world."""
    process._check_size(2, 2)
    with pytest.raises(WorkerError, match=r"one of 1 MPI ranks, not of 2: .*another MPI"):
        process._check_size(1, 2)


# Time.


def test_more_time_is_given_where_workers_share_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "processor_count", lambda: 2)
    times = [processes._start_timeout(workers) for workers in (1, 2, 4, 64)]
    assert times[:2] == [processes.START_SECONDS] * 2
    assert times == sorted(times)
    assert times[3] > 64 / 2 * 3.0 * 2, "twice of what 64 workers need on two processors"


def test_ctrl_c_while_workers_start_leaves_nothing_behind(no_leftovers: None) -> None:
    key = threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT))
    key.start()
    with pytest.raises(KeyboardInterrupt):
        open_pool(4)  # which takes longer
    key.join()
