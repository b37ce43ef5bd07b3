"""Building native functions: compiled by a process in the background, kept on disk, then loaded.

A source is written once under its hash in the cache directory. Importing it makes Numba compile it,
or load what another process compiled; so a helper process imports it first, at low priority, while
the program is replayed, and afterwards this process loads the result in milliseconds. The helper
ends with this process: it waits for the end of its standard input.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numba

from magmath.core.cache import cache_directory
from magmath.core.cpu import cpu_name

NICENESS = 10  # of the compiler: what computes goes first
COMPILE = """\
import fcntl, os, sys, threading
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(1)), daemon=True).start()
path, niceness = sys.argv[1:]
os.nice(int(niceness))
with open(os.path.join(os.path.dirname(path), "compiling.lock"), "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)  # one compiler at a time, whoever asks
    from magmath.machine.build import load
    load(path)
"""

_IMPORT = re.compile(r"^from (magmath[\w.]*) import", re.MULTILINE)


class Build:
    """The native function `run` of a source, on its way: `function()` is None until it is there."""

    def __init__(self, source: str) -> None:
        self._path = written(source)
        self._function: Any = None
        self._process: subprocess.Popen[bytes] | None = None
        if not is_compiled(self._path):
            self._process = subprocess.Popen(
                [sys.executable, "-c", COMPILE, str(self._path), str(NICENESS)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )

    def function(self) -> Any:
        """The compiled function, as soon as it is on disk."""
        if self._process is not None and self._process.poll() is not None:
            self._let_go(self._process)
        if self._function is None and is_compiled(self._path):
            self._function = load(self._path)
        return self._function

    def close(self) -> None:
        """Stop compiling."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        if self._process is not None:
            self._let_go(self._process)

    def _let_go(self, process: subprocess.Popen[bytes]) -> None:
        """Close the pipe to a helper that has ended."""
        assert process.stdin is not None
        process.stdin.close()
        self._process = None


def written(source: str) -> Path:
    """The file of a source, named after all that its compiled form depends on."""
    text = f"# {cpu_name()}, numba {numba.__version__}\n{source}"
    called = b"".join(_code_of(module) for module in _modules(source))
    name = hashlib.sha256(text.encode() + called).hexdigest()[:24]
    path = cache_directory("native") / f"m{name}.py"
    if not path.exists():
        draft = path.with_suffix(f".{os.getpid()}.draft")
        draft.write_text(text)
        os.replace(draft, path)
    return path


def is_compiled(path: Path) -> bool:
    """True if the source has been compiled, by whomever."""
    return _marker(path).exists()


def load(path: str | Path) -> Any:
    """The function `run` of a source file, compiled now if it is not on disk."""
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
    waiting = _IMPORT.findall(source)
    while waiting:
        module = waiting.pop()
        if module not in found:
            found[module] = None
            waiting += _IMPORT.findall(_code_of(module).decode())
    return sorted(found)


@cache
def _code_of(module: str) -> bytes:
    """The text of a module: Numba would not notice a change in a function that is called."""
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).read_bytes()
