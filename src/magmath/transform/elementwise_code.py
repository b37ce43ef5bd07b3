"""Functions that do with an array what they do with each of its numbers, by an allow-list.

Such a function loads its arguments, locals and numbers, adds, subtracts, multiplies, divides, has
powers with positive constants, and calls element-wise functions of NumPy and magmath, and functions
like itself. Without jumps, it does the same for every number. Its code is read, not executed.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from magmath.api.elementwise import FUNCTIONS
from magmath.ops.elementwise import FLOATING
from magmath.transform.observed_entries import MISSING
from magmath.transform.python_objects import cell_content

_REAL = (int, float)
_NUMBERS = (*_REAL, complex)
_NAMES = {"LOAD_GLOBAL", "LOAD_DEREF"}
_ATTRIBUTES = {"LOAD_ATTR", "LOAD_METHOD"}
_CONSTANTS = {"LOAD_CONST", "LOAD_SMALL_INT", "RETURN_CONST"}
_ARITHMETIC = {"+", "-", "*", "/"}
_ALLOWED = {
    "RESUME", "COPY_FREE_VARS", "NOP", "EXTENDED_ARG", "PUSH_NULL", "PRECALL", "CALL",
    "UNARY_NEGATIVE", "BUILD_TUPLE", "RETURN_VALUE", "STORE_FAST", "LOAD_FAST",
    "LOAD_FAST_BORROW", "LOAD_FAST_LOAD_FAST", "LOAD_FAST_BORROW_LOAD_FAST_BORROW",
    "STORE_FAST_LOAD_FAST", "STORE_FAST_STORE_FAST",
}  # fmt: skip
"""Instructions of Python 3.11 to 3.14 that are allowed with any argument."""
_OF_INTEGERS = {
    "abs", "add", "ceil", "floor", "maximum", "minimum", "multiply", "negative", "sign", "square",
    "subtract", "trunc",
}  # fmt: skip
"""Element-wise functions that give integers for all integers."""
_FUNCTIONS = frozenset(
    function
    for name in (FLOATING | _OF_INTEGERS) & FUNCTIONS.keys()
    for function in (FUNCTIONS[name], getattr(np, name, None))
)


def is_elementwise(function: Any) -> bool:
    """Return True if the code of a function, and of all that it may call, is in the allow-list."""
    waiting, seen = [function], set[int]()
    while waiting:
        value = waiting.pop()
        if type(value) in _NUMBERS or _is_known(value) or id(value) in seen:
            continue
        paths = _paths_in(value.__code__) if isinstance(value, FunctionType) else None
        if paths is None:
            return False
        seen.add(id(value))
        waiting += _values_of(value, paths)
    return True


def _is_known(value: Any) -> bool:
    return isinstance(value, FunctionType | np.ufunc) and value in _FUNCTIONS


@lru_cache(maxsize=4096)
def _paths_in(code: CodeType) -> frozenset[tuple[str, ...]] | None:
    """Return what code reads by name, such as ("np", "sqrt") for np.sqrt; None if an instruction is
    not in the allow-list."""
    paths: list[tuple[str, ...]] = []
    instructions = [x for x in dis.get_instructions(code) if x.opname != "CACHE"]
    for previous, x in zip([None, *instructions], instructions, strict=False):
        if x.opname in _NAMES:
            paths.append((x.argval,))
        elif x.opname in _ATTRIBUTES and previous and previous.opname in _NAMES | _ATTRIBUTES:
            paths[-1] += (x.argval,)
        elif not _is_allowed(x, previous):
            return None
    return frozenset(paths)


def _is_allowed(x: dis.Instruction, previous: dis.Instruction | None) -> bool:
    """Return True for an instruction of the allow-list, after the previous one."""
    if x.opname in _CONSTANTS:
        return type(x.argval) in _NUMBERS
    if x.opname != "BINARY_OP":
        return x.opname in _ALLOWED
    operator = x.argrepr.removesuffix("=")  # y += 1 binds y: elements of arrays do so too
    if operator == "**" and previous and previous.opname in _CONSTANTS:
        return type(previous.argval) in _REAL and previous.argval > 0
    return operator in _ARITHMETIC


def _values_of(function: FunctionType, paths: frozenset[tuple[str, ...]]) -> Iterator[Any]:
    """Yield the objects that a function reads by these names, and those of its defaults; MISSING
    for an attribute of an object that is no Python module."""
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    for name, *attributes in paths:
        cell = cells.get(name)
        value = function.__globals__.get(name, MISSING) if cell is None else cell_content(cell)
        for attribute in attributes:
            is_module = isinstance(value, ModuleType)
            value = getattr(value, attribute, MISSING) if is_module else MISSING
        yield value
