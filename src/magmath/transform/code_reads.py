"""What the code of a Python function reads by name: globals, attributes and items of dictionaries.

The names are found in the bytecode, so a function is examined without being called.
"""

from __future__ import annotations

import dis
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType
from typing import Any, final

ReadKeys = frozenset[Hashable] | None
"""The constants at which a dictionary is read."""
ANY_KEY = None
"""The `ReadKeys` of a dictionary that is read in another way too."""
_GLOBALS = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
_VARIABLES = {"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"}
_ATTRIBUTES = {"LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "IMPORT_FROM"}
_STORES = {"STORE_ATTR", "STORE_GLOBAL", "STORE_DEREF"}
_CONSTANTS = {"LOAD_CONST", "LOAD_SMALL_INT"}
_COMPARISONS = {"COMPARE_OP", "CONTAINS_OP"}
_WITHOUT_EFFECT = {"CACHE", "EXTENDED_ARG"}
_ITEM_CHANGES = ("STORE_SUBSCR", "DELETE_SUBSCR")
_UPDATES = {"+=", "-=", "*=", "/=", "//=", "%=", "**=", "@=", "<<=", ">>=", "&=", "|=", "^="}
_BY_TEXT = {"getattr", "hasattr", "attrgetter"}
"""Functions that read attributes whose names are texts in the code."""
_NAMESPACES = {"vars", "__dict__"}
"""Dictionaries of attributes, whose keys are such texts too."""
_READ_ALL = {
    *_NAMESPACES, "asdict", "astuple", "fields", "getmembers", "__getattribute__",
    "__slots__", "__annotations__", "__dataclass_fields__",
}  # fmt: skip
"""Names by which code reads all attributes of an object, or their names."""
_COMPARING = {"sorted", "min", "max", "sort", "index", "count", "remove"}
"""Functions that compare objects with each other."""
_COPYING = {"type", "__class__", "copy", "deepcopy", "replace", "loads"}
"""Names by which code may make another object of a class that it does not name."""


@final
@dataclass(frozen=True)
class CodeReads:
    """What a function reads by name, with the functions that are defined in it.

    names        of globals
    attributes   of any object
    tentative    those attributes that it may find absent, as by hasattr
    modules      that it imports
    keys         for each name and attribute that it reads, the constants at which it reads the
                 object as a dictionary; ANY_KEY if it uses the object otherwise too
    stored       names of attributes and variables that it binds
    rebound      names, and keys (in a tuple of one element), that it reads and afterwards binds
    initialized  those that it binds before it reads them
    used         those that it reads for more than a count (`self.n += 1`)
    reads_all    True if it reads attributes whose names are not in the code
    catches      True if it may go on after an error in a function that it calls
    compares     True if it compares objects with each other, not only with constants
    copies       True if it may make other objects of the classes of those that it reads
    """

    names: frozenset[str]
    attributes: frozenset[str]
    tentative: frozenset[str]
    modules: frozenset[str]
    keys: Mapping[str, ReadKeys]
    stored: frozenset[str]
    rebound: frozenset[Hashable]
    initialized: frozenset[Hashable]
    used: frozenset[Hashable]
    reads_all: bool
    catches: bool
    compares: bool
    copies: bool


@lru_cache(maxsize=4096)
def reads_of(code: CodeType) -> CodeReads:
    """Return the names that this code, and that of the functions in it, reads."""
    scan, texts = _Scan(), set[str]()
    for inner in _codes(code):
        scan.visit(inner)
        texts.update(_texts(inner.co_consts))
    if scan.catches:
        scan.tentative |= scan.attributes  # also those of the functions in it
    if not (_BY_TEXT | _NAMESPACES).isdisjoint(scan.names | scan.attributes):
        scan.tentative |= {text for text in texts if text.isidentifier()}
        _merge_keys(scan.keys, dict.fromkeys(texts, ANY_KEY))
    called = scan.names | scan.attributes
    return CodeReads(
        names=frozenset(scan.names),
        attributes=frozenset(scan.attributes | scan.tentative),
        tentative=frozenset(scan.tentative),
        modules=frozenset(scan.modules),
        keys=scan.keys,
        stored=frozenset(scan.stored),
        rebound=frozenset(scan.rebound),
        initialized=frozenset(scan.initialized),
        used=frozenset(scan.used),
        reads_all=scan.reads_all or not _READ_ALL.isdisjoint(called),
        catches=scan.catches or "suppress" in called,
        compares=scan.compares or not _COMPARING.isdisjoint(called),
        copies=not _COPYING.isdisjoint(called | scan.tentative),
    )


@final
class _Scan:
    """The names in the code of a function and the functions in it; see `CodeReads`."""

    def __init__(self) -> None:
        self.names, self.attributes, self.tentative = set[str](), set[str](), set[str]()
        self.modules, self.stored = set[str](), set[str]()
        self.keys: dict[str, ReadKeys] = {}
        self.rebound, self.initialized = set[Hashable](), set[Hashable]()
        self.used = set[Hashable]()
        self.reads_all = self.catches = self.compares = False

    def visit(self, code: CodeType) -> None:
        """Add the names in the instructions of one function."""
        instructions = [x for x in dis.get_instructions(code) if x.opname not in _WITHOUT_EFFECT]
        order = _Order()
        for i, x in enumerate(instructions):
            following = instructions[i + 1 : i + 3]
            if x.opname in _GLOBALS:
                self.names.add(x.argval)
            elif x.opname in _ATTRIBUTES:
                self.attributes.add(x.argval)
            elif x.opname == "IMPORT_NAME":
                self.modules.add(x.argval)
            if x.opname in _GLOBALS | _VARIABLES | _ATTRIBUTES:
                order.read(x.argval)
                _merge_keys(self.keys, {x.argval: _keys_in(following)})
            elif x.opname in _STORES:
                self.stored.add(x.argval)
                order.bind(x.argval, counts=_is_update(instructions[max(i - 2, 0) : i]))
            elif x.opname in _CONSTANTS and following:
                order.add_item((x.argval,), following[0])
                if following[0].opname == "MATCH_CLASS":
                    self.tentative.update(x.argval)
                    self.reads_all |= bool(following[0].arg)  # attributes that the class names
            if x.opname == "PUSH_EXC_INFO":  # of a handler, or of the end of a `with`
                self.catches |= following[0].opname != "WITH_EXCEPT_START"
            elif x.opname in _COMPARISONS:
                is_constant = instructions[i - 1].opname in _CONSTANTS and not x.is_jump_target
                self.compares |= not is_constant
            if x.argval in _BY_TEXT and not _has_text(instructions[i + 1 :]):
                self.reads_all = True
        if code.co_exceptiontable:  # it may go on if an attribute does not exist
            self.tentative |= {x.argval for x in instructions if x.opname in _ATTRIBUTES}
        self.rebound |= order.rebound
        self.initialized |= order.initialized
        self.used |= order.used


def _texts(constants: Iterable[Any]) -> Iterator[str]:
    """Yield the texts among the constants of code, and in tuples of them."""
    for x in constants:
        if isinstance(x, str):
            yield x
        elif isinstance(x, tuple | frozenset):
            yield from _texts(x)


def _has_text(following: list[dis.Instruction]) -> bool:
    """Return True if the call after these instructions has a text as an argument, or is not
    found."""
    for x in following:
        if x.opname in _CONSTANTS and isinstance(x.argval, str):
            return True
        if x.opname.startswith("CALL"):
            return False
    return True


@final
class MergedReads:
    """What several functions read by name, all together: the fields are those of `CodeReads`."""

    def __init__(self) -> None:
        self.attributes, self.tentative, self.stored = set[str](), set[str](), set[str]()
        self.rebound, self.initialized = set[Hashable](), set[Hashable]()
        self.used = set[Hashable]()
        self.keys: dict[str, ReadKeys] = {}
        self.guarded = set[str]()
        """Names of functions whose errors a function that calls them may catch."""
        self.reads_all = self.compares = self.copies = False

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other)

    def add(self, reads: CodeReads, *, is_guarded: bool) -> None:
        """Add what one function reads; `is_guarded` is True if a caller may catch its errors, such
        as that of an attribute that it does not find."""
        if is_guarded:
            self.tentative |= reads.attributes
        if is_guarded or reads.catches:
            self.guarded |= reads.keys.keys()  # all names that it reads
        self.attributes |= reads.attributes
        self.tentative |= reads.tentative
        self.stored |= reads.stored
        self.rebound |= reads.rebound
        self.initialized |= reads.initialized
        self.used |= reads.used
        self.reads_all |= reads.reads_all
        self.compares |= reads.compares
        self.copies |= reads.copies
        _merge_keys(self.keys, reads.keys)

    def attributes_among(self, names: Iterable[Any]) -> list[str]:
        """Return those of these names that are read as attributes."""
        if self.reads_all:
            return [name for name in names if isinstance(name, str)]
        return sorted(self.attributes.intersection(names))


