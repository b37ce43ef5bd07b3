"""Pools of processes with a small /dev/shm, as in containers: correct results, and a warning."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from faults.scripts import check, may_mount, run, with_tmpfs
from magmath.errors import WorkerError
from magmath.runtime import launch, mpich_buffers

NEEDS_MOUNT = pytest.mark.skipif(
    not may_mount(), reason="this process may not mount file systems (unshare -m)"
)
LARGER = """
import sys
import numpy as np
import magmath as mm

with mm.init(workers=int(sys.argv[1]), device="cpu"):
    numbers = np.random.default_rng(0).standard_normal((1500, 1600))
    x = mm.asarray(numbers)
    np.testing.assert_allclose((x @ x.T).numpy(), numbers @ numbers.T, atol=1e-9)
    np.testing.assert_allclose(mm.sum(mm.exp(x), axis=0).numpy(), np.exp(numbers).sum(0))
    copies = [x + i for i in range(4)]
    for i, copy in enumerate(copies):
        moved = mm.asarray(copy, layout=mm.Layout.split(1))
        np.testing.assert_array_equal(moved.numpy(), numbers + i)
print("right")
"""


@NEEDS_MOUNT
@pytest.mark.parametrize(("size", "workers"), [("64k", 3), ("16m", 2)])
def test_pools_compute_what_is_larger_than_the_folder(
    size: str, workers: int, tmp_path: Path
) -> None:
    command = with_tmpfs("/dev/shm", size)
    done = run(workers, *command, program=LARGER, folder=tmp_path)
    check(done, "can be written to /dev/shm, and MPI's usual buffers")


@NEEDS_MOUNT
def test_a_folder_in_which_nothing_fits_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    done = run(2, *with_tmpfs("/dev/shm", "8k"), folder=tmp_path)
    assert done.returncode == 1
    assert re.search(
        r"WorkerError: init: MPI needs \d+ kB in /dev/shm for 2 workers, and 8", done.stderr
    )
    assert "--shm-size" in done.stderr


@NEEDS_MOUNT
def test_one_worker_of_the_own_process_needs_none(tmp_path: Path) -> None:
    check(run(0, *with_tmpfs("/dev/shm", "4k"), folder=tmp_path))


SIZE = """
import os, re, sys
import mpi4py
from mpi4py import MPI
MPI.COMM_WORLD.Barrier()
name = re.search(r"/dev/shm/(mpich_shm_\\w+)", open("/proc/self/maps").read())[1]
size = os.stat(f"/dev/shm/{name}").st_size
MPI.COMM_WORLD.Barrier()
if MPI.COMM_WORLD.rank == 0:
    print(size)
"""


@pytest.mark.parametrize("queue", mpich_buffers._QUEUES, ids=str)
def test_the_predicted_size_is_that_of_the_file(
    queue: tuple[int, int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    workers = 3
    monkeypatch.setattr(mpich_buffers, "free_shm_bytes", lambda: 1 << 20)
    monkeypatch.setattr(mpich_buffers, "_QUEUES", [queue])
    monkeypatch.setattr(mpich_buffers, "_queue_bytes", lambda *_: 0)
    with pytest.warns(RuntimeWarning, match="smaller ones are used"):
        settings = mpich_buffers.mpich_settings(workers, {}, all_here=True)
    monkeypatch.undo()
    mpiexec = launch._mpiexec()
    done = run(workers, *mpiexec, "-n", str(workers), program=SIZE, folder=tmp_path, **settings)
    assert done.returncode == 0, done.stderr
    predicted = mpich_buffers._queue_bytes(workers, *queue)
    assert predicted - 8192 - 1024 * workers <= int(done.stdout) <= predicted


def test_settings_of_the_user_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpich_buffers, "free_shm_bytes", lambda: 1 << 20)
    own = {"MPIR_CVAR_CH4_SHM_POSIX_IQUEUE_NUM_CELLS": "3"}
    assert mpich_buffers.mpich_settings(2, own, all_here=True) == {}
    with pytest.warns(RuntimeWarning):
        assert "UCX_TLS" not in mpich_buffers.mpich_settings(2, {"UCX_TLS": "tcp"}, all_here=True)


def test_other_hosts_may_have_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpich_buffers, "free_shm_bytes", lambda: 0)
    with pytest.raises(WorkerError, match="MPI needs"):
        mpich_buffers.mpich_settings(2, {}, all_here=True)
    with pytest.warns(RuntimeWarning, match="0 MB can be written"):
        assert mpich_buffers.mpich_settings(2, {}, all_here=False)


def test_a_missing_folder_has_no_room(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(mpich_buffers, "SHM_FOLDER", str(tmp_path / "none"))
    assert mpich_buffers.free_shm_bytes() == 0
    monkeypatch.setattr(mpich_buffers, "SHM_FOLDER", str(tmp_path))
    free = int(subprocess.check_output(["stat", "-f", "-c", "%a", tmp_path]))
    assert (mpich_buffers.free_shm_bytes() > 0) == (free > 0)
