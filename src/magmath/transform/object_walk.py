"""The walk over the objects that functions read by name: other functions, attributes, classes,
Python modules and items of containers, as far as users have written them.

What a function reads is in its bytecode (`code_reads`). The walk lists what must be compared at
each call (`observed_entries`), and what cannot be compared: generators, iterators, and large
containers.
"""

from __future__ import annotations

import builtins
import gc
import sys
from collections import deque
from collections.abc import Hashable, Mapping
from functools import partial
from types import (
    BuiltinFunctionType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any, final
from weakref import ref

import numpy as np
from torch import Tensor

from magmath.arrays.array import Array
from magmath.arrays.variables.variable import Variable
from magmath.transform.code_reads import ANY_KEY, MergedReads, ReadKeys, reads_of
from magmath.transform.observed_entries import (
    COMPARED,
    CONTAINERS,
    MAX_BYTES,
    MISSING,
    ObservedBuffer,
    ObservedEntries,
    attributes_of,
    buffer_bytes,
    cells_of,
    is_buffer,
    items_of,
    referent_of,
    slots_of,
)
from magmath.transform.python_objects import (
    attributes_or_none,
    cell_content,
    function_of,
    global_generators,
    is_generated,
    is_installed,
    is_iterator,
    is_library,
    is_of_library_class,
    is_of_own_class,
    own_attributes,
    own_classes,
)

MAX_ENTRIES = 512
"""Number of compared entries, in total, up to which those of a container are among them."""
MAX_VISITED = 20_000
"""Number of objects that are examined for names."""
_NOT_CALLED = frozenset(
    f"__{name}__"
    for name in (
        *("init", "new", "post_init", "init_subclass", "set_name", "class_getitem"),
        *("repr", "str", "format", "dir", "sizeof", "hash", "setattr", "delattr", "del"),
        *("reduce", "reduce_ex", "getstate", "setstate", "copy", "deepcopy", "replace"),
    )
)
"""Special methods of an object that a computation with it seldom calls."""
_CONSTRUCTORS = ("__init__", "__new__", "__post_init__")
_COMPARISONS = tuple([f"__{name}__" for name in ("eq", "ne", "lt", "le", "gt", "ge")])
_CONSTANT = (*COMPARED, type(None), type(...), Array, np.dtype, range, slice)
"""Types in which nothing is read by name."""
_VIEWS: tuple[type, ...] = (type({}.keys()), type({}.values()), type({}.items()), MappingProxyType)
"""Types of objects through which a dictionary is read."""


@final
class ObjectWalk:
    """A walk over the objects that functions read by name, given the names of attributes.

    found_reads  what the functions that the walk has met read by name: the walk is complete if
                 they are those given
    """

    def __init__(self, reads: MergedReads) -> None:
        self._reads, self.found_reads = reads, MergedReads()
        self._entries: list[ObservedEntries] = []
        self.buffers: list[ObservedBuffer] = []
        self.foreign_arrays: list[ref[Any]] = []
        self.generators: dict[str, Any] = {}
        self.iterators: list[str] = []
        self.uncompared: list[str] = []
        self.modules: list[object] = []
        self._inner: set[int] = set()  # modules that others contain
        self._namespaces: dict[int, tuple[Any, Any, dict[str, str]]] = {}
        self._seen: set[Hashable] = set()
        self._reached: list[object] = []  # so that no identity is used again
        self._waiting: deque[tuple[Any, str, ReadKeys]] = deque()
        self._compared = 0

    def follow(self, functions: tuple[Any, ...], arguments: tuple[Any, ...]) -> None:
        """Walk over all that these functions, called with these arguments, read."""
        for function in functions:
            self._reach(function, type(function).__name__)
        for argument in arguments:
            self._reach(argument, "an argument")
        while self._waiting and len(self._reached) < MAX_VISITED:
            self._visit(*self._waiting.popleft())
        if self._waiting:
            self.uncompared.append(self._waiting[0][1])

    def all_entries(self) -> list[ObservedEntries]:
        """Return all entries that are to be compared."""
        spaces = [
            attributes_of(owner, mapping, [*labels], partial(_label, labels))
            for owner, mapping, labels in self._namespaces.values()
        ]
        return [*spaces, *self._entries]

    def _reach(self, value: Any, label: str, name: str | None = None) -> None:
        """Add an object to those to be visited; `name` is that by which it is read."""
        if isinstance(value, _CONSTANT) or value is MISSING:
            return
        is_by_name = name is not None and isinstance(value, dict) and not self._reads.reads_all
        keys = self._reads.keys.get(name or "", ANY_KEY) if is_by_name else ANY_KEY
        if (id(value), keys) not in self._seen:
            self._seen.add((id(value), keys))
            self._reached.append(value)
            self._waiting.append((value, label, keys))

    def _visit(self, value: Any, label: str, keys: ReadKeys) -> None:
        if isinstance(value, FunctionType):
            self._visit_function(value)
        elif isinstance(value, MethodType):
            self._visit_method(value.__func__, value.__self__)
        elif isinstance(value, BuiltinFunctionType):
            self._visit_generator(value.__self__, label)
        elif isinstance(value, ModuleType):
            self._visit_python_module(value, label)
        elif isinstance(value, type):
            self._visit_class(value, label)
        elif is_buffer(value):
            self._visit_buffer(value, label)
        elif isinstance(value, _VIEWS):
            (viewed,) = gc.get_referents(value)
            self._reach(viewed, label)
        elif isinstance(value, ref):
            self._add(referent_of(value, label))
            self._reach(value(), label)
        else:
            if isinstance(value, CONTAINERS):
                self._visit_items(value, label, keys)
            self._visit_object(value, label)

    # functions ----------------------------------------------------------------------------------

    def _visit_function(self, function: FunctionType) -> None:
        module = function.__globals__.get("__name__")
        is_foreign = is_library(module) or is_installed(module)
        attributes = vars(function)
        owner = attributes.get("method_of")
        if owner is not None:  # a compiled method
            self._visit_method(attributes["__wrapped__"], owner())
        elif "__wrapped__" in attributes:
            self._reach(attributes["__wrapped__"], function.__name__)
        names, closure = function.__code__.co_freevars, function.__closure__ or ()
        pairs = zip(names, closure, strict=True)
        cells = {name: cell for name, cell in pairs if cell_content(cell) is not MISSING}
        for name, cell in cells.items():
            self._reach(cell_content(cell), name, None if is_foreign else name)
        if is_foreign:
            return
        reads = reads_of(function.__code__)
        self.found_reads.add(reads, is_guarded=function.__name__ in self._reads.guarded)
        if cells:
            self._add(cells_of(cells, function, str))
        space = function.__globals__
        for name in sorted(reads.names - vars(builtins).keys() | reads.names & space.keys()):
            is_compared = not isinstance(space.get(name), ModuleType)
            self._visit_entry(space, name, name, is_compared=is_compared)
        for name in reads.modules:
            self._reach(sys.modules.get(name), name)
        for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self._reach(value, f"a default of {function.__name__}")
        for name in self._reads.attributes_among(attributes.keys() - {"__wrapped__", "method_of"}):
            self._visit_entry(attributes, name, f"{function.__name__}.{name}")

    def _visit_method(self, function: Any, owner: Any) -> None:
        code = getattr(function, "__code__", None)
        self._reach(function, getattr(function, "__name__", "the function"))
        self._reach(owner, code.co_varnames[0] if code and code.co_varnames else "self")

    def _visit_entry(
        self,
        space: Any,
        name: str,
        label: str,
        *,
        owner: type | None = None,
        is_compared: bool = True,
    ) -> None:
        """Visit the object that a namespace has under a name, and compare it unless `is_compared`
        is false. `owner` is the class whose namespace it is, if it is that of a class."""
        if is_compared:
            owner = space if owner is None else owner
            _, _, labels = self._namespaces.setdefault(id(owner), (owner, space, {}))
            self._compared += name not in labels
            labels[name] = label
        self._reach(space.get(name, MISSING), label, name)

    def _add(self, entries: ObservedEntries) -> None:
        """Add entries to those that are compared at each call."""
        self._compared += len(entries.keys)
        self._entries.append(entries)

    # objects ------------------------------------------------------------------------------------

    def _visit_object(self, value: Any, label: str) -> None:
        kind = type(value)
        if isinstance(value, partial):
            for part in (value.func, value.args, value.keywords):
                self._reach(part, label)
        self._visit_generator(value, label)
        if is_iterator(value):
            self.iterators.append(f"the iterator {label}")
        attributes = own_attributes(value)
        self._reach(attributes.get("__wrapped__"), label)
        if hasattr(kind, "named_parameters"):
            self._visit_module(value, attributes, label)
        elif is_of_library_class(value):
            self._reach(getattr(value, "__wrapped__", None), label)
            for name, attribute in attributes.items():
                if isinstance(attribute, FunctionType | MethodType | partial):
                    self._reach(attribute, f"{label}.{name}")
            if is_of_own_class(value):
                self._visit_own(value, attributes, label)
        else:
            self._visit_plain(value, attributes, label)

    def _visit_own(self, value: Any, attributes: dict[str, Any], label: str) -> None:
        """Compare the attributes of an object of magmath that are read by name, such as the rate of
        an optimizer, and the settings of one that may be called, such as a schedule."""
        read = set(self._reads.attributes_among(attributes))
        if callable(value):
            read |= attributes.keys() & getattr(type(value), "__dataclass_fields__", {}).keys()
        for name in sorted(read):
            self._visit_entry(attributes, name, f"{label}.{name}")

    def _visit_plain(self, value: Any, attributes: dict[str, Any], label: str) -> None:
        """Compare the attributes of an object of a user's class, and those of the class that they
        would hide."""
        classes = own_classes(type(value))
        has_attributes = attributes_or_none(value) is not None
        inherited = {name for base in classes for name in vars(base)} if has_attributes else set()
        names = set(self._reads.attributes_among(attributes.keys() | inherited))
        if has_attributes:
            names |= self._reads.tentative
        if any(base.__module__ in ("collections", "weakref") for base in type(value).__mro__):
            names |= attributes.keys()  # which the methods of UserDict and others read
        for name in sorted(names):
            self._visit_entry(attributes, name, f"{label}.{name}")
        slots = {
            name
            for base in classes
            for name, x in vars(base).items()
            if isinstance(x, MemberDescriptorType)
        }
        if read := self._reads.attributes_among(slots):
            entries = slots_of(value, read, lambda name: f"{label}.{name}")
            self._add(entries)
            for name, attribute in zip(read, entries.read(), strict=True):
                self._reach(attribute, f"{label}.{name}", name)
        self._visit_class_of(value, label)

    def _visit_module(self, module: Any, attributes: dict[str, Any], label: str) -> None:
        """Visit the attributes of a module of `mm.nn`, and the modules in it. What is assigned to
        them outside of their calls, they record themselves."""
        read = self._reads.attributes_among(attributes)
        self.modules += [module] if read else []
        for name in read:
            value = attributes[name]
            changes = name in self._reads.stored and not isinstance(value, Variable)
            is_compared = changes and isinstance(value, (*_CONSTANT, np.ndarray))
            self._visit_entry(attributes, name, f"{label}.{name}", is_compared=is_compared)
        if id(module) not in self._inner:
            for inner in module.modules():
                self._inner.add(id(inner))
                self._reach(inner, type(inner).__name__)
        self._visit_class_of(module, label)

    def _visit_class_of(self, value: Any, label: str) -> None:
        """Visit what the class of an object has under names that are read, and its special
        methods."""
        kind = type(value)
        self._visit_comparisons(kind)
        if self._reads.copies:
            self._reach(kind, f"the class of {label}")
        if ("class of", id(kind)) in self._seen:
            return
        self._seen.add(("class of", id(kind)))
        self._add_methods(kind, _special_methods(kind))
        self._visit_attributes_of_class(kind, label)

    def _visit_class(self, kind: type, label: str) -> None:
        """Visit a class that is read by name, and may be called."""
        self._visit_comparisons(kind)
        self._add_methods(kind, (*_CONSTRUCTORS, *_special_methods(kind)))
        self._visit_attributes_of_class(kind, label)
        self._visit_attributes_of_class(type(kind), label)

    def _visit_comparisons(self, kind: type) -> None:
        """Visit the comparisons of a class, also generated ones, which read all fields of two
        objects of this class, if the code compares objects and may have two of them."""
        has_another = ("comparable", id(kind)) in self._seen
        self._seen.add(("comparable", id(kind)))
        if has_another and self._reads.compares:
            self._add_methods(kind, _COMPARISONS)

    def _add_methods(self, kind: type, names: Any) -> None:
        for base in own_classes(kind):
            for name in names:
                self._reach(function_of(vars(base).get(name)), f"{kind.__name__}.{name}")

    def _visit_attributes_of_class(self, kind: type, label: str) -> None:
        classes = own_classes(kind)
        if ("class", id(kind)) in self._seen or not classes:
            return
        self._seen.add(("class", id(kind)))
        present = {name for base in classes for name in vars(base)}
        for name in self._reads.tentative - present:
            self._visit_entry(vars(kind), name, f"{label}.{name}", owner=kind)
        for name in self._reads.attributes_among(present):
            for base in classes:
                value = vars(base).get(name, MISSING)
                if not isinstance(value, MemberDescriptorType | GetSetDescriptorType):
                    self._visit_entry(vars(base), name, f"{label}.{name}", owner=base)
                    self._reach(function_of(value), f"{kind.__name__}.{name}", name)
                if isinstance(value, classmethod):
                    self._reach(kind, label)
                if value is not MISSING:
                    break

    def _visit_python_module(self, module: ModuleType, label: str) -> None:
        space = vars(module)
        if module.__name__ == "numpy" and "random" in self._reads.attributes:
            self._visit_generator(np.random, label)
        self._visit_generator(module, label)
        if not is_library(module.__name__):
            for name in {*self._reads.attributes_among(space), *self._reads.tentative}:
                is_compared = not isinstance(space.get(name), ModuleType)
                self._visit_entry(space, name, f"{label}.{name}", is_compared=is_compared)

    def _visit_generator(self, value: Any, label: str) -> None:
        """Note a generator of random numbers of Python or NumPy."""
        labels = {np.random: "np.random", sys.modules.get("random"): "random"}
        generators = global_generators()
        if isinstance(value, ModuleType) and value in labels:
            self.generators[labels[value]] = generators[labels[value]]
        elif isinstance(value, np.random.Generator | np.random.RandomState) or (
            "random" in sys.modules and isinstance(value, sys.modules["random"].Random)
        ):
            name = next((name for name, x in generators.items() if x is value), label)
            self.generators[name] = value

    # containers ---------------------------------------------------------------------------------

    def _visit_items(self, value: Any, label: str, keys: ReadKeys) -> None:
        def labelled(key: Any) -> str:
            return label if key is MISSING else f"{label}[{key!r}]"

        if isinstance(value, dict) and keys is not ANY_KEY:
            names: list[Any] = [*keys]
            entries = attributes_of(value, value, names, labelled)
        else:
            entries = items_of(value, labelled)
        is_fixed = isinstance(value, tuple | frozenset)
        if is_fixed and all(isinstance(item, _CONSTANT) for item in value):
            return
        if self._compared + len(entries.keys) > MAX_ENTRIES:
            self.uncompared.append(label)
            return
        self._add(entries)
        for key, item in zip(entries.keys, entries.read(), strict=False):
            is_large = is_buffer(item) and buffer_bytes(item) > MAX_BYTES
            if is_large:  # which of the items are read is not known, so none is warned of
                self._note_foreign_array(item)
            else:
                self._reach(item, labelled(key))

    def _note_foreign_array(self, buffer: Any) -> None:
        if isinstance(buffer, (np.ndarray, Tensor)):
            self.foreign_arrays.append(ref(buffer))

    def _visit_buffer(self, buffer: Any, label: str) -> None:
        is_writable = not isinstance(buffer, np.ndarray) or buffer.flags.writeable
        self._note_foreign_array(buffer)
        if buffer_bytes(buffer) <= MAX_BYTES:
            self.buffers.append(ObservedBuffer(buffer, label))
        elif is_writable:
            self.uncompared.append(label)


def _special_methods(kind: type) -> list[str]:
    """Return the names of the special methods that a computation with objects of a class may call,
    without generated comparisons."""
    return [
        name
        for base in own_classes(kind)
        for name, x in vars(base).items()
        if name.startswith("__")
        and isinstance(x, FunctionType)
        and name not in _NOT_CALLED
        and not (name in _COMPARISONS and is_generated(x))
    ]


def _label(labels: Mapping[str, str], name: str) -> str:
    return labels.get(name, "a name")
