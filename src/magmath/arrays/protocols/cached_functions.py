"""Functions of arrays whose calls are in the dispatch cache (`engine/eager/dispatch_cache.py`).

`mm.mean(x, axis=0)` does the same operations for all arrays of a shape and a type. So the call key
of a call consists of the function, the shapes and types of the arrays, which of them are the same,
and the other arguments. The second call with a key is recorded, and later ones are repeated without
running the lines of the function. It runs as usual if an argument is pending, large, or of another
kind, and if it depends on values of its arguments in another way than through operations.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial, wraps
from inspect import signature
from operator import is_
from typing import TYPE_CHECKING, Any, TypeVar

from magmath.arrays.lazy_array import LazyArray
from magmath.arrays.number_leaves import number_leaf
from magmath.arrays.protocols.namespace import array_namespace
from magmath.core.call_effects import CALL_EFFECTS, NUMBERS_READ
from magmath.core.dtypes import DType
from magmath.core.promotion import DEFAULT
from magmath.engine import session
from magmath.engine.eager.created_numbers import creation_call_of
from magmath.engine.eager.eager_calls import call_of, joint_call_of
from magmath.engine.user_line import user_line
from magmath.graph import Node

if TYPE_CHECKING:
    from magmath.engine.eager.dispatch_cache import RecordedCall
    from magmath.engine.eager.eager_computation import EagerComputation

F = TypeVar("F", bound=Callable[..., Any])
_EXACT = frozenset((bool, int, str, type, type(None), DType))
"""Classes of arguments, other than floats, that stand for themselves in a key."""


def dispatch_cached(function: F) -> F:
    """Return a function of arrays that repeats the operations of an earlier call of the same key.

    It must depend on nothing but its arguments and the default type.
    """

    @wraps(function)
    def dispatch(*args: Any, **options: Any) -> Any:
        eager = session.eager_computation()
        if eager is None:
            return function(*args, **options)
        values = (*args, *options.values()) if options else args
        parts: list[Hashable] = [function, DEFAULT.floating.name, *options]
        leaves: list[Node] = []
        for x in values:  # the usual arguments without a call
            kind: Any = type(x)
            if kind in _EXACT:
                parts += kind, x
            elif isinstance(x, LazyArray) and x._leaf is x._node and not x.is_variable:
                leaf = x._node
                leaves.append(leaf)
                parts += leaf.shape, leaf.dtype.name
            elif not _add(x, parts, leaves):
                if _compute_numbers(eager, values):
                    return dispatch(*args, **options)
                return function(*args, **options)
        if len(leaves) > 1:  # f(x, x) and f(x, y) are different calls
            parts += map(leaves.index, leaves)
        key = tuple(parts)
        result = eager.dispatch_cache.repeat(eager, key, leaves, user_line(2))
        if result is not None:
            return _array_class()(result) if type(result) is Node else result
        if eager.dispatch_cache.is_seen_again(key):
            call = partial(function, *args, **options)
            return _call_and_record(eager, key, call, values, leaves)
        return function(*args, **options)

    del dispatch.__wrapped__
    dispatch.__signature__ = signature(function)  # type: ignore[attr-defined]
    return dispatch  # type: ignore[return-value]


def _call_and_record(
    eager: EagerComputation,
    key: Hashable,
    function: Callable[[], Any],
    arguments: Sequence[Any],
    leaves: Sequence[Node],
) -> Any:
    """Return the result of a call, and record how to repeat it; exclude it, if it has effects other
    than recorded reads of numbers, or changes its arguments."""
    with _recorded_reads() as reads:
        effects = CALL_EFFECTS.count
        result = _computed(eager, function(), leaves)
        is_pure = CALL_EFFECTS.count - effects == len(reads)
    is_pure = is_pure and _are_unchanged(arguments, leaves)
    eager.dispatch_cache.record(key, _repeatable(eager, result, leaves, reads) if is_pure else None)
    return result


def _computed(eager: EagerComputation, result: Any, leaves: Sequence[Node]) -> Any:
    """Return the result of a call; a small one is computed although intermediate values of the
    function are larger, as those of `std` are."""
    if leaves and isinstance(result, LazyArray) and result._leaf is None and not result.view_of:
        leaf = eager.leaf_of_result(result._node)
        if leaf is not None:
            result.set_computed(leaf)
    return result


def _add(x: Any, parts: list[Hashable], leaves: list[Node]) -> bool:
    """Add an argument to the parts of the key and to the leaves of a call; return False for an
    argument that is neither a stored array, nor a number or text, nor a list or tuple of such."""
    kind: Any = type(x)
    if kind in _EXACT:
        parts += kind, x
    elif isinstance(x, LazyArray):
        leaf = x.stored_leaf()
        if leaf is None:
            return False
        leaves.append(leaf)
        parts += leaf.shape, leaf.dtype.name
    elif kind is float:
        parts += kind, part_of_key(x)
        return bool(x == x)  # nan differs from itself
    elif kind is tuple or kind is list:
        parts += kind, len(x)
        return all(_add(item, parts, leaves) for item in x)
    else:
        return False
    return True


def _compute_numbers(eager: EagerComputation, arguments: Sequence[Any]) -> bool:
    """Compute pending arrays of numbers alone among the arguments of a call, if another one is
    stored, as the operations on both would; return True if there are some."""
    arrays = [x for x in arguments if isinstance(x, LazyArray)]
    pending = [x for x in arrays if x.stored_leaf() is None]
    if not pending or len(pending) == len(arrays):
        return False
    return any(number_leaf(eager, x) is not None for x in pending)


def _are_unchanged(arguments: Sequence[Any], leaves: Sequence[Node]) -> bool:
    """Return True if the arrays among the arguments still have these leaves: a call may update
    them, as with `out=`."""
    present: list[Node] = []
    for x in arguments:
        _add(x, [], present)
    return len(present) == len(leaves) and all(map(is_, present, leaves))


@cache
def _array_class() -> Any:
    return array_namespace().Array


@contextmanager
def _recorded_reads() -> Iterator[list[tuple[Any, Any]]]:
    """Record the numbers that this block reads, for the calls that contain it too."""
    outer, reads = NUMBERS_READ.value, list[tuple[Any, Any]]()
    try:
        with NUMBERS_READ.replaced(reads):
            yield reads
    finally:
        if outer is not None:
            outer += reads


def _repeatable(
    eager: EagerComputation,
    result: Any,
    leaves: Sequence[Node],
    reads: Sequence[tuple[Node, Any]],
) -> RecordedCall[EagerComputation] | None:
    """Return the call that has computed a result, if it can be repeated: not if the result is a
    view of another array."""
    if isinstance(result, LazyArray):
        if _is_updatable_0d(result):
            return None
        if result._leaf is None and not reads:
            return creation_call_of(eager, result._node)
        if not leaves or not _is_repeatable(result):
            return None
        assert result._leaf is not None
        if not reads:
            return call_of(eager, result._leaf, leaves)
        return joint_call_of(eager, [result._leaf], leaves, reads, _only)
    is_tuple = isinstance(result, tuple) or type(result) is list
    if not leaves or not is_tuple or not all(map(_is_repeatable, result)):
        return None
    assemble = partial(_collection_of_arrays, getattr(type(result), "_make", type(result)))
    return joint_call_of(eager, [x._leaf for x in result], leaves, reads, assemble)


def _is_repeatable(result: Any) -> bool:
    """Return True for a computed array that is no view of another one."""
    if not isinstance(result, LazyArray) or result._leaf is None or _is_updatable_0d(result):
        return False
    return result.view_of is None or not result.view_of.storage.has_other_arrays(result)


def _is_updatable_0d(result: LazyArray) -> bool:
    """Return True for a 0-d array with memory of its own: `x += 1` changes it under all its names,
    and a repeated call could not return such an array."""
    return not result.shape and result.view_of is not None


def _only(leaves: Sequence[Node]) -> Node:
    return leaves[0]


def _collection_of_arrays(make: Callable[[list[Any]], Any], leaves: Sequence[Node]) -> Any:
    """Return a tuple or a list of arrays, given its class or named constructor."""
    return make([*map(_array_class(), leaves)])


def part_of_key(number: Any) -> Hashable:
    """Return a key that is equal for the same number only, although 0.0 equals -0.0."""
    return number or str(number)
