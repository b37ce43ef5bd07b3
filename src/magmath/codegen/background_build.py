"""Compilation of native programs by a process in the background, with an on-disk cache.

While a program is replayed, a helper process compiles its source at low priority; afterwards this
process loads the object code in milliseconds. Source, code and messages are passed in anonymous
files in memory, so a program is compiled even if nothing can be written to disk. The helper ends
with this process: it waits for the end of its standard input. With the first program on a machine,
it also compiles the functions of `codegen/runtime_library.py` that the program calls.
"""

from __future__ import annotations

import atexit
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from threading import current_thread
from typing import TYPE_CHECKING, final

from magmath.codegen import runtime_library
from magmath.codegen.compiler import compile_source, imported_names
from magmath.codegen.object_cache import OBJECTS, cache_key
from magmath.codegen.object_loader import LoadedObject
from magmath.core.debugging import Delays

if TYPE_CHECKING:
    from magmath.codegen.aot_cache import AotModule

logger = logging.getLogger(__name__)

NICENESS = 10  # of the compiler, so that computations take precedence
END_WITH_PARENT = """\
import os, sys, threading
from magmath.core.disk_cache import exit_after_writes
threading.Thread(target=lambda: (sys.stdin.read(), exit_after_writes(1)), daemon=True).start()
"""
COMPILE = """\
name, source, code, niceness, arithmetic, *missing = sys.argv[1:]
os.nice(int(niceness))
from magmath.codegen.object_cache import OBJECTS
with OBJECTS.locked("compiler"):  # one compiler at a time, on the whole machine
    compiled = OBJECTS.read(name)  # another process may have compiled the same
    if compiled is None:
        from magmath.codegen.background_build import compile_file
        compiled = compile_file(int(source), arithmetic, missing)
        OBJECTS.write(name, compiled)
with open(int(code), "wb") as file:
    file.write(compiled)
"""

COMPILE_MODULE = """\
niceness, name, *arguments = sys.argv[1:]
os.nice(int(niceness))
from importlib import import_module
from magmath.codegen.object_cache import OBJECTS
with OBJECTS.locked("compiler"):
    import_module(name).code(*arguments).compile()
"""

Function = Callable[[int], int]
"""A native program; its argument is the address of the program's arguments, as
`codegen/compiler.py` describes."""


@final
class BackgroundBuild:
    """A native program during its compilation: `function()` returns None until it is ready.

    `arithmetic`: how floating-point operations may be changed (`codegen/values.py`).
    """

    def __init__(self, source: str, arithmetic: str = "fast") -> None:
        self._source = source
        self._loaded: LoadedObject | None = None
        self._compiler: _Compiler | None = None
        self._error = ""
        # Workers are threads of different names, or processes of different ranks.
        self._delays = Delays("build", current_thread().name, os.environ.get("PMI_RANK"))
        name = cache_key(source, arithmetic, runtime_library.signatures(imported_names(source)))
        self._code = OBJECTS.read(name)
        if self._code is None:
            try:
                self._compiler = _Compiler(source, name, arithmetic)
            except OSError as error:
                self._fail(f"it could not be started: {error}")

    def function(self) -> Function | None:
        """Return the compiled program, or None before its code exists."""
        if self._loaded is None and self._delays.should_defer():
            return None
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
        if self._compiler is not None:
            self._compiler.close()
            self._compiler = None

    def _fail(self, error: str) -> None:
        self._error = error
        logger.warning("a program is replayed, for its compiler failed: %s", error)


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
            files = [str(text), str(self._code)]
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    END_WITH_PARENT + COMPILE,
                    name,
                    *files,
                    str(NICENESS),
                    arithmetic,
                    *missing,
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=self._messages,
                pass_fds=(text, self._code),
            )
        except OSError:
            self._close_files()
            raise

    def has_ended(self) -> bool:
        """Return True if the process has ended."""
        return self._process.poll() is not None

    def result(self) -> tuple[bytes | None, str]:
        """Return the object code of a process that has ended, or None and the error message.

        A fork of this process cannot wait for the helper, and gets neither.
        """
        if not self._process.returncode:
            return _content(self._code) or None, ""
        messages = _content(self._messages).decode(errors="replace")
        return None, messages or "the compiler was stopped"

    def close(self) -> None:
        """End the process."""
        if not self.has_ended():
            self._process.kill()
            self._process.wait()
            OBJECTS.remove_drafts()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._close_files()

    def _new_file(self) -> int:
        self._files.append(os.memfd_create("magmath-compiler"))
        return self._files[-1]

    def _close_files(self) -> None:
        while self._files:
            os.close(self._files.pop())


@cache
def compile_in_background(module: str, *arguments: str) -> None:
    """Compile `code(*arguments)` of a module to the on-disk cache, in a process in the background.

    Nothing happens in further calls. Without a cache on disk the code remains uncompiled.
    """
    command = [
        sys.executable,
        "-c",
        END_WITH_PARENT + COMPILE_MODULE,
        str(NICENESS),
        module,
        *arguments,
    ]
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
    except OSError as error:
        logger.warning("%s is not used, for its compiler could not be started: %s", module, error)
    else:
        _background.append(process)


def is_code_ready(module: str, *arguments: str) -> bool:
    """Return True if `code(*arguments)` of a module is in the on-disk cache; otherwise start to
    compile it in the background."""
    code: AotModule = import_module(module).code(*arguments)
    if code.is_cached():
        return True
    compile_in_background(module, *arguments)
    return False


_background: list[subprocess.Popen[bytes]] = []


@atexit.register
def _stop_background() -> None:
    """End the compilers that this process has started."""
    while _background:
        process = _background.pop()
        process.kill()
        process.communicate()
        if not _background:
            OBJECTS.remove_drafts()


def compile_file(file: int, arithmetic: str, missing: Sequence[str]) -> bytes:
    """Compile a source to object code, after the functions that it calls and that are `missing` on
    disk."""
    source = _content(file).decode()
    for name in missing:
        runtime_library.load(name)
    external = runtime_library.signatures(imported_names(source))
    return compile_source(source, external, arithmetic=arithmetic)


def _content(file: int) -> bytes:
    """Return the whole content of an open file."""
    return os.pread(file, os.fstat(file).st_size, 0)
