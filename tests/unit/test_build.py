"""Compiled code on disk: the name of a source changes with all that its compiled form depends on."""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path

import pytest

from magmath.kernels import library
from magmath.kernels.build import Build
from magmath.machine import build

CALLED = {"from magmath.kernels.library import wait": "magmath.machine.compiler"} | {
    library.EXPORTS[name].source: "" for name in ("tiled_gemm_float32", "wait", "uniform32")
}


@pytest.mark.parametrize("source", CALLED)
def test_a_change_of_any_module_renames_what_depends_on_it(
    source: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MAGMATH_CACHE", str(tmp_path))
    compiler = CALLED[source]
    before = build.written(source, compiler)
    text = build._code_of
    modules = build._modules(f"from {compiler} import it\n{source}" if compiler else source)
    assert len(modules) > 3
    for module in modules:
        monkeypatch.setattr(
            build, "_code_of", lambda name, changed=module: text(name) + b"#" * (name == changed)
        )
        assert build.written(source, compiler) != before
    monkeypatch.setattr(build, "_code_of", text)
    assert build.written(source, compiler) == before


def test_all_modules_that_the_compiler_loads_are_seen() -> None:
    """Whatever spelling they are imported by: the compiler's own modules are known here."""
    seen = build._modules("from magmath.machine.compiler import compile_source")
    own = {n for n in ("compiler", "functions", "values") if f"magmath.machine.{n}" in sys.modules}
    assert {f"magmath.machine.{name}" for name in own} <= set(seen)
    assert {"magmath.kernels.tile", "magmath.machine.vectors"} <= set(
        build._modules("from magmath.kernels import tiled")
    )


def test_a_program_that_cannot_be_compiled_is_told_of(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MAGMATH_CACHE", str(tmp_path))
    made = Build("def run(steps: int64) -> int64:\n    return no_such_function(steps)\n")
    with caplog.at_level(logging.WARNING):
        while not made.error():
            assert made.function() is None
            time.sleep(0.01)
    assert "no_such_function" in made.error()
    (told,) = caplog.records
    assert "no_such_function" in told.getMessage()
    assert made.function() is None
    assert len(caplog.records) == 1
