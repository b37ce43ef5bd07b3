"""The spin times of threads of libraries, for every order of imports."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from magmath.core import wait_policy

REPORT = """
import ctypes, os, threading
from threadpoolctl import threadpool_info
libraries = [
    ctypes.CDLL(found["filepath"])
    for found in threadpool_info() if found["internal_api"] == "openblas"
]
timeouts = {  # the library of NumPy 2.5 hides the function
    library.openblas_thread_timeout()
    for library in libraries if hasattr(library, "openblas_thread_timeout")
}
parked = [thread for thread in threading.enumerate() if thread.name == "magmath-parked-team"]
print(len(libraries), timeouts, len(parked), os.environ.get("GOMP_SPINCOUNT"))
"""
START = "import magmath as mm; mm.init(); import scipy.linalg.blas, numpy as np; "
START += "mm.evaluate(mm.ones((300, 300)) @ mm.ones((300, 300))); np.ones((300, 300)) @ np.ones((300, 300))"


def _report(first: str, **variables: str) -> str:
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in (wait_policy.OPENBLAS, *wait_policy.OPENMP)
    }
    done = subprocess.run(
        [sys.executable, "-c", f"{first}\n{START}\n{REPORT}"],
        env=environment | variables, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip()


several = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs 2 processors")


@pytest.mark.parametrize("first", ["", "import numpy, scipy.linalg.blas"])
def test_the_environment_is_read_by_what_is_loaded_later(first: str) -> None:
    assert _report(first) == "2 {18} 0 10000"


@several
def test_torch_that_was_loaded_first_spins_shortly_too() -> None:
    assert _report("import torch") == "2 {18} 1 10000"


def test_settings_of_the_user_are_kept() -> None:
    variables = {"OPENBLAS_THREAD_TIMEOUT": "9", "OMP_WAIT_POLICY": "active"}
    assert _report("import numpy, torch", **variables) == "2 {9} 0 None"
