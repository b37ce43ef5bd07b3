"""What compiled code depends on, and the files in which sources and code are kept."""

from __future__ import annotations

import os
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

from magmath.core.cache import cache_directory
from magmath.core.cpu import cpu_name


def file_of(ending: str, *told: object) -> Path:
    """The file in the cache directory for what is made of these things by the compiler.

    It is named after them, the processor, LLVM and the compiler's own text, so that nothing is
    taken for what an older version has made.
    """
    name = sha256(surroundings() + repr(told).encode()).hexdigest()[:24]
    return cache_directory("native") / f"m{name}{ending}"


@cache
def surroundings() -> bytes:
    """What any compiled code depends on: the processor, and the text of the compiler's modules."""
    modules = sorted(Path(__file__).parent.glob("*.py"))
    said = f"{cpu_name()}, llvmlite {version('llvmlite')}\n"
    return said.encode() + b"".join(map(text_of, modules))


def text_of(module: Path) -> bytes:
    """The text of a module."""
    return module.read_bytes()


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that others may look for: it is there whole or not at all."""
    draft = path.with_suffix(f".{os.getpid()}.draft")
    draft.write_bytes(content)
    os.replace(draft, path)
