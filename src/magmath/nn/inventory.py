"""The parts of a module: variables and modules by path, found in one walk over its attributes.

The result is cached until an attribute of any module is replaced, or a list or dictionary of parts
has other items, so a training step does not walk. The cache belongs to the module, so it refers to
the module weakly: the memory of a network is freed with its last reference.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar, final
from weakref import ref

from magmath.arrays.variable import Variable
from magmath.errors import MagmathError
from magmath.nn.variables import Deferred

Part = Any  # a module, variable, Deferred, list, tuple or dictionary

_generation = 0


def note_change() -> None:
    """Invalidate all inventories after an attribute of a module was replaced."""
    global _generation
    _generation += 1


class Composite(Protocol):
    """The interface of a module to the walk."""

    def parts(self) -> Iterable[tuple[str, Any]]:
        """Return the attributes by name, in which the walk finds modules and variables."""


Kind = TypeVar("Kind", bound=Composite)


@final
class Inventory(Generic[Kind]):
    """The parts of a module, each under the first path at which it was found.

    kind       the class of all modules
    variables  by path; `modules` likewise, the module itself under ""
    aliases    further paths of variables, and the path under which `variables` has them
    deferred    the variables without a shape so far
    """

    def __init__(self, root: Kind, kind: type[Kind]) -> None:
        self._kind = kind
        self.variables: dict[str, Variable] = {}
        self._root = ref(root)
        self._inner: dict[str, Kind] = {}
        self.aliases: dict[str, str] = {}
        self.deferred: dict[str, Deferred] = {}
        self._paths: dict[int, str] = {}  # paths of found parts, by id
        self._repeated: list[tuple[str, str]] = []  # paths of modules that were found again
        self._open: set[int] = set()  # modules that contain the current one
        self._containers: list[tuple[Any, list[Any]]] = []
        self._generation = _generation
        self._visit(root, "")
        self._add_aliases()
        self._check_names()

    @property
    def modules(self) -> dict[str, Kind]:
        """The modules by path, the module itself first."""
        root = self._root()
        assert root is not None, "the module owns its inventory"
        return {"": root, **self._inner}

    @property
    def is_current(self) -> bool:
        """Return True if another walk would find the same parts."""
        return self._generation == _generation and all(
            _is_same(_items(container), items) for container, items in self._containers
        )

    def _visit(self, part: Part, path: str) -> None:
        if isinstance(part, self._kind):
            self._visit_module(part, path)
        elif isinstance(part, (Variable, Deferred)):
            self._visit_variable(part, path)
        elif isinstance(part, (list, tuple, dict)):
            if not isinstance(part, tuple):
                self._containers.append((part, _items(part)))
            entries = part.items() if isinstance(part, dict) else enumerate(part)
            for key, item in entries:
                self._visit(item, joined(path, str(key)))

    def _visit_module(self, module: Kind, path: str) -> None:
        if id(module) in self._paths:
            if id(module) not in self._open:
                self._repeated.append((path, self._paths[id(module)]))
            return
        self._paths[id(module)] = path
        if path:
            _put(self._inner, path, module)
        self._open.add(id(module))
        for name, part in module.parts():
            self._visit(part, joined(path, name))
        self._open.remove(id(module))

    def _visit_variable(self, variable: Variable | Deferred, path: str) -> None:
        if id(variable) in self._paths:
            self.aliases[path] = self._paths[id(variable)]
            return
        self._paths[id(variable)] = path
        if isinstance(variable, Deferred):
            _put(self.deferred, path, variable)
        else:
            _put(self.variables, path, variable)

    def _add_aliases(self) -> None:
        """Add the paths of the variables of modules that were found repeatedly."""
        for repeated, first in self._repeated:
            known = {path: path for path in self.variables} | self.aliases
            for path, owner in known.items():
                if path.startswith(f"{first}."):
                    self.aliases[joined(repeated, path[len(first) + 1 :])] = owner

    def _check_names(self) -> None:
        for alias in self.aliases:
            if alias in self.variables:
                raise _twice(alias)


def named(variables: Mapping[str, Variable]) -> Iterator[tuple[str, Variable]]:
    """Name each variable by its path, the longest one if several modules contain it."""
    for path, variable in variables.items():
        own = f".{variable.name}"
        if variable.name in _UNNAMED or f".{path}".endswith(own):
            variable.name = path
        yield path, variable


_UNNAMED = ("parameter", "buffer", "rng_state")


def joined(path: str, name: str) -> str:
    """Return the path of an attribute or item."""
    return f"{path}.{name}" if path else name


def _put(table: dict[str, Any], path: str, part: Part) -> None:
    if path in table:
        raise _twice(path)
    table[path] = part


def _twice(path: str) -> MagmathError:
    return MagmathError(
        f"Module: two different parts have the path {path!r}, so their names in checkpoints would "
        f"be the same; rename an attribute, or a key of a dictionary (keys with dots, and keys 1 "
        f"and '1', give the same path)"
    )


def _items(container: Any) -> list[Any]:
    return list(container.values() if isinstance(container, dict) else container)


def _is_same(items: list[Any], known: list[Any]) -> bool:
    return len(items) == len(known) and all(a is b for a, b in zip(items, known, strict=True))
