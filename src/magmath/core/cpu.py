"""The processor: its name, for measurements and messages, and the sizes of its memory units."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path
from typing import Final

CACHE_LINE: Final = 64
"""Bytes of a cache line."""
PAGE: Final = 4096
"""Bytes of a page of memory."""
_CPU_FILE = "/proc/cpuinfo"
_CACHE_FOLDER = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 10, "M": 20, "G": 30}
_MIN_SECOND_LEVEL, _MAX_SECOND_LEVEL = 512 << 10, 1 << 20
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


def cache_sizes(folder: Path = _CACHE_FOLDER) -> dict[int, int]:
    """Return the bytes of a processor's caches of data by their levels, from the folders in which
    Linux describes them; nothing on other systems."""
    sizes: dict[int, int] = {}
    for cache_folder in folder.glob("index*"):
        level, size, kind = [_text(cache_folder / name) for name in ("level", "size", "type")]
        if level and size and kind != "Instruction":
            sizes[int(level)] = int(size.rstrip("KMG")) << _UNITS.get(size[-1], 0)
    return sizes


@cache
def second_level_cache() -> int:
    """Return the bytes of the second-level cache, of which kernels divide their blocks.

    The shares of the kernels were measured with 512 KiB. Smaller caches count as 512 KiB, and
    larger ones as 1 MiB at most, because no other blocks were measured."""
    size = cache_sizes().get(2, _MIN_SECOND_LEVEL)
    return min(max(_MIN_SECOND_LEVEL, size), _MAX_SECOND_LEVEL)


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""


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
