"""The cache of object code, and the keys of its entries."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Final

from magmath.core.cpu import cpu_name
from magmath.core.disk_cache import DiskCache

OBJECTS: Final = DiskCache("native")
"""Object code by `cache_key`."""


def cache_key(*inputs: object) -> str:
    """Return the cache key of the code that is compiled from these inputs.

    The key depends on the inputs, the processor, LLVM and the source of the compiler, so that code
    from an older version is never loaded.
    """
    return "m" + sha256(toolchain_fingerprint() + repr(inputs).encode()).hexdigest()[:24]


@cache
def toolchain_fingerprint() -> bytes:
    """Return the inputs of all compiled code: the processor, LLVM, the source of the compiler."""
    modules = sorted(Path(__file__).parent.glob("*.py"))
    said = f"{cpu_name()}, llvmlite {version('llvmlite')}\n"
    return said.encode() + b"".join(map(module_source, modules))


def module_source(module: Path) -> bytes:
    """Return the source of a module."""
    return module.read_bytes()