def _merge_keys(keys: dict[str, ReadKeys], other_keys: Mapping[str, ReadKeys]) -> None:
    """Add the keys at which another function reads dictionaries."""
    for name, new_keys in other_keys.items():
        former = keys.get(name, frozenset())
        keys[name] = ANY_KEY if former is ANY_KEY or new_keys is ANY_KEY else former | new_keys


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of a function and of the functions in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _keys_in(following: list[dis.Instruction]) -> ReadKeys:
    """Return the constant at which the object before these instructions is read; ANY_KEY for other
    uses."""
    is_item = len(following) == 2 and following[0].opname in _CONSTANTS
    if is_item and (_reads_item(following[1]) or following[1].opname in _ITEM_CHANGES):
        return frozenset([following[0].argval])
    return ANY_KEY


def _reads_item(x: dis.Instruction) -> bool:
    """Return True for `d[k]` and the beginning of `d[k] += v`."""
    is_item = x.opname == "BINARY_OP" and x.argrepr == "[]"
    return is_item or x.opname == "BINARY_SUBSCR" or _is_item_update_start(x)


def _is_item_update_start(x: dis.Instruction) -> bool:
    """Return True for the first instruction of `d[k] += v` after those of d and k."""
    return x.opname == "COPY" and x.arg == 2


