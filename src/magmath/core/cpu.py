"""What the processor offers, and the one setting that OpenBLAS needs to use all of it.

On AMD processors with AVX-512 the OpenBLAS that NumPy and SciPy bring picks AVX2 kernels, which do
half the work a second. The core type can be chosen by an environment variable, before the library
loads.
"""

from __future__ import annotations

import os
import platform

VARIABLE = "OPENBLAS_CORETYPE"
_NEEDED = frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd"})


def cpu_flags(path: str = "/proc/cpuinfo") -> frozenset[str]:
    """The instruction sets of this processor; empty where the system does not say."""
    try:
        with open(path) as file:
            for line in file:
                if line.startswith("flags"):
                    return frozenset(line.split(":", 1)[1].split())
    except OSError:
        pass
    return frozenset()


def choose_openblas_core() -> None:
    """Have OpenBLAS use AVX-512 where the processor has it, unless the user chose a core type."""
    if VARIABLE in os.environ or platform.machine() not in ("x86_64", "AMD64"):
        return
    flags = cpu_flags()
    if flags >= _NEEDED:
        os.environ[VARIABLE] = "COOPERLAKE" if "avx512_bf16" in flags else "SKYLAKEX"
