"""Selectors for tests that use exactly one executor of a program's steps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pytest

from magmath.codegen.compiler import compile_source, imported_names
from magmath.codegen.object_loader import LoadedObject
from magmath.executor import native_build, step_loop
from magmath.kernels import runtime_library


def use_native_code(patch: pytest.MonkeyPatch, selector: Any = None) -> None:
    """Let programs run natively, compiled in this process: by default where they have a native
    form."""
    patch.setattr(step_loop, "ExecutorSelector", selector or NativeWherePossible)
    patch.setattr(native_build, "NativeBuild", Compiled)


def only(position: int) -> Any:
    """Return a selector that waits for one compiled executor: 0 the native function, 1 the team.

    It replaces `ExecutorSelector`. `used` has the name of the executor once for each run.
    """

    class Only:
        used: list[str] = []  # noqa: RUF012  shared by all selectors of the class
        is_undecided = False

        def __init__(
            self, context: Any, replay: Any, others: Callable[[], list[Any]], *_: Any
        ) -> None:
            self._executors = others()
            assert len(self._executors) > position, "the program has no such form"
            self._executor = self._executors[position]

        def start(self) -> None:
            while not self._executor.is_ready():
                assert not self._executor.error(), self._executor.error()
                time.sleep(0.02)
            self._executor.start()
            self.used.append(self._executor.name)

        def run(self, steps: int) -> list[float]:
            values: list[float] = self._executor.run(steps)
            return values

        def add_measurement(self, seconds: float, steps: int) -> None: ...

        def close(self) -> None:
            for executor in self._executors:
                executor.close()

    return Only


class Compiled:
    """Replaces `NativeBuild`: compiles a native program in this process, without a cache on
    disk. Workers with equal programs share the code."""

    _compiling = threading.Lock()

    def __init__(self, source: str, arithmetic: str = "fast") -> None:
        with self._compiling:
            self._loaded = _loaded(source, arithmetic)

    def function(self) -> Callable[[int], int]:
        return self._loaded.enter

    def error(self) -> str:
        return ""

    def close(self) -> None: ...


@lru_cache(maxsize=256)
def _loaded(source: str, arithmetic: str) -> LoadedObject:
    """The code of a source; `Compiled` serializes the calls."""
    for name in imported_names(source):
        runtime_library.load(name)
    outside = runtime_library.signatures(imported_names(source))
    return LoadedObject(compile_source(source, outside, arithmetic=arithmetic))


class NativeWherePossible:
    """Replaces `ExecutorSelector`: the native form, or replay if there is none."""

    used: list[str] = []  # noqa: RUF012  shared by all
    is_undecided = False

    def __init__(self, context: Any, replay: Any, others: Callable[[], list[Any]], *_: Any) -> None:
        self._executors = [*others()[:1], replay]
        self.executor = self._executors[0].name

    def start(self) -> None:
        self._executors[0].start()
        self.used.append(self.executor)

    def run(self, steps: int) -> list[float]:
        values: list[float] = self._executors[0].run(steps)
        return values

    def add_measurement(self, seconds: float, steps: int) -> None: ...

    def close(self) -> None:
        for executor in self._executors:
            executor.close()
