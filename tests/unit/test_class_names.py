"""A class name has one meaning: no two modules define classes, or a class and the alias of a type,
of one name for different ideas."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2] / "src/magmath"
NETWORK_TABLE = "a row of the benchmarks' description of networks, named like the layer"
SAME_IDEA = {
    "Array": "the class, and its name in a module that cannot import it",
    "Constant": "public families that are read as `initializers.Constant`, `schedules.Constant`",
    "Dense": NETWORK_TABLE,
    "Flatten": NETWORK_TABLE,
    "Identity": "public names that are read as `nn.Identity` and `initializers.Identity`",
    "Parallel": NETWORK_TABLE,
    "Residual": NETWORK_TABLE,
}
"""Names that several modules may define, with the reason."""
WITHOUT_ALIASES = ("bench", "cli", "reproduce")
"""Packages at the top, whose names are private to them."""


def _definitions() -> dict[str, set[str]]:
    """Return the modules that define each class whose name is not private to its module."""
    result: dict[str, set[str]] = defaultdict(set)
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                result[node.name].add(str(path.relative_to(ROOT)))
    return result


def _aliases() -> dict[str, set[str]]:
    """Return the modules that define each alias of a type, and each type variable."""
    result: dict[str, set[str]] = defaultdict(set)
    for path in ROOT.rglob("*.py"):
        module = path.relative_to(ROOT)
        if module.parts[0] in WITHOUT_ALIASES:
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names = node.targets if isinstance(node, ast.Assign) else []
            names = [node.target] if isinstance(node, ast.AnnAssign) else names
            for name in names:
                if isinstance(name, ast.Name) and re.match("[A-Z][A-Za-z]*[a-z]$", name.id):
                    result[name.id].add(str(module))
    return result


def test_no_alias_has_the_name_of_a_class() -> None:
    classes, aliases = _definitions(), _aliases()
    repeated = {
        name: sorted(aliases[name] | classes[name])
        for name in classes.keys() & aliases.keys() - SAME_IDEA.keys()
        if any(file.split("/")[0] not in WITHOUT_ALIASES for file in classes[name])
    }
    assert repeated == {}


def test_no_two_modules_use_a_class_name_for_different_ideas() -> None:
    repeated = {name: sorted(files) for name, files in _definitions().items() if len(files) > 1}
    assert {n: f for n, f in repeated.items() if n not in SAME_IDEA} == {}
    assert SAME_IDEA.keys() - _aliases().keys() <= repeated.keys(), "no longer repeated"
