"""The dispatch cache of a pool: what is known of calls on small arrays, by their call keys.

A call key has what is the same for all calls that apply the same operations, such as a function,
and the shapes and types of its arguments. A key is in one of four states:

    new       no call with this key is known
    seen      one call was made, and the next one is recorded
    recorded  later calls are repeated
    excluded  calls are not repeated
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar, cast, final

from magmath.core.bounded_memo import store_bounded
from magmath.core.type_aliases import Number
from magmath.graph import Node
from magmath.graph.operation import Line

MAX_KEYS = 8192
WRITE_ERRORS = (ArithmeticError, IndexError, ValueError, Warning)
"""What NumPy raises when it replaces elements: a number or an index is out of range, or the user
has made warnings of conversions errors."""

Eager = TypeVar("Eager", contravariant=True)
"""`EagerComputation`, whose module imports this one."""


class RecordedCall(Protocol[Eager]):
    """A call that can be repeated."""

    @property
    def has_frequent_misses(self) -> bool:
        """True if it could not be repeated more often than it could."""

    def run(
        self,
        eager: Eager,
        arguments: Sequence[Node],
        line: Line,
        numbers: Sequence[Number] = (),
        /,
    ) -> Any | None:
        """Return the node of the result for these leaves and numbers, or what is composed of
        several results; None if the call cannot be repeated on them. Raises what a kernel
        raises."""


class RecordedWrite(RecordedCall[Eager], Protocol[Eager]):
    """A call that replaces elements of its first argument."""

    def write(
        self,
        eager: Eager,
        arguments: Sequence[Node],
        line: Line,
        numbers: Sequence[Number],
        /,
    ) -> Node | None:
        """Return the result, as `run`, in the memory of the first argument, which the caller
        drops."""


@final
class _Unrecorded(Enum):
    SEEN = 1
    EXCLUDED = 2


@final
class DispatchCache(Generic[Eager]):
    """The states of call keys; those that it does not have are new."""

    __slots__ = ("_states",)

    def __init__(self) -> None:
        self._states: dict[Hashable, RecordedCall[Eager] | _Unrecorded] = {}

    def repeat(
        self,
        eager: Eager,
        key: Hashable,
        arguments: Sequence[Node],
        line: Line,
        numbers: Sequence[Number] = (),
    ) -> Any | None:
        """Return the result of a call, as `RecordedCall.run`; None if it is not repeated, or fails:
        then the operations raise the error at their own lines."""
        call = self._states.get(key)
        if call is None or type(call) is _Unrecorded:
            return None
        try:
            result = call.run(eager, arguments, line, numbers)
        except Exception:
            return None
        if result is None and call.has_frequent_misses:
            self._states[key] = _Unrecorded.EXCLUDED
        return result

    def write(
        self,
        eager: Eager,
        key: Hashable,
        arguments: Sequence[Node],
        line: Line,
        numbers: Sequence[Number],
    ) -> Node | None:
        """Return the result of `RecordedWrite.write`; None as `repeat`.

        Errors other than those of NumPy pass: elements may have been replaced.
        """
        call = self._states.get(key)
        if call is None or type(call) is _Unrecorded:
            return None
        try:
            return cast("RecordedWrite[Eager]", call).write(eager, arguments, line, numbers)
        except WRITE_ERRORS:
            return None

    def is_new(self, key: Hashable) -> bool:
        """Return True if no call with a key is known."""
        return key not in self._states

    def is_seen_again(self, key: Hashable) -> bool:
        """Return True for the second call with a key, which is recorded; the first one is noted."""
        state = self._states.get(key)
        if state is None:
            store_bounded(self._states, key, _Unrecorded.SEEN, MAX_KEYS)
        return state is _Unrecorded.SEEN

    def record(self, key: Hashable, call: RecordedCall[Eager] | None) -> None:
        """Repeat later calls with a key by this call; None excludes them."""
        store_bounded(self._states, key, call or _Unrecorded.EXCLUDED, MAX_KEYS)

    def clear(self) -> None:
        """Forget all keys."""
        self._states.clear()
