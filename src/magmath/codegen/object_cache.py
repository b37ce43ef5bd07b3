"""The cache of object code, and the keys of its entries."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from magmath.core.cpu import cpu_features, cpu_name
from magmath.core.debugging import debugging
from magmath.core.disk_cache import DiskCache

OBJECTS: Final = DiskCache("native")
"""Object code by `cache_key`."""
_KERNEL_IMPORT: Final = re.compile(rb"^from (magmath\.kernels\.[\w.]+) import ", re.MULTILINE)


def cache_key(*inputs: object) -> str:
    """Return the cache key of the code that is compiled from these inputs.

    The key depends on the inputs, the processor, LLVM and the source of the compiler, so that
    neither code from an older version nor code for another processor is ever loaded.
    """
    return "m" + sha256(toolchain_fingerprint() + repr(inputs).encode()).hexdigest()[:24]


@cache
def toolchain_fingerprint() -> bytes:
    """Return the inputs of all compiled code: the processor with its features, LLVM, the source of
    the compiler, the size of vectors for debugging."""
    modules = sorted(Path(__file__).parent.glob("*.py"))
    features = " ".join(sorted(cpu_features()))
    platform = f"{cpu_name()}, {features}, llvmlite {version('llvmlite')}, "
    platform += f"vectors {debugging().vectors}\n"
    return platform.encode() + b"".join(map(module_source, modules))


def sources_with_imports(modules: Sequence[str]) -> list[bytes]:
    """Return the sources of modules, and of the kernel modules from which these import names,
    directly or indirectly. No module is loaded."""
    sources: dict[str, bytes] = {}
    unread = list(modules)
    while unread:
        name = unread.pop()
        spec = find_spec(name)
        if name not in sources and spec is not None and spec.origin:
            sources[name] = module_source(Path(spec.origin))
            unread += [imported.decode() for imported in _KERNEL_IMPORT.findall(sources[name])]
    return [sources[name] for name in sorted(sources)]


def module_source(module: Path) -> bytes:
    """Return the source of a module."""
    return module.read_bytes()
