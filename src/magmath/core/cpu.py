"""What the processor is, and the one setting that OpenBLAS needs to use all of it.

On AMD processors with AVX-512 the OpenBLAS that NumPy and SciPy bring picks AVX2 kernels, which do
half the work a second. The core type can be chosen by an environment variable, before the library
loads.
"""

from __future__ import annotations

import os
import platform

VARIABLE = "OPENBLAS_CORETYPE"
CHOSEN = "MAGMATH_OPENBLAS_CORETYPE"
"""Repeats what magmath has put into VARIABLE, so that a process that inherits both, perhaps on
another kind of processor, knows that it was not the user and chooses again."""

_CPU_FILE = "/proc/cpuinfo"
_NEEDED = frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd"})


def cpu_flags(path: str = _CPU_FILE) -> frozenset[str]:
    """The instruction sets of this processor; empty where the system does not say."""
    return frozenset(_fields(path).get("flags", "").split())


def cpu_name(path: str = _CPU_FILE) -> str:
    """The processor's name, with family and model where the system gives them."""
    fields = _fields(path)
    name = fields.get("model name") or platform.processor() or platform.machine()
    family = f" (family {fields.get('cpu family')}, model {fields.get('model')})"
    return name + family if "cpu family" in fields else name


def choose_openblas_core() -> None:
    """Have OpenBLAS use AVX-512 where the processor has it, unless the user chose a core type."""
    given = os.environ.get(VARIABLE)
    if given is not None and given != os.environ.get(CHOSEN):
        return
    core = _openblas_core()
    for variable in (VARIABLE, CHOSEN):
        if core is not None:
            os.environ[variable] = core
        else:
            os.environ.pop(variable, None)


def _openblas_core() -> str | None:
    """The core type that OpenBLAS should be told; None to let it look for itself."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return None
    flags = cpu_flags()
    if not flags >= _NEEDED:
        return None
    return "COOPERLAKE" if "avx512_bf16" in flags else "SKYLAKEX"


def _fields(path: str) -> dict[str, str]:
    """The lines of the system's description of the first processor."""
    fields: dict[str, str] = {}
    try:
        with open(path) as file:
            for line in file:
                if not line.strip():
                    break
                name, _, value = line.partition(":")
                fields[name.strip()] = value.strip()
    except OSError:
        pass
    return fields