def _is_update(before: list[dis.Instruction]) -> bool:
    """Return True if a binding after these instructions is that of `n += v`."""
    operations = [x for x in before if x.opname != "SWAP"]
    return bool(operations) and operations[-1].argrepr in _UPDATES


@final
class _Order:
    """The order in which code reads and binds names and keys."""

    def __init__(self) -> None:
        self._reads: dict[Hashable, int] = {}
        self._bound_first: set[Hashable] = set()
        self.rebound: set[Hashable] = set()

    @property
    def initialized(self) -> set[Hashable]:
        """What is bound before it is read."""
        return self._bound_first

    @property
    def used(self) -> set[Hashable]:
        """What is read for more than a count."""
        return {name for name, count in self._reads.items() if count > 0}

    def read(self, name: Hashable) -> None:
        self._reads[name] = self._reads.get(name, 0) + 1

    def bind(self, name: Hashable, counts: bool) -> None:
        """Add a binding; `counts` is True for that of `n += v`, which has read the name."""
        if name in self._reads:
            self.rebound.add(name)
            self._reads[name] -= counts
        else:
            self._bound_first.add(name)

    def add_item(self, key: Hashable, following: dis.Instruction) -> None:
        """Add a constant that may be a key."""
        if _reads_item(following):
            self.read(key)
        if following.opname == "STORE_SUBSCR" or _is_item_update_start(following):
            self.bind(key, counts=following.opname == "COPY")
