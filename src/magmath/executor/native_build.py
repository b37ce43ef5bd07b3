"""Compilation of native programs by a process in the background, with an on-disk cache.

While a program is replayed, a helper process (`executor/native_compiler.py`) compiles its source at
low priority; afterwards this process loads the object code in milliseconds. Source, code and
messages are passed in anonymous files in memory. With the first program on a machine, the helper
also compiles the functions of `kernels/runtime_library.py` that the program calls.

A process has few helpers at a time. A program that finds none free asks for one again whenever it
is asked for its function, so of many programs those that still run are compiled.
"""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Callable
from threading import current_thread
from typing import Final, final

from magmath.codegen.compiler import imported_names
from magmath.codegen.compiler_process import start_compiler
from magmath.codegen.object_cache import OBJECTS, cache_key
from magmath.codegen.object_loader import LoadedObject
from magmath.core.debugging import Delays
from magmath.executor import native_compiler
from magmath.executor.native_compiler import content
from magmath.kernels import runtime_library

logger = logging.getLogger(__name__)

Function = Callable[[int], int]
"""A native program; its argument is the address of the program's arguments, as
`codegen/compiler.py` describes."""
MAX_HELPERS: Final = 2
"""Helper processes of this process at a time. One compiles at a time on a machine, while the next
one loads the compiler."""


@final
class NativeBuild:
    """A native program during its compilation: `function()` returns None until it is ready.

    `arithmetic`: how floating-point operations may be changed (`codegen/values.py`).
    """

    def __init__(self, source: str, arithmetic: str = "fast") -> None:
        self._source, self._arithmetic = source, arithmetic
        self._loaded: LoadedObject | None = None
        self._compiler: _Compiler | None = None
        self._error = ""
        # Workers are threads of different names, or processes of different ranks.
        self._delays = Delays("build", current_thread().name, os.environ.get("PMI_RANK"))
        name = cache_key(source, arithmetic, runtime_library.signatures(imported_names(source)))
        self._name = name
        self._code = OBJECTS.read(name)
        self._waits = self._code is None  # for a helper
        self._start_if_one_is_free()

    def function(self) -> Function | None:
        """Return the compiled program, or None before its code exists."""
        if self._loaded is None and self._delays.should_defer():
            return None
        self._start_if_one_is_free()
        if self._compiler is not None and self._compiler.has_ended():
            self._code, error = self._compiler.result()
            self.close()
            if error:
                self._fail(error)
        if self._loaded is None and self._code is not None:
            for name in imported_names(self._source):
                runtime_library.load(name)
            self._loaded, self._code = LoadedObject(self._code), None
        return None if self._loaded is None else self._loaded.enter

    def error(self) -> str:
        """Return the compiler's message if it has failed; the program is then always replayed."""
        self.function()
        return self._error

    def close(self) -> None:
        """Stop the compilation."""
        self._waits = False
        if self._compiler is not None:
            self._compiler.close()
            self._compiler = None

    def _start_if_one_is_free(self) -> None:
        if not self._waits or not _has_free_helper():
            return
        self._waits = False
        try:
            self._compiler = _Compiler(self._source, self._name, self._arithmetic)
        except OSError as error:
            self._fail(f"it could not be started: {error}")
        else:
            _helpers.append(self._compiler.process)

    def _fail(self, error: str) -> None:
        self._error = error
        logger.warning("a program is replayed, for its compiler failed: %s", error)


_helpers: list[subprocess.Popen[bytes]] = []
"""Those that run, and ended ones. Workers that are threads start theirs without a lock, so for a
moment there may be one more."""


def _has_free_helper() -> bool:
    """Return True if fewer helpers than MAX_HELPERS run."""
    _helpers[:] = [process for process in _helpers if process.poll() is None]
    return len(_helpers) < MAX_HELPERS


@final
class _Compiler:
    """The helper process that compiles a source. Raises OSError if it cannot be started."""

    def __init__(self, source: str, name: str, arithmetic: str) -> None:
        imported = imported_names(source)
        missing = [function for function in imported if not runtime_library.is_ready(function)]
        self._files: list[int] = []
        try:
            text, self._code, self._messages = (self._new_file() for _ in range(3))
            os.write(text, source.encode())
            self.process = start_compiler(
                native_compiler, name, str(text), str(self._code), arithmetic, *missing,
                messages=self._messages, files=(text, self._code),
            )  # fmt: skip
        except OSError:
            self._close_files()
            raise

    def has_ended(self) -> bool:
        """Return True if the process has ended."""
        return self.process.poll() is not None

    def result(self) -> tuple[bytes | None, str]:
        """Return the object code of a process that has ended, or None and the error message.

        A fork of this process cannot wait for the helper, and gets neither.
        """
        if not self.process.returncode:
            return content(self._code) or None, ""
        messages = content(self._messages).decode(errors="replace")
        return None, messages or "the compiler was stopped"

    def close(self) -> None:
        """End the process."""
        if not self.has_ended():
            self.process.kill()
            self.process.wait()
            OBJECTS.remove_drafts()
        assert self.process.stdin is not None
        self.process.stdin.close()
        self._close_files()

    def _new_file(self) -> int:
        self._files.append(os.memfd_create("magmath-compiler"))
        return self._files[-1]

    def _close_files(self) -> None:
        while self._files:
            os.close(self._files.pop())
