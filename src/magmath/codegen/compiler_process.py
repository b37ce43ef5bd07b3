"""Compilers in processes of their own: at low priority, one at a time on a machine.

A compiler ends with the process that has started it: it waits for the end of its standard input.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Thread
from types import ModuleType

from magmath.codegen.object_cache import OBJECTS
from magmath.core.disk_cache import exit_after_writes
from magmath.core.python_processes import module_command, search_path
from magmath.core.thread_placement import release_caller

NICENESS = 10  # of the compiler, so that computations take precedence


def start_compiler(
    module: ModuleType,
    *arguments: str,
    messages: int = subprocess.DEVNULL,
    files: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a module that compiles `arguments` within `compiler_process`.

    It inherits `files`, and writes its errors to the file `messages`. Raises OSError if the
    process cannot be started.
    """
    release_caller()  # the process would be bound too
    return subprocess.Popen(
        [*module_command(module.__name__), str(NICENESS), *arguments],
        env=os.environ | search_path(os.environ),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=messages,
        pass_fds=files,
    )


@contextmanager
def compiler_process(niceness: str) -> Iterator[None]:
    """Run the block as the only compiler on the machine, at this priority; the process ends with
    its parent."""
    Thread(target=_end_with_parent, daemon=True).start()
    os.nice(int(niceness))
    with OBJECTS.locked("compiler"):
        yield


def _end_with_parent() -> None:
    sys.stdin.read()
    exit_after_writes(1)
