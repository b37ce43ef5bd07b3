"""Code that is compiled once for a machine and then kept on disk.

A source is written once under its hash in the cache directory. Importing one that Numba compiles
makes it compile it, or load what another process compiled.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import os
import sys
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from magmath.core.cache import cache_directory
from magmath.core.cpu import cpu_name
from magmath.machine.parse import parsed

_PACKAGE = __name__.partition(".")[0]


def written(source: str, compiler: str = "") -> Path:
    """The file of a source, named after all that its compiled form depends on.

    That is the text of the modules of this package that the source, or those modules, import; and
    that of `compiler`, a module of this package, where it is not Numba.
    """
    text = f"# {cpu_name()}, numba {_numba_version()}\n{source}"
    modules = _modules(f"from {compiler} import it\n{source}" if compiler else source)
    called = b"".join(_code_of(module) for module in modules)
    name = hashlib.sha256(text.encode() + called).hexdigest()[:24]
    path = cache_directory("native") / f"m{name}.py"
    if not path.exists():
        write_whole(path, text.encode())
    return path


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that others may look for: it is there whole or not at all."""
    draft = path.with_suffix(f".{os.getpid()}.draft")
    draft.write_bytes(content)
    os.replace(draft, path)


def is_compiled(path: Path) -> bool:
    """True if a source for Numba has been compiled, by whomever."""
    return _marker(path).exists()


def load(path: str | Path) -> Any:
    """The function `run` of a source for Numba, compiled now if it is not on disk."""
    spec = importlib.util.spec_from_file_location(f"magmath_{Path(path).stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # Numba's cache looks the module up by name
    spec.loader.exec_module(module)
    _marker(path).touch()
    return module.run


def _marker(path: str | Path) -> Path:
    return Path(path).with_suffix(".ok")


def _modules(source: str) -> list[str]:
    """The modules of this package that a source imports, directly or by way of others."""
    found: dict[str, None] = {}
    waiting = _imports(source)
    while waiting:
        module = waiting.pop()
        if module not in found:
            found[module] = None
            waiting += _imports(_code_of(module).decode())
    return sorted(found)


def _imports(source: str) -> list[str]:
    """The modules of this package that the lines `from … import …` of a source load."""
    found = []
    for node in parsed(source).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == _PACKAGE:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            found += [str(node.module), *filter(_is_module, inner)]
    return found


@cache
def _is_module(name: str) -> bool:
    parent = importlib.util.find_spec(name.rpartition(".")[0])
    return bool(parent and parent.submodule_search_locations and importlib.util.find_spec(name))


@cache
def _code_of(module: str) -> bytes:
    """The text of a module: Numba would not notice a change in a function that is called."""
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).read_bytes()


@cache
def _numba_version() -> str:
    return version("numba")
