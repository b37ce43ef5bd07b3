"""How long threads of numerical libraries spin before they sleep: the settings for this process.

A thread that waits for work spins, so that it starts at once. Two libraries with a thread pool each
then compete for the same processors: the threads of OpenBLAS spin for 25 ms after a product, and
the OpenMP threads of torch, which compute next, wait for a processor. With short spins only the
pool that computes is awake. Libraries read these variables when they are loaded, so this module is
imported before all others; `kernels/threads.py` reaches libraries that were loaded before.
"""

from __future__ import annotations

import os
import sys
from typing import Final

OPENBLAS: Final = "OPENBLAS_THREAD_TIMEOUT"
"""The logarithm of the processor cycles that a thread of OpenBLAS spins; its default is 26."""
OPENMP: Final = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
"""What decides how long a thread of GNU OpenMP spins; the first one counts turns of its loop."""
SETTINGS: Final = {OPENBLAS: "4", OPENMP[0]: "10000"}
"""The shortest spin that OpenBLAS accepts; a tenth of a millisecond, in place of some, of OpenMP:
its threads stay awake from one operation to the next."""

was_torch_loaded_first = False
"""True if torch was loaded before magmath could set how long its threads spin."""


def set_wait_policy() -> None:
    """Set what the user's environment leaves open."""
    global was_torch_loaded_first
    os.environ.setdefault(OPENBLAS, SETTINGS[OPENBLAS])
    if not any(name in os.environ for name in OPENMP):
        was_torch_loaded_first = "torch" in sys.modules
        os.environ[OPENMP[0]] = SETTINGS[OPENMP[0]]
