"""Settings for every test: no time limits but the watchdog, plots without a display."""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path

import pytest
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

build.NICENESS = 0  # who waits for a compiler beside other tests would wait for long

# A shell starts what runs in the background deaf to Ctrl-C, which some tests send themselves.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="module")
def _settled() -> None:
    """Spare collections all that thousands of tests have left: each would take seconds."""
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where tests run side by side, those that start processes or count a process's resources stay
    together, one after another; the simulated ranks of `tests/sim` share nothing and spread."""
    for item in items:
        if Path(__file__).parent / "sim" not in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("processes"))
