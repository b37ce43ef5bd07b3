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
import subprocess
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numba

from magmath.core.cache import cache_directory

COMPILE = """\
import fcntl, os, sys, threading
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(1)), daemon=True).start()
os.nice(10)
path = sys.argv[1]
with open(os.path.join(os.path.dirname(path), "compiling.lock"), "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)  # one compiler at a time, whoever asks
    from magmath.program.native_build import load, marker
    if not marker(path).exists():
        load(path)
        marker(path).touch()
"""

Native = Callable[..., int]


class Build:
    """A native function on its way: `function()` is None until it is there."""

    def __init__(self, source: str) -> None:
        text = f"# numba {numba.__version__}\n{source}"
        name = hashlib.sha256(text.encode() + _called_code()).hexdigest()[:24]
        self._path = cache_directory("native") / f"m{name}.py"
        self._function: Native | None = None
        self._process: subprocess.Popen[bytes] | None = None
        if not self._path.exists():
            draft = self._path.with_suffix(f".{os.getpid()}.draft")
            draft.write_text(text)
            os.replace(draft, self._path)
        self._start()

    def _start(self) -> None:
        if marker(self._path).exists():
            return
        self._process = subprocess.Popen(
            [sys.executable, "-c", COMPILE, str(self._path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def function(self) -> Native | None:
        """The compiled function, as soon as it is on disk."""
        if self._process is not None and self._process.poll() is not None:
            self._let_go(self._process)
        if self._function is None and marker(self._path).exists():
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


@lru_cache(maxsize=1)
def _called_code() -> bytes:
    """The compiled functions that generated code calls: a change in them makes other files."""
    package = Path(__file__).parents[1]
    called = ("comm/barrier.py", "kernels/blas.py", "kernels/philox.py")
    return b"".join((package / name).read_bytes() for name in called)


def marker(path: str | Path) -> Path:
    """The file that says that a source has been compiled."""
    return Path(path).with_suffix(".ok")


def load(path: str | Path) -> Native:
    """The function of a source file, compiled now if it is not on disk."""
    spec = importlib.util.spec_from_file_location(f"magmath_{Path(path).stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # Numba's cache looks the module up by name
    spec.loader.exec_module(module)
    function: Native = module.run
    return function
