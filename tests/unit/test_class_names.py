"""A class name has one meaning: no two modules define classes of one name for different ideas."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2] / "src/magmath"
NETWORK_TABLE = "a row of the benchmarks' description of networks, named like the layer"
SAME_IDEA = {
    "Constant": "public families that are read as `initializers.Constant`, `schedules.Constant`",
    "Dense": NETWORK_TABLE,
    "Flatten": NETWORK_TABLE,
    "Identity": "public names that are read as `nn.Identity` and `initializers.Identity`",
    "Parallel": NETWORK_TABLE,
    "Residual": NETWORK_TABLE,
    "RngState": "a seed and the number of the next stream, of a pool and of a module",
    "Walked": "a protocol with the attributes of a module that the file uses",
}
"""Names that several modules may define, with the reason."""


def _definitions() -> dict[str, set[str]]:
    """Return the modules that define each class whose name is not private to its module."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].add(str(path.relative_to(ROOT)))
    return found


def test_no_two_modules_use_a_class_name_for_different_ideas() -> None:
    repeated = {name: sorted(files) for name, files in _definitions().items() if len(files) > 1}
    assert {n: f for n, f in repeated.items() if n not in SAME_IDEA} == {}
    assert SAME_IDEA.keys() <= repeated.keys(), "names that are no longer repeated"
