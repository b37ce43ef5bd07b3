"""The contracts of imports in pyproject.toml, for imports of every kind.

A module that is named in a string counts as imported: an import by name would hide a circle.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LATE = "\ndef _late():\n    {}\n"
ANNOTATION = "\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    {}\n"
PLANTED = {
    "a circle of two files": (
        [("optim/adam.py", "from magmath.optim import adagrad"),
         ("optim/adagrad.py", "from magmath.optim import adam")],
        "No cycle of files in any package",
    ),
    "a circle through a function": (
        [("graph/operation.py", LATE.format("from magmath.graph.structure import structure_of"))],
        "No cycle of files in any package",
    ),
    "a circle through an annotation": (
        [("graph/operation.py", ANNOTATION.format("from magmath.graph.graph import Graph"))],
        "No cycle of files in any package",
    ),
    "an import upwards": (
        [("core/shapes.py", "from magmath.optim import adam")],
        "Imports go downwards only",
    ),
    "nodes in the runtime": (
        [("runtime/pool.py", ANNOTATION.format("from magmath.graph.operation import Node"))],
        "The runtime passes expressions through",
    ),
    "an import by name": (
        [("core/shapes.py", LATE.format("__import__('magmath.optim.adam')"))],
        "Imports go downwards only",
    ),
    "a circle through a table of names": (
        [("kernels/dispatch/candidate.py", "ROWS = {'gemm': 'magmath.kernels.gemm.gemm'}")],
        "No cycle of files in any package",
    ),
    "a circle through the text of a program": (
        [("graph/operation.py", "CODE = 'import sys\\nfrom magmath.graph.graph import Graph'")],
        "No cycle of files in any package",
    ),
}  # fmt: skip


COMMANDS = {
    "runtime/transport/processes.py": "magmath.runtime.process",
}
"""Files that start another module as a process, which is no import."""

IMPORTERS = {
    "__init__.py": "the facade: its names are loaded on first use",
    "arrays/protocols/namespace.py": "the facade, as array protocols return it: `x.sum()` is a name",
    "bench/peers/service.py": "a contestant that another process names",
    "bench/numpy_programs/__init__.py": "its own files, by the names that the command line lists",
    "codegen/aot_cache.py": "`ir_modules`, whose sources are read before one is loaded",
    "codegen/module_compiler.py": "the module of a function that another process has passed",
    "core/optional_packages.py": "packages of others",
}
"""The files that import modules by name, and which modules these are."""


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_import_breaks_its_contract(name: str, tmp_path: Path) -> None:
    imports, contract = PLANTED[name]
    sources = copied(tmp_path)
    for file, text in imports:
        with (sources / file).open("a") as source:
            source.write(f"\n{text}\n")
    result = checked(tmp_path)
    assert result.returncode == 1, result.stderr
    broken = [line for line in result.stdout.splitlines() if "BROKEN" in line]
    assert any(line.startswith(contract) for line in broken), result.stdout


def test_modules_that_are_named_in_strings_obey_the_contracts(tmp_path: Path) -> None:
    copied(tmp_path)
    result = checked(tmp_path)
    assert result.returncode == 0, result.stdout


def test_only_these_files_import_by_name(tmp_path: Path) -> None:
    assert set(importers(ROOT / "src/magmath")) == IMPORTERS.keys()
    sources = copied(tmp_path)
    for planted in (
        "from importlib import import_module as load",
        "x = __import__('os')",
        'sys.modules["magmath"]',
    ):
        (sources / "core/shapes.py").write_text(planted)
        assert "core/shapes.py" in importers(sources)


def copied(folder: Path) -> Path:
    """Return a copy of the sources, with the contracts."""
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder / "src/magmath"


def checked(folder: Path) -> subprocess.CompletedProcess[str]:
    """Check the contracts of a copy, in which modules that strings name are imported."""
    for file in (folder / "src/magmath").rglob("*.py"):
        if names := [*named_modules(file, folder / "src")]:
            with file.open("a") as source:
                source.writelines(LATE.format(f"import {name}") for name in names)
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    env = {**os.environ, "PYTHONPATH": str(folder / "src"), "COLUMNS": "200"}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)


def named_modules(file: Path, root: Path) -> Iterator[str]:
    """Yield the other modules that the strings of a file name, apart from its packages."""
    own = ".".join(file.relative_to(root).with_suffix("").parts)
    command = COMMANDS.get(str(file.relative_to(root / "magmath")))
    for text in strings(file):
        for name in re.findall(
            r"^(?:\s*(?:from|import) )?(magmath(?:\.\w+)+)(?![\w.])", text, re.M
        ):
            path = root.joinpath(*name.split("."))
            is_module = path.with_suffix(".py").exists() or (path / "__init__.py").exists()
            is_own = f"{own}.".startswith(f"{name}.")
            if is_module and not is_own and name != command:
                yield name


def strings(file: Path) -> Iterator[str]:
    """Yield the strings of a file that are no docstrings."""
    tree = ast.parse(file.read_text())
    texts = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in texts:
            yield node.value


def importers(root: Path) -> list[str]:
    """Return the files that use a function which imports a module by name."""
    pattern = re.compile(
        r'\b(import_module|__import__|find_loader|load_module)\b|\bmodules\["magmath'
    )
    files = sorted(root.rglob("*.py"))
    return [str(file.relative_to(root)) for file in files if pattern.search(file.read_text())]
