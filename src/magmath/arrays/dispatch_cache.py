"""The dispatch cache: calls of functions on small arrays, by the shapes and types of the arrays.

`mm.mean(x, axis=0)` does the same operations for all arrays of a shape and a type. A decorated
function remembers them for the forms of its last calls (`engine.eager_calls`), and repeats them
without running its own lines. It runs as usual if an argument is pending, large, or of another
kind, and if it depends on values of its arguments other than through operations.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cache, wraps
from inspect import signature
from typing import Any, TypeVar

from magmath.arrays.lazy_array import LazyArray
from magmath.core.bounded_memo import store_bounded
from magmath.core.call_effects import CALL_EFFECTS
from magmath.core.promotion import DEFAULT
from magmath.engine import session
from magmath.engine.eager_calls import EagerCall, call_of
from magmath.engine.user_line import user_line
from magmath.graph import Node

F = TypeVar("F", bound=Callable[..., Any])
MAX_CALLS = 256
"""Forms of calls that a function remembers."""
MAX_OPERATORS = 4096
_SEEN, _NEVER = 0, 1
"""In place of a call: it was made once; it is not repeated."""
_EXACT = frozenset((bool, int, str, type(None)))
"""Classes of arguments that are equal only if they mean the same."""


def dispatch_cached(function: F) -> F:
    """Return a function of arrays that repeats the operations of an earlier call of the same form.

    It must depend on nothing but its arguments and the default type.
    """
    calls: dict[Hashable, EagerCall | int] = {}

    @wraps(function)
    def dispatching(*args: Any, **options: Any) -> Any:
        eager = session.dispatching()
        if eager is None:
            return function(*args, **options)
        key: list[Hashable] = [DEFAULT.floating.name]
        leaves: list[Node] = []
        for x in args:
            if isinstance(x, LazyArray) and x._leaf is x._node and not x.is_variable:
                leaf = x._node
                leaves.append(leaf)
                key += leaf.shape, leaf.dtype.name
            elif not _note(x, key, leaves):
                return function(*args, **options)
        for name, x in options.items():
            key.append(name)
            if not _note(x, key, leaves):
                return function(*args, **options)
        form = tuple(key)
        known = calls.get(form)
        if type(known) is EagerCall:
            try:
                leaf = known.run(eager, leaves, user_line(2))
            except Exception:  # the function raises it at its own line
                leaf = None
            return function(*args, **options) if leaf is None else array_class()(leaf)
        if known is None:
            store_bounded(calls, form, _SEEN if leaves else _NEVER, MAX_CALLS)
        elif known == _SEEN:
            effects = CALL_EFFECTS.count
            result = function(*args, **options)
            calls[form] = _repeatable(eager, result, leaves, CALL_EFFECTS.count - effects)
            return result
        return function(*args, **options)

    del dispatching.__wrapped__
    dispatching.__signature__ = signature(function)  # type: ignore[attr-defined]
    return dispatching  # type: ignore[return-value]


# operators ----------------------------------------------------------------------------------------

_operators: dict[Hashable, EagerCall | None] = {}
"""The calls of operators, by name, shapes and types; None for those that are not repeated."""
_REAL = frozenset((float, int))


def repeated_operator(operation: str, x: Any, y: Any, frames: int) -> Node | None:
    """Return a leaf with the result of an element-wise operation on small stored arrays, or on one
    and a number; None if it runs as usual. `frames` are those up to the user's line.
    """
    numbers: tuple[Any, ...] = ()
    first, second = type(x), type(y)
    if second in _REAL:
        a = x._node
        if a is not x._leaf:
            return None
        leaves: tuple[Node, ...] = (a,)
        numbers = (y,)
        key: Hashable = operation, a.shape, a.dtype.name, second
    elif first in _REAL:
        b = y._node
        if b is not y._leaf:
            return None
        leaves = (b,)
        numbers = (x,)
        key = operation, first, b.shape, b.dtype.name
    else:
        if second is not first:
            return None
        a, b = x._node, y._node
        if a is not x._leaf or b is not y._leaf or a is b:
            return None
        leaves = a, b
        key = operation, a.shape, a.dtype.name, b.shape, b.dtype.name
    call = _operators.get(key)
    if call is None or (eager := session.dispatching()) is None:
        return None
    try:
        return call.run(eager, leaves, user_line(frames), numbers)
    except Exception:  # the operation raises it at its own line
        return None


def note_operator(operation: str, x: Any, y: Any, result: LazyArray) -> None:
    """Note how an operation was computed, for the next one on arrays of the same form."""
    leaf = result._leaf
    if leaf is None or operation == "power":  # whose operation depends on the number
        return
    operands = x, y
    arrays = [one for one in operands if isinstance(one, LazyArray)]
    leaves = [one._node for one in arrays]
    if any(one.is_variable or one._leaf is not one._node for one in arrays) or leaf in leaves:
        return
    if len({*map(id, leaves)}) < len(leaves) or session.dispatching() is None:
        return
    key: list[Hashable] = [operation]
    for one in operands:
        if isinstance(one, LazyArray):
            key += one.shape, one.dtype.name
        elif type(one) in _REAL:
            key.append(type(one))
        else:
            return
    form = tuple(key)
    if form not in _operators:
        eager = session.dispatching()
        assert eager is not None
        call = call_of(eager, leaf, leaves, numbers=len(operands) - len(leaves))
        store_bounded(_operators, form, call, MAX_OPERATORS)


# arguments ----------------------------------------------------------------------------------------


def _note(x: Any, key: list[Hashable], leaves: list[Node]) -> bool:
    """Add an argument to the key and the leaves of a call; return False if it is none of these: a
    stored array, a constant, and a list or tuple of such."""
    kind = type(x)
    if kind in _EXACT:
        key += kind, x
    elif isinstance(x, LazyArray):
        leaf = x._node
        if leaf is not x._leaf or x.is_variable:
            return False
        leaves.append(leaf)
        key += leaf.shape, leaf.dtype.name
    elif kind is float:
        key += kind, x
        return x - x == 0.0 != x  # nan differs from itself, and the zeros are equal
    elif kind is tuple or kind is list:
        key += kind, len(x)
        return all(_note(item, key, leaves) for item in x)
    else:
        return False
    return True


@cache
def array_class() -> Any:
    """Return the class of arrays, which imports this module."""
    from magmath.arrays.array import Array

    return Array


def _repeatable(eager: Any, result: Any, leaves: list[Node], effects: int) -> EagerCall | int:
    """Return the call that has computed a result, if it can be repeated."""
    if effects or not isinstance(result, LazyArray) or result.view_of is not None:
        return _NEVER
    leaf = result._leaf
    call = None if leaf is None else call_of(eager, leaf, leaves)
    return _NEVER if call is None else call
