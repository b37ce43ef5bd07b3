"""Updates in place that fail: which of them are undone, and how.

An update in place makes an array refer to another node. If that is pending, the array keeps a
record of the node that was replaced (`UpdateRecord`). After a failure, an update is undone if its
own expression cannot be computed, and only then: the array gets back its newest value that can be
computed. A write through a view is an update of the view, whose values the base receives. So a base
whose earlier update is undone keeps the later writes through its views, and the views of an array
whose update is undone are read from it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, final
from weakref import ref

from magmath.arrays.storage.element_storage import ArrayView, Path, read
from magmath.engine import session
from magmath.engine.fallible_operations import has_pending_fallible, is_pending_and_fallible
from magmath.engine.remote_array import RemoteArray, remote_array_of
from magmath.errors import MemoryLimitError, TracingError, WorkerLost
from magmath.graph import Node, set_value, topological, user_arrays
from magmath.ops.leaves import INPUT

MAX_SEARCHED = 64
"""Nodes of a new value that are searched for the replaced one, and for operations that fail."""
MAX_HELD_VALUES = 8
"""Replaced values that only the records of an array keep; the next one computes the array."""

Rewrite = Callable[[Node, Node], Node]
"""Returns an array with the elements of a view replaced, given the array and these elements."""


class RecordedArray(Protocol):
    """The attributes of an array that this module uses."""

    view_of: ArrayView | None
    pending_update: UpdateRecord | None
    """The record of its last update in place, if that is pending."""

    @property
    def node(self) -> Node:
        """The node that it refers to."""

    def replace_node(self, node: Node) -> None:
        """Refer to another node."""


@final
class ViewWrite(NamedTuple):
    """A write through a view, as an update of another array: the written elements of the view, and
    what puts them into the array."""

    values: Callable[[], Node | None]
    rewrite: Rewrite


@final
class ReadBase(NamedTuple):
    """The value of the base from which a view was read after an update, with its record, and the
    steps that derive the view from it."""

    node: Callable[[], Node | None]
    pending_update: UpdateRecord | None
    path: Path


@final
class UpdateRecord(NamedTuple):
    """The record of an update in place that is pending.

    node    returns the replaced node. The reference is weak if the new node depends on it
    before  the record of the update that made the replaced node
    held    the number of replaced nodes in this chain that only their records keep
    write   the write through a view that the update repeats; None for an update of the array itself
    source  for a view that was read again, what it was read from, in place of a replaced node
    """

    node: Callable[[], Node | None]
    before: UpdateRecord | None
    held: int
    write: ViewWrite | None = None
    source: ReadBase | None = None

    @property
    def is_long(self) -> bool:
        """True if the array should be computed, so that replaced nodes are released."""
        return self.held > MAX_HELD_VALUES


def update_record(
    old: Node, new: Node, before: UpdateRecord | None, write: ViewWrite | None = None
) -> UpdateRecord | None:
    """Return the record of an update that replaces a node by another one; None if the new one
    cannot fail, and does not depend on the old one."""
    held_nodes = 0 if before is None else before.held
    if old in new.inputs:
        return UpdateRecord(ref(old), before, held_nodes, write)
    can_fail = session.has_fallible_runs()
    if new.operation is INPUT and not can_fail:
        return None
    depends, fails = _search(new, old)
    if depends:
        return UpdateRecord(ref(old), before, held_nodes, write)
    return UpdateRecord(lambda: old, before, held_nodes + 1, write) if fails or can_fail else None


def view_record(base: RecordedArray, path: Path) -> UpdateRecord:
    """Return the record of a view that is read again after an update of its base."""
    source = ReadBase(ref(base.node), base.pending_update, path)
    return UpdateRecord(_nothing, None, 0, source=source)


def _nothing() -> None:
    return None


def _search(new: Node, old: Node) -> tuple[bool, bool]:
    """Return whether an expression reads a node, and whether it may fail: True if the expression is
    too large for the search."""
    stack, seen, fails = [new], {new}, False
    while stack:
        node = stack.pop(0)
        fails = fails or is_pending_and_fallible(node)
        for x in node.inputs:
            if x is old:
                return True, fails
            if x not in seen and x.value is None:
                seen.add(x)
                stack.append(x)
        if len(seen) > MAX_SEARCHED:
            return False, True
    return False, fails


# after a failure ----------------------------------------------------------------------------------


def _is_loss(error: BaseException) -> bool:
    """Return True if the workers of the current pool were lost: an operand may be an array of
    another pool that has ended."""
    return isinstance(error, WorkerLost) and not session.has_open_pool()


def undo_failed_updates(
    nodes: Iterable[Node], error: BaseException, requested: Sequence[RecordedArray] = ()
) -> None:
    """Undo the failed updates in place of the arrays that refer, or referred, to these nodes of an
    expression that raised an error, of those whose values were requested, and of the arrays that
    share elements with them."""
    if isinstance(error, TracingError) or _is_loss(error):
        return
    engine = session.engine()
    arrays: dict[int, RecordedArray] = {}
    read = [*nodes, *engine.evaluator.forget_failed()]
    for array in [*requested, *(x for node in read for x in user_arrays(node))]:
        sharing = [] if array.view_of is None else array.view_of.storage.arrays()
        arrays |= {id(x): x for x in [array, *sharing]}
    if all(x.pending_update is None for x in arrays.values()):
        return
    engine.runs.drain()
    check = _Check(isinstance(error, MemoryLimitError))
    for x in sorted(arrays.values(), key=_depth_in_storage):  # a base before its views
        if x.pending_update is not None or x.view_of is not None:
            _restore(x, check)
    engine.runs.drain()


def _depth_in_storage(array: RecordedArray) -> int:
    return 0 if array.view_of is None else len(array.view_of.path)


def _restore(array: RecordedArray, check: _Check) -> None:
    """Give an array the newest value that can be computed, if it has one."""
    node, latest = array.node, array.pending_update
    if check.can_be_computed(node):
        return
    view = array.view_of
    if view is not None and view.path:
        base = view.storage.base()
        if base is not None and base is not array:
            read_again = read(base.node, view.path_from(base))
            if check.can_be_computed(read_again):
                array.replace_node(read_again)
                return
    restored = _restored(node, latest, check)
    if restored is not None:
        array.replace_node(restored)


def _restored(node: Node, latest: UpdateRecord | None, check: _Check) -> Node | None:
    """Return the newest value of an array that can be computed, with those later writes through
    views that can be computed; None if there is none."""
    versions: list[Node | None] = [node]
    records: list[UpdateRecord] = []
    while latest is not None:
        records.append(latest)
        if latest.source is not None:
            break
        versions.append(latest.node())
        latest = latest.before
    newest = _newest(versions, check)
    if newest is not None:
        restored = versions[newest]
        records = records[:newest]
    else:
        restored = _read_again(records[-1].source, check) if records else None
    if restored is None:
        return None
    for record in reversed(records):
        if record.write is not None:
            values = record.write.values()
            if values is not None and check.can_be_computed(values):
                restored = record.write.rewrite(restored, values)
    return restored


def _read_again(source: ReadBase | None, check: _Check) -> Node | None:
    base = None if source is None else source.node()
    if source is None or base is None:
        return None
    if not check.can_be_computed(base):
        base = _restored(base, source.pending_update, check)
    return None if base is None else read(base, source.path)


def _newest(versions: Sequence[Node | None], check: _Check) -> int | None:
    """Return the position of the first version that can be computed.

    A version that reads the next one cannot be computed without it. So in each run of such versions
    the search halves the interval.
    """
    last = len(versions) - 1
    ends = [i for i, (new, old) in enumerate(pairwise(versions)) if not _reads(new, old)]
    first = 0
    for end in [*ends, last]:
        if check.is_good(versions[end]):
            while first < end:
                middle = (first + end) // 2
                if check.is_good(versions[middle]):
                    end = middle
                else:
                    first = middle + 1
            return end
        first = end + 1
    return None


def _reads(new: Node | None, old: Node | None) -> bool:
    return new is not None and old in new.inputs


@final
class _Check:
    """Which nodes can be computed. `limited`: the memory limit was reached, so each node is tried;
    otherwise those that may fail for their data."""

    def __init__(self, limited: bool) -> None:
        self._limited = limited
        self._found: dict[Node, bool] = {}

    def is_good(self, node: Node | None) -> bool:
        """Return True for a node that can be computed, False for one that is gone."""
        return node is not None and self.can_be_computed(node)

    def can_be_computed(self, node: Node) -> bool:
        """Return True if the value of a node can be computed."""
        if node not in self._found:
            self._found[node] = not self._is_fallible(node) or self._is_computed(node)
        return self._found[node]

    def _is_fallible(self, node: Node) -> bool:
        order = topological((node,), pending=True)
        if self._limited or has_pending_fallible(order):
            return True
        operands = [x for x in order if x.operation is INPUT or x.value is not None]
        return not all(map(_has_succeeded, operands))

    @staticmethod
    def _is_computed(node: Node) -> bool:
        engine = session.engine()
        if isinstance(node.value, Node):
            if _has_succeeded(node):
                return True
            set_value(node, None)
        if node.is_leaf:
            return False
        engine.evaluator.forget_failed()  # operands that another try has computed
        try:
            (leaf,) = engine.evaluate([node])
        except TracingError:
            raise
        except Exception as error:
            if _is_loss(error):
                raise
            return False
        if not _has_succeeded(leaf):
            return False
        set_value(node, leaf)
        return True


def _has_succeeded(node: Node) -> bool:
    """Return True unless a node has a value of a run that has failed, or fails now."""
    data: Any = node.value.value if isinstance(node.value, Node) else node.value
    return type(data) is not RemoteArray or session.engine().runs.has_succeeded(
        remote_array_of(node)
    )
