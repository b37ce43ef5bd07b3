"""The names by which a function reads objects from outside: globals, variables of enclosing
functions, and attributes of plain objects.

A function that is traced reads their objects during tracing. After one of the names is bound to
another object, such as a new network or a new optimizer, it must be traced again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, final
from weakref import ref

import numpy as np

OWN = __name__.split(".", maxsplit=1)[0]
_MISSING, _GONE = object(), object()
"""The values of a name that is not bound, and of an object that exists no more."""
MAX_ITEMS, MAX_BYTES = 64, 1 << 10
"""Sizes up to which the content of containers and of NumPy's arrays is compared at each call."""
_COMPARED = (bool, int, float, complex, str)
"""Types of which equal values are the same."""


@final
class ReadNames:
    """The names that functions read, and their objects, which are not kept alive."""

    def __init__(self, *functions: Any) -> None:
        self._names: list[tuple[Mapping[str, Any], str, _Held]] = []
        self._cells: list[tuple[CellType, str, _Held]] = []
        self._seen: set[tuple[int, object]] = set()
        for function in functions:
            self._read(function)
        self._seen.clear()

    def since(self, before: ReadNames) -> ReadNames:
        """Return these names, without the content of the objects that the function itself has
        changed since `before`, such as a list to which it appends."""
        contents = {id(held.value()): held for held in before._all_held()}
        for held in self._all_held():
            former = contents.get(id(held.value()))
            if former is not None and former.content != held.content:
                held.content = None
        return self

    def _all_held(self) -> list[_Held]:
        return [held for *_, held in self._names] + [held for *_, held in self._cells]

    def is_unchanged(self) -> bool:
        """Return True if all names are bound to the same objects."""
        for names, name, held in self._names:
            now, reference = names.get(name, _MISSING), held.reference
            # without a call for what is the same object, as nearly always
            former = held.strong if reference is None else reference()
            if now is former and now is not None and held.content is None:
                continue
            if not held.is_same(now):
                return False
        return all(held.is_same(_content(cell)) for cell, _, held in self._cells)

    def changed_name(self) -> str | None:
        """Return a name that is bound to another object; None if none is."""
        bound = [(name, names.get(name, _MISSING), held) for names, name, held in self._names]
        bound += [(name, _content(cell), held) for cell, name, held in self._cells]
        return next((name for name, now, held in bound if not held.is_same(now)), None)

    def _read(self, called: Any) -> None:
        """Add the names that a call of an object reads."""
        owner = getattr(called, "method_of", None)
        if owner is not None:  # a compiled method
            self._read_function(called.__wrapped__, owner())
        elif isinstance(called, partial):
            self._read(called.func)
        elif isinstance(called, MethodType):
            self._read_function(called.__func__, called.__self__)
        elif isinstance(called, FunctionType):
            self._read_function(called, None)
        elif callable(inner := getattr(called, "__wrapped__", None)):
            self._read(inner)
        else:
            self._read_function(getattr(type(called), "__call__", None), called)  # noqa: B004

    def _read_function(self, function: Any, owner: object) -> None:
        while callable(inner := getattr(function, "__wrapped__", None)):
            function = inner
        key = id(function), id(owner)
        if not isinstance(function, FunctionType) or key in self._seen:
            return
        self._seen.add(key)
        if _is_of_library(function.__module__):
            return
        used = {name for code in _codes(function.__code__) for name in code.co_names}
        names = function.__globals__
        for name in sorted(used & names.keys()):
            self._note(names, name, used)
        variables = function.__code__.co_freevars
        for name, cell in zip(variables, function.__closure__ or (), strict=True):
            content = _content(cell)
            self._cells.append((cell, name, _Held(content)))
            self._follow(content, used)
        if owner is not None:
            self._follow(owner, used)

    def _note(self, names: Mapping[str, Any], name: str, used: set[str]) -> None:
        value, key = names[name], (id(names), name)
        if key not in self._seen and not isinstance(value, ModuleType | type):
            self._seen.add(key)
            self._names.append((names, name, _Held(value)))
            self._follow(value, used)

    def _follow(self, value: Any, used: set[str]) -> None:
        """Add what a function reads that may call a value, or read attributes of it."""
        if isinstance(value, FunctionType | MethodType | partial) or hasattr(value, "__wrapped__"):
            self._read(value)
        elif not isinstance(value, type) and not _is_of_library(type(value).__module__):
            self._read_attributes(value, used)
            self._read(value)

    def _read_attributes(self, owner: Any, used: set[str]) -> None:
        """Add the attributes of a plain object, and its methods, that have these names."""
        attributes = getattr(owner, "__dict__", None)
        if not isinstance(attributes, dict):
            return
        notes_own = hasattr(type(owner), "named_parameters")  # a module
        for name in sorted(used & attributes.keys()):
            if not notes_own or _is_compared(attributes[name]):
                self._note(attributes, name, used)
        for name in sorted(used):
            method = getattr(type(owner), name, None)
            if isinstance(method, FunctionType):
                self._read_function(method, owner)


@final
class _Held:
    """An object, by a weak reference if it can have one; small containers of numbers and small
    arrays of NumPy with their content."""

    __slots__ = ("content", "reference", "strong")

    def __init__(self, value: object) -> None:
        self.strong: object = None
        self.content = _copied(value) if _is_compared(value) else None
        try:
            self.reference: Callable[[], object] | None = ref(value)
        except TypeError:
            self.strong, self.reference = value, None

    def value(self) -> object:
        """Return the object; `_GONE` if it exists no more."""
        if self.reference is None:
            return self.strong
        value = self.reference()
        return _GONE if value is None else value

    def is_same(self, now: object) -> bool:
        """Return True if `now` is this object with this content, or an equal number or text."""
        former = self.value()
        if now is former:
            return self.content is None or _copied(now) == self.content
        return type(now) is type(former) and isinstance(now, _COMPARED) and bool(now == former)


def _is_compared(value: object) -> bool:
    """Return True for small lists and dictionaries of numbers and text, and small arrays."""
    if isinstance(value, np.ndarray):
        return value.nbytes <= MAX_BYTES and value.dtype.kind != "O"
    if not isinstance(value, list | dict) or len(value) > MAX_ITEMS:
        return False
    items = value.values() if isinstance(value, dict) else value
    return all(isinstance(item, _COMPARED) for item in items)


def _copied(value: Any) -> object:
    """Return the content of a small container or array."""
    return (value.shape, value.tobytes()) if isinstance(value, np.ndarray) else value.copy()


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of a function and of the functions in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _content(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return _MISSING


def _is_of_library(module: str | None) -> bool:
    """Return True for modules whose functions read nothing that a user binds anew."""
    return (module or "").split(".", maxsplit=1)[0] in {OWN, "builtins", "numpy", "torch", "scipy"}
