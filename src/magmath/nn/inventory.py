"""The parts of a module: variables and modules by path, found in one walk over its attributes.

The result is cached until an attribute of any module is replaced, or a list or dictionary of parts
has other items, so a training step does not walk. The cache belongs to the module, so it refers to
the module weakly: the memory of a network is freed with its last reference.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar, final
from weakref import ref

from magmath.arrays.array import Array
from magmath.arrays.variables.variable import Variable
from magmath.arrays.variables.variable_list import is_module
from magmath.core.identity import are_identical
from magmath.errors import MagmathError, StateError
from magmath.nn.variables import Deferred, is_layer, variables_made

ModulePart = Any  # a module, variable, Deferred, list, tuple or dictionary

_generation = 0


def invalidate_inventories() -> None:
    """Invalidate all inventories after an attribute of a module was replaced."""
    global _generation
    _generation += 1


class Composite(Protocol):
    """The interface of a module to the walk."""

    def parts(self) -> Iterable[tuple[str, Any]]:
        """Return the attributes by name, in which the walk finds modules and variables."""


CompositeType = TypeVar("CompositeType", bound=Composite)


@final
class ModuleStructure:
    """The contents of the lists and dictionaries of a module that had modules, variables, or
    nothing in them when a function was traced."""

    def __init__(self, contents: list[tuple[Any, list[Any]]], kinds: tuple[type, ...]) -> None:
        self._contents = contents
        self._kinds = kinds

    def is_unchanged(self) -> bool:
        """Return True if they have the same modules and variables."""
        return all(self._has_same(container, items) for container, items in self._contents)

    def foreign_arrays(self) -> Sequence[Any]:
        """Return no arrays: modules have variables."""
        return ()

    def changed_name(self) -> None:
        """Return None: a module's contents are no names."""

    def _has_same(self, container: Any, items: list[Any]) -> bool:
        if not items:  # it may be a list of results
            present = _items(container)
            return not present or not isinstance(present[0], self._kinds)
        return are_identical(_items(container), items)


@final
class Inventory(Generic[CompositeType]):
    """The parts of a module, each under the first path at which it was found.

    module_class  the class of all modules
    variables     by path; `modules` likewise, the module itself under ""
    aliases       further paths of variables, and the path under which `variables` has them
    deferred      the variables without a shape so far
    former        the inventory of an earlier walk
    """

    def __init__(
        self,
        root: CompositeType,
        module_class: type[CompositeType],
        former: Inventory[CompositeType] | None = None,
    ) -> None:
        self._module_class = module_class
        self.variables: dict[str, Variable] = {}
        self._root = ref(root)
        self._inner: dict[str, CompositeType] = {}
        self.aliases: dict[str, str] = {}
        self.deferred: dict[str, Deferred] = {}
        self._paths: dict[int, str] = {}  # paths of found parts, by id
        self._repeated: list[tuple[str, str]] = []  # paths of modules that were found again
        self._open: set[int] = set()  # modules that contain the current one
        self._containers: list[tuple[Any, list[Any]]] = []
        known = () if former is None else former._containers
        self._former = {id(container): items for container, items in known}
        self._generation = _generation
        self.variables_made = variables_made()
        """The number of variables of all modules when these parts were known to be all."""
        self.has_states = False
        """True if the modules have made their states of known shapes."""
        self._visit(root, "")
        self._former = {}
        self._add_aliases()
        self._check_names()

    @property
    def modules(self) -> dict[str, CompositeType]:
        """The modules by path, the module itself first."""
        root = self._root()
        assert root is not None, "the module owns its inventory"
        return {"": root, **self._inner}

    @property
    def is_current(self) -> bool:
        """Return True if another walk would find the same parts."""
        return self._generation == _generation and all(
            are_identical(_items(container), items) for container, items in self._containers
        )

    @cached_property
    def structure(self) -> ModuleStructure:
        """The contents of lists and dictionaries that have modules or variables."""
        kinds = (self._module_class, *_VARIABLES)
        return ModuleStructure(
            [
                (container, items)
                for container, items in self._containers
                if not items or any(isinstance(item, kinds) for item in items)
            ],
            kinds,
        )

    def _check_items(self, container: Any, path: str) -> None:
        """Raise TypeError if an item of a list or dictionary is an array, and was a variable in the
        former walk."""
        items = self._former.get(id(container), ())
        keys = list(container.keys()) if isinstance(container, dict) else range(len(items))
        for key, former, item in zip(keys, items, _items(container), strict=False):
            if isinstance(former, _VARIABLES) and _is_plain(item):
                check_replacement(type(self._root()).__name__, f"{path}[{key!r}]", former, item)

    def _visit(self, part: ModulePart, path: str) -> None:
        if isinstance(part, self._module_class):
            self._visit_module(part, path)
        elif isinstance(part, (Variable, Deferred)):
            self._visit_variable(part, path)
        elif isinstance(part, (list, tuple, dict)):
            if not isinstance(part, tuple):
                self._check_items(part, path)
                self._containers.append((part, _items(part)))
            entries = part.items() if isinstance(part, dict) else enumerate(part)
            for key, item in entries:
                self._visit(item, joined_path(path, str(key)))

    def _visit_module(self, module: CompositeType, path: str) -> None:
        if id(module) in self._paths:
            if id(module) not in self._open:
                self._repeated.append((path, self._paths[id(module)]))
            return
        self._paths[id(module)] = path
        if path:
            _add_part(self._inner, path, module)
        self._open.add(id(module))
        for name, part in module.parts():
            self._visit(part, joined_path(path, name))
        self._open.remove(id(module))

    def _visit_variable(self, variable: Variable | Deferred, path: str) -> None:
        if id(variable) in self._paths:
            self.aliases[path] = self._paths[id(variable)]
            return
        self._paths[id(variable)] = path
        if isinstance(variable, Deferred):
            _add_part(self.deferred, path, variable)
        else:
            _add_part(self.variables, path, variable)

    def _add_aliases(self) -> None:
        """Add the paths of the variables of modules that were found repeatedly."""
        for repeated, first in self._repeated:
            known = {path: path for path in self.variables} | self.aliases
            for path, owner in known.items():
                if path.startswith(f"{first}."):
                    self.aliases[joined_path(repeated, path[len(first) + 1 :])] = owner

    def _check_names(self) -> None:
        for alias in self.aliases:
            if alias in self.variables:
                raise _duplicate_path_error(alias)


