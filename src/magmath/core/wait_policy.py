"""Spin times of the threads of numerical libraries.

Idle threads spin before they sleep, so that they start quickly. Two libraries with a thread pool
each then compete for the same processors: the threads of OpenBLAS spin for 25 ms after a product,
and the OpenMP threads of torch, which compute next, wait for a processor. With short spins only the
computing pool is awake. Libraries read these variables when they are loaded, so this module is
imported first; `kernels/thread_count.py` changes libraries that were loaded before.
"""

from __future__ import annotations

import os
import sys
from typing import Final

OPENBLAS: Final = "OPENBLAS_THREAD_TIMEOUT"
"""The base-2 logarithm of the cycles that an idle OpenBLAS thread spins; the default is 26."""
OPENMP: Final = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
"""Variables for the spin time of GNU OpenMP; the first one counts iterations."""
SETTINGS: Final = {OPENBLAS: "18", OPENMP[0]: "10000"}
"""About 0.1 ms for each library, so that its threads stay awake between consecutive operations."""

was_torch_loaded_first = False
"""True if torch was loaded before magmath could set its spin time."""


def set_wait_policy() -> None:
    """Set the variables that the environment does not define."""
    global was_torch_loaded_first
    os.environ.setdefault(OPENBLAS, SETTINGS[OPENBLAS])
    if not any(name in os.environ for name in OPENMP):
        was_torch_loaded_first = "torch" in sys.modules
        os.environ[OPENMP[0]] = SETTINGS[OPENMP[0]]
