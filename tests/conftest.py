"""Settings for every test: no time limits but the watchdog, plots without a display."""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path

import pytest
import torch
from hypothesis import settings
from hypothesis.database import DirectoryBasedExampleDatabase

from magmath.kernels import build

# A slow or busy machine is no failure: the only clock is the watchdog in pyproject.toml.
# The database is named because where CI is set it is None, which Hypothesis looks up along a
# chain as long as the table of a test with parameters, beyond the recursion limit.
settings.register_profile(
    "magmath",
    deadline=None,
    max_examples=50,
    database=DirectoryBasedExampleDatabase(".hypothesis/examples"),
)
settings.load_profile("magmath")

os.environ.setdefault("MPLBACKEND", "Agg")
# Tests of native code compile it themselves; the others must not keep a compiler busy.
os.environ["MAGMATH_COMPILE_AFTER"] = "inf"

# torch gives most of its warnings once a process, so which test fails would depend on their order.
torch.set_warn_always(True)

build.NICENESS = 0  # who waits for a compiler beside other tests would wait for long

# A shell starts what runs in the background deaf to Ctrl-C, which some tests send themselves.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="module")
def _settled() -> None:
    """Spare collections all that thousands of tests have left: each would take seconds."""
    gc.freeze()


WITH_PROCESSES = ("mpi", "unit/test_docs.py", "unit/test_cli.py", "test_smoke.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where tests run side by side, those that start worker processes, and look for what these
    leave behind, stay together, one after another; the others share nothing and spread."""
    here = Path(__file__).parent
    for item in items:
        if any(item.path.is_relative_to(here / name) for name in WITH_PROCESSES):
            item.add_marker(pytest.mark.xdist_group("processes"))
