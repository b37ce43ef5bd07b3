"""The processor: its name, for measurements and messages, and the sizes of its memory units."""

from __future__ import annotations

import platform
from functools import cache
from typing import Final

CACHE_LINE: Final = 64
"""Bytes of a cache line."""
PAGE: Final = 4096
"""Bytes of a page of memory."""
_CPU_FILE = "/proc/cpuinfo"
_AVX512 = {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}


def cpu_name(path: str = _CPU_FILE) -> str:
    """Return the name of the processor, with family and model if the system reports them."""
    fields = _fields(path)
    name = fields.get("model name") or platform.processor() or platform.machine()
    family = f" (family {fields.get('cpu family')}, model {fields.get('model')})"
    return name + family if "cpu family" in fields else name


@cache
def cpu_features() -> frozenset[str]:
    """Return the features of the processor that the system reports. A virtual machine may hide
    some that the processor has."""
    fields = _fields(_CPU_FILE)
    return frozenset((fields.get("flags") or fields.get("Features") or "").split())


@cache
def has_avx2() -> bool:
    """Return True if the processor has the AVX2 instructions of x86 processors since 2013."""
    return "avx2" in cpu_features()


@cache
def has_avx512() -> bool:
    """Return True if the processor has the AVX-512 instructions of server processors since 2017."""
    return cpu_features() >= _AVX512


def _fields(path: str) -> dict[str, str]:
    """Return the fields of the first processor in /proc/cpuinfo."""
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
