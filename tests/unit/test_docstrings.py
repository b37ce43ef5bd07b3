"""Every public function, class and method has a docstring, its own or that of the method that it
overrides."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "src/magmath"
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(ROOT.rglob("*.py"))}
Definition = ast.FunctionDef | ast.ClassDef


def _name(expression: ast.expr) -> str:
    """Return the last name of a base class or a decorator, without its arguments."""
    match expression:
        case ast.Subscript(value=value) | ast.Call(func=value):
            return _name(value)
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""


def _bases_and_documented() -> dict[str, list[tuple[list[str], set[str]]]]:
    """Return, for the classes of each name, their bases, and the methods that they document."""
    classes = defaultdict(list)
    for tree in TREES.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                methods = [x for x in node.body if isinstance(x, ast.FunctionDef)]
                documented = {x.name for x in methods if ast.get_docstring(x)}
                classes[node.name].append(([_name(base) for base in node.bases], documented))
    return classes


CLASSES = _bases_and_documented()


def _inherits_docstring(owner: str, method: str, seen: frozenset[str] = frozenset()) -> bool:
    """Return True if a base of a class documents the method."""
    if owner in seen:
        return False
    for bases, _ in CLASSES.get(owner, []):
        for base in bases:
            if any(method in documented for _, documented in CLASSES.get(base, [])):
                return True
            if _inherits_docstring(base, method, seen | {owner}):
                return True
    return False


def _is_documented(node: Definition, owner: str | None) -> bool:
    if ast.get_docstring(node):
        return True
    if isinstance(node, ast.ClassDef):  # or __doc__ = that of a base class
        targets = [x.targets[0] for x in node.body if isinstance(x, ast.Assign)]
        return any(isinstance(x, ast.Name) and x.id == "__doc__" for x in targets)
    if any(_name(x) in ("overload", "setter", "deleter") for x in node.decorator_list):
        return True
    return owner is not None and _inherits_docstring(owner, node.name)


def _undocumented(node: ast.AST, owner: str | None = None) -> Iterator[str]:
    """Yield the public definitions of a module or class without a docstring.

    Declarations for type checkers have none: the objects that exist at run time are documented.
    """
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            for other in child.orelse:
                yield from _undocumented(ast.Module([other], []), owner)
        elif isinstance(child, (ast.If, ast.Try)):
            yield from _undocumented(child, owner)
        elif isinstance(child, (ast.FunctionDef, ast.ClassDef)) and not child.name.startswith("_"):
            if not _is_documented(child, owner):
                yield f"{owner}.{child.name}" if owner else child.name
            if isinstance(child, ast.ClassDef):
                yield from _undocumented(child, child.name)


def test_the_search_finds_what_has_no_docstring() -> None:
    source = """
def documented(): "Return nothing."
def function(): ...
class Thing:
    def method(self): ...
    def _private(self): ...
"""
    assert [*_undocumented(ast.parse(source))] == ["function", "Thing", "Thing.method"]


@pytest.mark.parametrize("package", sorted({p.relative_to(ROOT).parts[0] for p in TREES}))
def test_public_definitions_have_docstrings(package: str) -> None:
    result = {
        str(path.relative_to(ROOT)): names
        for path, tree in TREES.items()
        if path.relative_to(ROOT).parts[0] == package and (names := [*_undocumented(tree)])
    }
    assert result == {}


def test_modules_have_docstrings() -> None:
    assert [p for p, tree in TREES.items() if tree.body and not ast.get_docstring(tree)] == []
