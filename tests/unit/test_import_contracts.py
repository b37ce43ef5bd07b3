"""The contracts of imports in pyproject.toml fail on planted imports of every kind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
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
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_import_breaks_its_contract(name: str, tmp_path: Path) -> None:
    imports, contract = PLANTED[name]
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for file, text in imports:
        with (tmp_path / "src/magmath" / file).open("a") as source:
            source.write(f"\n{text}\n")
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "src"), "COLUMNS": "200"}
    found = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert found.returncode == 1, found.stderr
    broken = [line for line in found.stdout.splitlines() if "BROKEN" in line]
    assert any(line.startswith(contract) for line in broken), found.stdout
