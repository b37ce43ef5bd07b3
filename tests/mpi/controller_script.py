"""A user's script, for the tests of processes and files that remain after its death.

It starts workers, prints their process numbers and the pool's directory, and then performs the
action that its argument names.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from magmath.layout import Layout
from magmath.runtime import Pool
from magmath.runtime.transport.processes import ProcessTransport
from magmath.runtime.transport_interface import WorkerOptions
from pool_fakes import fake_program


def main(what: str) -> None:
    """Be the user's script."""
    command = [sys.executable, str(Path(__file__).with_name("fake_worker.py"))]
    workers = 2 if what == "busy" else 1
    transport = ProcessTransport(workers, WorkerOptions("cpu", 1), worker_command=command)
    pool = Pool(transport)
    array = pool.put(torch.ones(6), Layout.even((6,), pool.mesh, 0))
    pids = [str(counters["pid"]) for counters in pool.stats()]
    print(transport.directory, *pids, flush=True)
    if what == "idle":
        time.sleep(600)
    elif what == "busy":
        program = pool.define(fake_program("sleep", workers, seconds=0.01))
        pool.run(program, [array], steps=10**6, wait=True)
    elif what == "raise":
        raise RuntimeError("the user's mistake")


if __name__ == "__main__":
    main(sys.argv[1])
