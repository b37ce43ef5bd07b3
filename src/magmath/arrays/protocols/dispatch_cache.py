"""The dispatch cache: calls of functions on small arrays, by the shapes and types of the arrays.

`mm.mean(x, axis=0)` does the same operations for all arrays of a shape and a type. So the call key
of a call consists of the function, the shapes and types of the arrays, which of them are the same,
and the other arguments. A decorated function remembers its operations for the keys of its last
calls (`engine/eager/eager_calls.py`), and repeats them without running its own lines. It runs as
usual if an argument is pending, large, or of another kind, and if it depends on values of its
arguments in another way than through operations.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, wraps
from inspect import signature
from operator import is_
from typing import TYPE_CHECKING, Any, TypeVar

from magmath.arrays.inputs.operands import FLOAT_SCALARS
from magmath.arrays.lazy_array import LazyArray
from magmath.arrays.number_leaves import number_leaf
from magmath.arrays.protocols.namespace import array_namespace
from magmath.core.call_effects import CALL_EFFECTS
from magmath.core.dtypes import DType, bool_
from magmath.core.promotion import DEFAULT
from magmath.engine import session
from magmath.engine.eager.created_numbers import CreationCall, creation_call_of
from magmath.engine.eager.eager_calls import EagerCall, JointCall, call_of, joint_call_of
from magmath.engine.user_line import user_line
from magmath.graph import Node

if TYPE_CHECKING:
    from magmath.engine.eager.eager_computation import EagerComputation

F = TypeVar("F", bound=Callable[..., Any])
_NEW, _SEEN = object(), object()
"""In place of a recorded call: its key is new; it was made once. None: it is not repeated."""
_EXACT = frozenset((bool, int, str, type, type(None), DType))
"""Classes of arguments, other than floats, that stand for themselves in a key."""
_REAL = frozenset((float, int))
"""Classes of numbers that operators take as operands."""


# functions ----------------------------------------------------------------------------------------


def dispatch_cached(function: F) -> F:
    """Return a function of arrays that repeats the operations of an earlier call of the same key.

    It must depend on nothing but its arguments and the default type.
    """

    @wraps(function)
    def dispatch(*args: Any, **options: Any) -> Any:
        eager = session.eager_computation()
        if eager is None:
            return function(*args, **options)
        parts: list[Hashable] = [function, DEFAULT.floating.name]
        leaves: list[Node] = []
        for x in args:
            if isinstance(x, LazyArray) and x._leaf is x._node and not x.is_variable:
                leaf = x._node
                leaves.append(leaf)
                parts += leaf.shape, leaf.dtype.name
            elif not _add(x, parts, leaves):
                if _compute_numbers(eager, (*args, *options.values())):
                    return dispatch(*args, **options)
                return function(*args, **options)
        for name, x in options.items():
            parts.append(name)
            if not _add(x, parts, leaves):
                if _compute_numbers(eager, (*args, *options.values())):
                    return dispatch(*args, **options)
                return function(*args, **options)
        if len(leaves) > 1:  # f(x, x) and f(x, y) are different calls
            parts += map(leaves.index, leaves)
        key = tuple(parts)
        call = eager.calls.get(key, _NEW)
        if type(call) is EagerCall:
            try:
                repeated = call.run(eager, leaves, user_line(2))
            except Exception:  # the function raises it at its own line
                repeated = None
            return function(*args, **options) if repeated is None else _array_class()(repeated)
        if type(call) is JointCall and not (call.reads_numbers and CALL_EFFECTS.reads is not None):
            results = _repeated(eager, key, call, leaves)
            return function(*args, **options) if results is None else results
        if type(call) is CreationCall:
            return _array_class()(call.node(eager, user_line(2)))
        if call is not _SEEN:
            if call is _NEW:
                eager.note_call(key, _SEEN)
            return function(*args, **options)
        return _called_and_noted(eager, key, function, args, options, leaves)

    del dispatch.__wrapped__
    dispatch.__signature__ = signature(function)  # type: ignore[attr-defined]
    return dispatch  # type: ignore[return-value]


def _called_and_noted(
    eager: EagerComputation,
    key: Hashable,
    function: Callable[..., Any],
    args: Sequence[Any],
    options: Mapping[str, Any],
    leaves: Sequence[Node],
) -> Any:
    """Return the result of a call, and note how to repeat it; that it is not repeated, if it has
    effects other than recorded reads of numbers, or changes its arguments."""
    with _recorded_reads() as reads:
        effects = CALL_EFFECTS.count
        result = _computed(eager, function(*args, **options), leaves)
        is_pure = CALL_EFFECTS.count - effects == len(reads)
    is_pure = is_pure and _are_unchanged(args, options, leaves)
    eager.note_call(key, _repeatable(eager, result, leaves, reads) if is_pure else None)
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
        parts += kind, _part_of_key(x)
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


def _are_unchanged(args: Sequence[Any], options: Mapping[str, Any], leaves: Sequence[Node]) -> bool:
    """Return True if the arrays among the arguments still have these leaves: a call may update
    them, as with `out=`."""
    present: list[Node] = []
    for x in (*args, *options.values()):
        _add(x, [], present)
    return len(present) == len(leaves) and all(map(is_, present, leaves))


@cache
def _array_class() -> Any:
    return array_namespace().Array


@contextmanager
def _recorded_reads() -> Iterator[list[tuple[Any, Any]]]:
    """Record the numbers that this block reads, for the calls that contain it too."""
    outer, reads = CALL_EFFECTS.reads, list[tuple[Any, Any]]()
    CALL_EFFECTS.reads = reads
    try:
        yield reads
    finally:
        CALL_EFFECTS.reads = outer
        if outer is not None:
            outer += reads


def _repeated(
    eager: EagerComputation, key: Hashable, call: JointCall, leaves: Sequence[Node]
) -> Any | None:
    """Return the result of a call for these leaves; None if the function must be called."""
    try:
        results = call.run(eager, leaves, user_line(3))
    except Exception:  # the function raises it at its own line
        return None
    if results is None:
        if call.has_frequent_misses:
            eager.note_call(key, None)
        return None
    return call.assembled([*map(_array_class(), results)])


def _repeatable(
    eager: EagerComputation,
    result: Any,
    leaves: Sequence[Node],
    reads: Sequence[tuple[Node, Any]],
) -> EagerCall | JointCall | CreationCall | None:
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
    assembled = getattr(type(result), "_make", type(result))
    return joint_call_of(eager, [x._leaf for x in result], leaves, reads, assembled)


def _is_repeatable(result: Any) -> bool:
    """Return True for a computed array that is no view of another one."""
    if not isinstance(result, LazyArray) or result._leaf is None or _is_updatable_0d(result):
        return False
    return result.view_of is None or len(result.view_of.storage.arrays()) <= 1


def _is_updatable_0d(result: LazyArray) -> bool:
    """Return True for a 0-d array with memory of its own: `x += 1` changes it under all its names,
    and a repeated call could not return such an array."""
    return not result.shape and result.view_of is not None


def _only(results: list[Any]) -> Any:
    return results[0]


# operators ----------------------------------------------------------------------------------------

_KeyedOperands = tuple[tuple[Any, ...], tuple[Node, ...], tuple[Any, ...]]
"""The key of an operation, the leaves of its different arrays, and its numbers. No class, since
each operator makes one."""


def repeated_operator(operation: str, x: Any, y: Any, frames: int) -> Node | None:
    """Return a leaf with the result of an element-wise operation on stored arrays, or on one and a
    number; None if it runs as usual. `frames` are those up to the user's line.
    """
    eager = session.eager_computation()
    if eager is None or (keyed := _keyed_operands(eager, operation, x, y)) is None:
        return None
    key, leaves, numbers = keyed
    call = eager.calls.get(key)
    if call is None:
        return None
    try:
        leaf: Node | None = call.run(eager, leaves, user_line(frames), numbers)
    except Exception:  # the operation raises it at its own line
        return None
    return leaf


def _part_of_key(number: Any) -> Hashable:
    """Return a key that is equal for the same number only, although 0.0 equals -0.0."""
    return number or str(number)


def note_operator(operation: str, x: Any, y: Any, leaf: Node | None) -> None:
    """Note how a leaf was computed, for the next operation of the same key."""
    eager = session.eager_computation()
    if leaf is None or eager is None or (keyed := _keyed_operands(eager, operation, x, y)) is None:
        return
    key, leaves, numbers = keyed
    if key not in eager.calls:
        call = call_of(eager, leaf, leaves, len(numbers))
        if call is not None:
            eager.note_call(key, call)


def _keyed_operands(
    eager: EagerComputation, operation: str, x: Any, y: Any
) -> _KeyedOperands | None:
    """Return the key and the operands of an operation on two stored arrays, or on one and a number;
    otherwise None."""
    first, second = type(x), type(y)
    key: tuple[Any, ...]
    leaves: tuple[Node, ...]
    a: Node | None
    b: Node | None
    numbers: tuple[Any, ...]
    if second in _REAL:
        if not isinstance(x, LazyArray):
            return None
        a = x._node
        if a is not x._leaf and (a := x.stored_leaf()) is None:
            return None
        key = operation, DEFAULT.floating.name, a.shape, a.dtype.name, second
        leaves, numbers = (a,), (y,)
    elif first in _REAL:
        if not isinstance(y, LazyArray):
            return None
        b = y._node
        if b is not y._leaf and (b := y.stored_leaf()) is None:
            return None
        key = operation, DEFAULT.floating.name, first, b.shape, b.dtype.name
        leaves, numbers = (b,), (x,)
    elif second is first and isinstance(x, LazyArray):
        a, b = x._node, y._node
        if a is not x._leaf or b is not y._leaf:
            a, b = x.stored_leaf(), y.stored_leaf()
            if a is None and b is not None:
                a = number_leaf(eager, x)
            elif b is None and a is not None:
                b = number_leaf(eager, y)
            if a is None or b is None:
                return None
        is_same = a is b
        key = (
            operation,
            DEFAULT.floating.name,
            a.shape,
            a.dtype.name,
            b.shape,
            b.dtype.name,
            is_same,
        )
        leaves, numbers = ((a,) if is_same else (a, b)), ()
    elif isinstance(x, LazyArray) and FLOAT_SCALARS.get(second) is x._node.dtype:
        return _keyed_operands(eager, operation, x, float(y))
    elif isinstance(y, LazyArray) and FLOAT_SCALARS.get(first) is y._node.dtype:
        return _keyed_operands(eager, operation, float(x), y)
    else:
        return None
    if operation == "power":  # which is another operation for some numbers
        if leaves[0].dtype is bool_:  # the operator's squares are int8, the function's int64
            return None
        key, numbers = (*key, *map(_part_of_key, numbers)), ()
    return key, leaves, numbers
