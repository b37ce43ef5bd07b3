"""Building native programs: compiled by a process in the background, kept on disk, then loaded.

While a program is replayed, a helper process compiles its source at low priority; afterwards this
process loads the object code in milliseconds. The helper ends with this process: it waits for the
end of its standard input. The first program on a machine also makes it compile the functions of
`kernels/library.py` that it calls.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from magmath.kernels import library
from magmath.machine.build import file_of, write_whole
from magmath.machine.compiler import compile_source, imported
from magmath.machine.loading import Loaded

logger = logging.getLogger(__name__)

NICENESS = 10  # of the compiler: what computes goes first
COMPILE = """\
import fcntl, os, sys, threading
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(1)), daemon=True).start()
path, niceness, *lacking = sys.argv[1:]
os.nice(int(niceness))
with open(os.path.join(os.path.dirname(path), "compiling.lock"), "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)  # one compiler at a time, whoever asks
    if not os.path.exists(os.path.splitext(path)[0] + ".o"):  # others may have asked for the same
        from magmath.kernels.build import compile_file
        compile_file(path, lacking)
"""

Function = Callable[[int], int]
"""A native program: given the address of its arguments, as `machine/compiler.py` describes."""


class Build:
    """A native program on its way: `function()` is None until it is there."""

    def __init__(self, source: str) -> None:
        self._path = _written(source)
        self._loaded: Loaded | None = None
        self._process: subprocess.Popen[bytes] | None = None
        if not _code(self._path).exists():
            lacking = [name for name in imported(source) if not library.is_ready(name)]
            with open(self._path.with_suffix(".err"), "wb") as errors:
                self._process = subprocess.Popen(
                    [sys.executable, "-c", COMPILE, str(self._path), str(NICENESS), *lacking],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                )

    def function(self) -> Function | None:
        """The compiled program, as soon as it is on disk."""
        if self._process is not None and (code := self._process.poll()) is not None:
            self._let_go(self._process)
            if code and not _code(self._path).exists():  # 0 in a fork, which cannot wait for it
                logger.warning("a program is replayed, for its compiler failed: %s", self.error())
        if self._loaded is None and _code(self._path).exists():
            self._loaded = _load(self._path)
        return None if self._loaded is None else self._loaded.enter

    def error(self) -> str:
        """What the compiler wrote if it has failed; the program is then replayed for good."""
        if self._process is not None or self.function() is not None:
            return ""
        return self._path.with_suffix(".err").read_text() or "the compiler was stopped"

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


def compile_file(path: str, lacking: Sequence[str]) -> None:
    """Compile a source to object code beside it, and before that what it calls and is `lacking`."""
    source = Path(path).read_text()
    for name in lacking:
        library.use(name)
    write_whole(_code(Path(path)), compile_source(source, library.signatures(imported(source))))


def _written(source: str) -> Path:
    """The file of a source, with all that its object code depends on in its name."""
    path = file_of(".py", source, library.signatures(imported(source)))
    if not path.exists():
        write_whole(path, source.encode())
    return path


def _code(path: Path) -> Path:
    return path.with_suffix(".o")


def _load(path: Path) -> Loaded:
    for name in imported(path.read_text()):
        library.use(name)
    return Loaded(_code(path).read_bytes())
