"""A function that returns a bool has the name of a predicate, or of the action whose success it
returns."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2] / "src/magmath"
PREFIXES = ("is", "has", "can", "should", "are", "have")
"""First words of predicates; the last two are of several objects, as in `are_identical(x, y)`."""
VERBS = ("contains", "overlaps", "reads", "refers")
"""Verbs that predicates may begin with: terms of sets, of dependence analysis and of references,
for which no name with a prefix is as plain."""
ACTIONS = (
    "add",
    "apply",
    "compute",
    "drop",
    "emit",
    "exchange",
    "execute",
    "handle",
    "join",
    "permit",
    "poll",
    "record",
    "release",
    "report",
    "return",
    "set",
    "try",
    "update",
    "verify",
    "wait",
    "write",
)
"""First words of functions that do something and return whether it was done, or must stop."""
FOREIGN_NAMES = {
    "callback": "a policy of pyzmq",
    "closed": "as of Python's files",
    "iscomplexobj": "NumPy's",
    "isdtype": "the array API standard's",
    "isrealobj": "NumPy's",
    "isscalar": "NumPy's",
    "issubdtype": "NumPy's",
    "may_share_memory": "NumPy's",
    "shares_memory": "NumPy's",
    "trainable": "Keras'",
}
"""Names that others have chosen."""


def _is_field(node: ast.FunctionDef) -> bool:
    """Return True for a property of a protocol: the classes that have it may declare a field."""
    return any(ast.unparse(x) == "property" for x in node.decorator_list)


def _functions(source: str) -> set[str]:
    """Return the names of functions, methods and properties that return a bool."""
    tree = ast.parse(source)
    classes = [x for x in ast.walk(tree) if isinstance(x, ast.ClassDef)]
    protocols = [x for x in classes if "Protocol" in [ast.unparse(base) for base in x.bases]]
    members = [x for c in protocols for x in c.body if isinstance(x, ast.FunctionDef)]
    fields = {x for x in members if _is_field(x)}
    return {
        x.name
        for x in ast.walk(tree)
        if isinstance(x, ast.FunctionDef | ast.AsyncFunctionDef)
        and (x.returns is not None and ast.unparse(x.returns) == "bool")
        and x not in fields
        and not x.name.startswith("__")
    }


def _first_word(name: str) -> str:
    return name.lstrip("_").partition("_")[0]


def _unusual(names: set[str]) -> set[str]:
    """Return the names that neither have a prefix nor are listed."""
    return {
        x
        for x in names - FOREIGN_NAMES.keys()
        if _first_word(x) not in {*PREFIXES, *VERBS, *ACTIONS}
    }


def test_functions_that_return_a_bool_are_predicates_or_actions() -> None:
    functions = {
        str(path.relative_to(ROOT)): _functions(path.read_text(encoding="utf-8"))
        for path in sorted(ROOT.rglob("*.py"))
    }
    assert {file: _unusual(x) for file, x in functions.items() if _unusual(x)} == {}
    names = set().union(*functions.values())
    assert {*VERBS, *ACTIONS} <= set(map(_first_word, names)), "a listed word without a function"
    assert FOREIGN_NAMES.keys() <= names, "a listed name without a function"


def test_other_names_are_found() -> None:
    source = """
class Heap:
    @property
    def empty(self) -> bool: ...
    def _fits(self, size: int) -> bool: ...
    def is_full(self) -> bool: ...
    def __bool__(self) -> bool: ...
    async def frugal(self) -> bool:
        def held(x: int) -> bool: ...
        def have_holes(x: int, y: int) -> bool: ...
    def size(self) -> int: ...

class HeapLike(Protocol):
    @property
    def shared(self) -> bool: ...
    def listed(self) -> bool: ...
"""
    assert _unusual(_functions(source)) == {"empty", "_fits", "frugal", "held", "listed"}
