"""Compilation of kernels by processes in the background, to the on-disk cache.

Until its code is on disk, a kernel is no candidate, so nothing waits for the compiler.
"""

from __future__ import annotations

import atexit
import logging
import subprocess
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from magmath.codegen import module_compiler
from magmath.codegen.compiler_process import start_compiler
from magmath.codegen.object_cache import OBJECTS

if TYPE_CHECKING:
    from magmath.codegen.aot_cache import AotModule

logger = logging.getLogger(__name__)


def is_code_ready(code: Callable[..., AotModule], *arguments: str) -> bool:
    """Return True if `code(*arguments)` is in the on-disk cache; otherwise start to compile it in
    the background. `code` is a function of a module, by whose name the compiler finds it."""
    if code(*arguments).is_cached():
        return True
    compile_in_background(code, *arguments)
    return False


@cache
def compile_in_background(code: Callable[..., AotModule], *arguments: str) -> None:
    """Compile `code(*arguments)` to the on-disk cache, in a process in the background.

    Nothing happens in further calls. Without a cache on disk the code remains uncompiled.
    """
    module = code.__module__
    try:
        process = start_compiler(module_compiler, module, code.__name__, *arguments)
    except OSError as error:
        logger.warning("%s is not used, for its compiler could not be started: %s", module, error)
    else:
        _background.append(process)


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