_VARIABLES = (Variable, Deferred)


def check_replacement(owner: str, name: str, former: ModulePart, value: ModulePart) -> None:
    """Raise TypeError if a value that is not a variable would replace a variable of a module.

    Such a module would lose a parameter: training and checkpoints would not include the value.
    None, modules and other variables may replace a variable.
    """
    if isinstance(former, _VARIABLES):
        if value is None or isinstance(value, (*_VARIABLES, list, tuple, dict)):
            return
        if is_module(value):
            return
        variable = former
    else:
        variables = [part for part in _leaves(former) if isinstance(part, _VARIABLES)]
        if not variables or not any(map(_is_plain, _leaves(value))):
            return
        variable = variables[0]
    kind = variable.kind.__name__ if isinstance(variable, Deferred) else type(variable).__name__
    replacement = f"mm.nn.{kind}(x)" if kind != "Variable" else "mm.variable(name, x)"
    condition = "after module.build(shape) " if isinstance(variable, Deferred) else ""
    raise TypeError(
        f"{owner}: {name} is a {kind.lower()}, was given {type(value).__name__}, which training "
        f"and checkpoints would not include; {condition}assign its value with "
        f"module.{name}.assign(x), or replace it by {replacement}"
    )


def _is_plain(part: ModulePart) -> bool:
    """Return True for an array that is not a variable."""
    is_array = isinstance(part, Array) or hasattr(part, "__dlpack__")
    return is_array and not isinstance(part, Variable)


def _leaves(part: ModulePart) -> Iterator[ModulePart]:
    if isinstance(part, (list, tuple, dict)):
        for item in _items(part):
            yield from _leaves(item)
    else:
        yield part


def name_by_path(variables: Mapping[str, Variable]) -> None:
    """Name each variable by its path, the longest one if several modules contain it."""
    for path, variable in variables.items():
        suffix = f".{variable.name}"
        if variable.name in _UNNAMED or f".{path}".endswith(suffix):
            variable.name = path


_UNNAMED = ("parameter", "buffer", "rng_state")


def joined_path(path: str, name: str) -> str:
    """Return the path of an attribute or item."""
    return f"{path}.{name}" if path else name


def _add_part(table: dict[str, Any], path: str, part: ModulePart) -> None:
    if path in table:
        raise _duplicate_path_error(path)
    table[path] = part


def _duplicate_path_error(path: str) -> MagmathError:
    return StateError(
        f"Module: two different parts have the path {path!r}, so their names in checkpoints would "
        f"be the same; rename an attribute, or a key of a dictionary (keys with dots, and keys 1 "
        f"and '1', give the same path)"
    )


def _items(container: Any) -> list[Any]:
    return list(container.values() if isinstance(container, dict) else container)


def missing_variable_error(
    operation: str, inventory: Inventory[Any], path: str, called: Collection[int] | None = None
) -> MagmathError:
    """Return the error about the variable with this path, which has no shape.

    `called` are the ids of the modules that a call has called, if there was one just now.
    """
    modules = inventory.modules
    owner, _, name = path.rpartition(".")
    layer = modules.get(owner, modules[""])
    kind = type(layer)
    if called is None:
        materialize_hint = (
            f"; {kind.__name__}.__call__ makes it with self.materialize({name}=shape)"
        )
        reason = (
            f"yet, because it has received no input; first call module.build(shape) with the shape "
            f"of an input, or call the module{'' if is_layer(kind) else materialize_hint}"
        )
        if any(other.rpartition(".")[0] != owner for other in inventory.variables):
            reason += (
                f"; if {type(modules['']).__name__} has been called, its call does not use this "
                f"layer: call it in __call__, or remove it"
            )
    elif id(layer) in called:
        reason = (
            f"after its call; call self.materialize({name}=shape) in {kind.__name__}.__call__ "
            f"before the variable is used"
        )
    else:
        reason = (
            f"because the call of {type(modules['']).__name__} does not call this layer; call it "
            f"in __call__, or remove it"
        )
    where = f" {owner!r}" if owner else ""
    return StateError(f"{operation}: the layer{where} ({kind.__name__}) has no {name} {reason}")
