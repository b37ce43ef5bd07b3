"""Settings for every test: the watchdog is the only time limit, and plots need no display."""

from __future__ import annotations

import gc
import math
import os
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache, wraps
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings
from hypothesis.database import DirectoryBasedExampleDatabase

from engines import close_pools
from magmath.codegen import compiler_process
from magmath.engine import session
from magmath.engine.programs import program_table
from magmath.kernels import free_processors
from magmath.kernels.linalg import lapack_candidates
from magmath.passes import unused_buffers
from magmath.runtime.pool import Pool

# A slow or busy machine is no failure: the only clock is the watchdog in pyproject.toml.
# The database is named because where CI is set it is None, which Hypothesis looks up along a
# chain as long as the table of a test with parameters, beyond the recursion limit.
settings.register_profile(
    "magmath",
    deadline=None,
    max_examples=25,
    database=DirectoryBasedExampleDatabase(".hypothesis/examples"),
)
settings.load_profile("magmath")

os.environ.setdefault("MPLBACKEND", "Agg")
# Processes that tests start store byte code: without it each takes half a second longer.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Tests of native code compile it themselves; the others must not keep a compiler busy.
os.environ["MAGMATH_COMPILE_AFTER"] = "inf"

# What this machine has calibrated and measured must not decide what tests plan.
CACHE = Path(__file__).parents[1] / ".pytest_cache" / "magmath"
os.environ.setdefault("MAGMATH_CACHE", str(CACHE))

# torch gives most of its warnings once a process, so which test fails would depend on their order.
torch.set_warn_always(True)

# OpenBLAS's threads wait for their next work by spinning, at the cost of other tests' processes. It
# reads this when it is loaded, so it takes effect in the processes that xdist and tests start.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")

# Which library computes a factorization is measured for up to half a second for each class of
# sizes. Each library is tried on each routine in unit/test_lapack_candidates.py; elsewhere the
# first one will do.
lapack_candidates.MIN_FLOPS = math.inf  # type: ignore[misc]

free_processors.CHECK_SECONDS = math.inf  # the other tests keep processors busy

unused_buffers.MIN_BYTES = 0  # type: ignore[misc]  # the arrays of tests are small

compiler_process.NICENESS = 0  # compilation must not wait for the other tests

# The pools that all tests share keep few of the programs that no test runs again: their instructions
# are millions of objects, which every collection of garbage visits.
program_table.MAX_PROGRAMS = 64

# A shell starts what runs in the background deaf to Ctrl-C, which some tests send themselves.
signal.signal(signal.SIGINT, signal.default_int_handler)


_run = Pool.run


@wraps(_run)
def _checked_run(pool: Pool, program_id: int, inputs: Sequence[int], *args: Any, **kw: Any) -> Any:
    """Run a program on arrays that have the layouts for which it was planned: with others its
    workers would read memory that has other values."""
    defined = pool._programs.get(program_id)
    slots = [] if defined is None else [defined.program.slots[i] for i in defined.program.inputs]
    for slot, array in zip(slots, inputs, strict=True) if slots else ():
        layout, _ = pool._registry.known.get(array, (slot.layout, slot.dtype))
        assert layout == slot.layout, f"{layout} for a program that is planned for {slot.layout}"
    return _run(pool, program_id, inputs, *args, **kw)


Pool.run = _checked_run  # type: ignore[method-assign]


# Examples leave much behind and little of it in cycles: to look for these after every 700 objects,
# as Python does by default, takes a fifth of the time of property tests.
gc.set_threshold(50_000, 20, 20)


@pytest.fixture(autouse=True, scope="module")
def _settled() -> None:
    """Collect what the last tests have left in cycles, and spare later collections the rest: to
    visit what thousands of tests keep would take seconds."""
    gc.collect()
    gc.freeze()


MOST_MEMORY = 3 << 30
"""Bytes of a process of tests from which the pools that they share are closed, with their programs:
several processes run on one machine."""


def _resident_bytes() -> int:
    """Return the memory of this process, 0 where the system does not say."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


@pytest.fixture(autouse=True)
def _no_closed_pool() -> Iterator[None]:
    """Forget a pool that a test has closed: the next test starts its own."""
    if _resident_bytes() > MOST_MEMORY:
        close_pools()
        _forget_closed_pool()
        gc.freeze()
    yield
    _forget_closed_pool()


def _forget_closed_pool() -> None:
    if session.current_engine is not None and session.current_engine.pool.closed:
        session.current_engine = None


WITH_PROCESSES = ("mpi", "faults", "unit/test_docs.py", "unit/test_cli.py", "test_smoke.py")
GROUP_SIZE = 32  # tests of a file that are scheduled as one group, which costs less than one by one


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Assign tests to groups, which pytest-xdist runs in parallel.

    Tests that start worker processes, and check what these leave behind, are one group, which runs
    in sequence and starts first because it takes longest. Other tests share nothing.
    """
    here = Path(__file__).parent
    counts: Counter[Path] = Counter()

    @cache
    def starts_processes(path: Path) -> bool:
        return any(path.is_relative_to(here / name) for name in WITH_PROCESSES)

    for item in items:
        group = "processes"
        if not starts_processes(item.path):
            group = f"{item.path.stem}-{counts[item.path] // GROUP_SIZE}"
            counts[item.path] += 1
        item.add_marker(pytest.mark.xdist_group(group))
