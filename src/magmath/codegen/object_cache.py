"""What compiled code depends on, and the cache in which it is kept."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Final

from magmath.core.cpu import cpu_name
from magmath.core.disk_cache import DiskCache

OBJECTS: Final = DiskCache("native")
"""Object code by `cache_key` its source."""


def cache_key(*told: object) -> str:
    """The name in the cache for what the compiler makes of these things.

    It depends on them, the processor, LLVM and the compiler's own text, so that nothing is taken
    for what an older version has made.
    """
    return "m" + sha256(toolchain_fingerprint() + repr(told).encode()).hexdigest()[:24]


@cache
def toolchain_fingerprint() -> bytes:
    """What any compiled code depends on: the processor, and the text of the compiler's modules."""
    modules = sorted(Path(__file__).parent.glob("*.py"))
    said = f"{cpu_name()}, llvmlite {version('llvmlite')}\n"
    return said.encode() + b"".join(map(module_source, modules))


def module_source(module: Path) -> bytes:
    """The text of a module."""
    return module.read_bytes()
