"""Compiled code on disk: its cache key changes with each of its inputs."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from magmath.codegen import object_cache
from magmath.codegen.aot_cache import AotModule
from magmath.codegen.memory_copy import COPY_IR_MODULE, COPY_SOURCE
from magmath.comm import barrier
from magmath.executor import native_build
from magmath.executor.native_build import NativeBuild
from magmath.kernels.conv import winograd_forms, winograd_transforms
from magmath.kernels.gemm import microkernel, packed_gemm

MACHINE = sorted(Path(object_cache.__file__).parent.glob("*.py"))
PROGRAM = "from magmath.kernels.runtime_library import wait\n"
NAMES: dict[str, tuple[Callable[[], str], list[Path]]] = {
    "a program": (lambda: object_cache.cache_key(PROGRAM), MACHINE),
    "a library": (lambda: AotModule(barrier.BARRIER_SOURCE, ["wait"])._key, MACHINE),
    "tiles": (
        lambda: AotModule("", [], ir_modules=["magmath.kernels.gemm.microkernel"])._key, [*MACHINE, Path(microkernel.__file__)],
    ),
    "what imports others": (
        lambda: AotModule("", [], ir_modules=["magmath.kernels.conv.winograd_transforms"])._key,
        [*MACHINE, Path(winograd_transforms.__file__), Path(winograd_forms.__file__)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("which", NAMES)
def test_a_change_of_any_module_renames_what_depends_on_it(
    which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, modules = NAMES[which]
    before, text = name(), object_cache.module_source
    assert len(modules) > 5
    for module in modules:
        monkeypatch.setattr(
            object_cache,
            "module_source",
            lambda path, changed=module: text(path) + b"#" * (path == changed),
        )
        object_cache.toolchain_fingerprint.cache_clear()
        assert name() != before
    monkeypatch.undo()
    object_cache.toolchain_fingerprint.cache_clear()
    assert name() == before


def test_a_change_of_a_source_or_its_constants_renames_it() -> None:
    variants = [
        AotModule(COPY_SOURCE, ["copy"], ir_modules=[COPY_IR_MODULE]),
        AotModule(COPY_SOURCE + "\n", ["copy"], ir_modules=[COPY_IR_MODULE]),
        AotModule(COPY_SOURCE, [], ir_modules=[COPY_IR_MODULE]),
        AotModule(COPY_SOURCE, ["copy"], ir_modules=[COPY_IR_MODULE], constants={"X": 1}),
        AotModule(COPY_SOURCE, ["copy"], ir_modules=[COPY_IR_MODULE], constants={"X": 2}),
        AotModule(COPY_SOURCE, ["copy"], ir_modules=[COPY_IR_MODULE], arithmetic="fast"),
        AotModule(
            COPY_SOURCE,
            ["copy"],
            ir_modules=[COPY_IR_MODULE],
            external={"f": ("g", ("int64",), "")},
        ),
        packed_gemm.code("float32"),
    ]
    assert len({variant._key for variant in variants}) == len(variants)


def test_code_for_other_features_of_the_processor_is_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A virtual machine may hide features of a processor of the same name, with the same cache."""
    before = object_cache.cache_key(PROGRAM)
    hidden = sorted(object_cache.cpu_features())[:1]
    fewer = object_cache.cpu_features().difference(hidden)
    monkeypatch.setattr(object_cache, "cpu_features", lambda: fewer)
    object_cache.toolchain_fingerprint.cache_clear()
    other = object_cache.cache_key(PROGRAM)
    monkeypatch.undo()
    object_cache.toolchain_fingerprint.cache_clear()
    assert hidden
    assert other != before == object_cache.cache_key(PROGRAM)


def test_one_process_compiles_what_all_want(tmp_path: Path) -> None:
    """Pools start with many processes that all want the same code at once."""
    script = (
        "import sys; from magmath.codegen.aot_cache import AotModule;"
        "AotModule('def same(x: int64) -> int64:\\n    return x\\n', ['same']).address('same');"
        "print('magmath.codegen.compiler' in sys.modules)"
    )
    environment = {"MAGMATH_CACHE": str(tmp_path), "PYTHONPATH": str(MACHINE[0].parents[2])}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=environment
        )
        for _ in range(4)
    ]
    said = sorted(process.communicate()[0].strip() for process in started)
    assert said == ["False", "False", "False", "True"]


def test_few_programs_are_compiled_at_a_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MAGMATH_CACHE", str(tmp_path))
    sources = [f"def run(steps: int64) -> int64:\n    return steps + {i}\n" for i in range(5)]
    builds = [NativeBuild(source) for source in sources]
    functions = [build.function() for build in builds]
    while not all(functions):
        running = [one for one in native_build._helpers if one.poll() is None]
        assert len(running) <= native_build.MAX_HELPERS
        functions = [build.function() for build in builds]
    arguments = np.array([3])
    results = [function(arguments.ctypes.data) for function in functions if function is not None]
    assert results == [3, 4, 5, 6, 7]
    for build in builds:
        build.close()


def test_a_program_that_waits_for_a_compiler_may_be_closed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MAGMATH_CACHE", str(tmp_path))
    monkeypatch.setattr(native_build, "MAX_HELPERS", 0)
    build = NativeBuild("def run(steps: int64) -> int64:\n    return steps\n")
    assert build.function() is None
    build.close()
    monkeypatch.setattr(native_build, "MAX_HELPERS", 1)
    assert build.function() is None
    assert build._compiler is None


def test_a_program_that_cannot_be_compiled_is_told_of(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MAGMATH_CACHE", str(tmp_path))
    made = NativeBuild("def run(steps: int64) -> int64:\n    return no_such_function(steps)\n")
    with caplog.at_level(logging.WARNING):
        while not made.error():
            assert made.function() is None
            time.sleep(0.01)
    assert "no_such_function" in made.error()
    (told,) = caplog.records
    assert "no_such_function" in told.getMessage()
    assert made.function() is None
    assert len(caplog.records) == 1
