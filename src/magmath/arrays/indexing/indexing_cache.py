"""Indexing in the dispatch cache: slices and elements of small arrays, and small parts of larger
ones, which NumPy reads and writes in this process.

What `x[1:]` and `x[1:] = v` do is recorded at the first line with their call key
(`engine/eager/dispatch_cache.py`): the index, and the shapes and types of the arrays. Later lines
with this key are one line of NumPy (`part_programs`), and share the recipe, by which gradients pass
through them. Small slices, as `x[i : i + 3]`, have one call key for all first positions, which are
numbers of the call.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import pairwise
from math import prod
from sys import maxsize
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np

from magmath.arrays.indexing.part_programs import (
    ArrayReadProgram,
    PartReadProgram,
    SliceReadProgram,
    SliceWriteProgram,
    WriteProgram,
)
from magmath.arrays.indexing.single_elements import METHOD_FRAMES, written_leaf
from magmath.arrays.indexing.slice_recipes import with_starts
from magmath.arrays.indexing.subscripts import Part, SliceForm, fixed_bounds
from magmath.arrays.indexing.written_values import written_value
from magmath.arrays.lazy_array import LazyArray
from magmath.arrays.leaf_values import small_local_array
from magmath.arrays.number_leaves import number_leaf
from magmath.arrays.storage.element_storage import ViewStep
from magmath.core.dtypes import int64, uint64
from magmath.core.type_aliases import Number
from magmath.engine import session
from magmath.engine.eager.call_recipes import recipe_of_call
from magmath.engine.eager.eager_calls import CallProgram, EagerCall
from magmath.engine.user_line import user_line
from magmath.graph import Node, recipe_of_nodes, topological
from magmath.graph.operation import Line
from magmath.graph.provenance.recipe import NumberStep, Recipe, RecipeStep
from magmath.ops.indexing.dynamic_slice import DYNAMIC_SLICE, DYNAMIC_UPDATE_SLICE
from magmath.ops.masking import COMPRESS

if TYPE_CHECKING:
    from magmath.engine.eager.eager_computation import EagerComputation

PART_FRAMES = METHOD_FRAMES + 1
"""Frames from `user_line` to a method of the array that calls a function of `arrays/array.py`."""


# parts without arrays of positions ----------------------------------------------------------------


def selected_part(array: LazyArray, step: ViewStep) -> Node:
    """Return the elements that a step selects: a leaf, if they are a small part of a stored array,
    otherwise a pending node."""
    source = array._leaf if array._leaf is array._node else array.stored_leaf()
    if source is None or (eager := session.eager_indexing()) is None:
        return step.read(array.node)
    selection, starts = _selection_and_starts(step)
    key, line = (selection, source.shape, source.dtype.name), user_line(PART_FRAMES)
    part: Node | None = eager.dispatch_cache.repeat(eager, key, (source,), line, starts)
    if part is not None:
        return part
    node = step.read(array.node)
    if eager.dispatch_cache.is_new(key) and _is_small_part(eager, source, node):
        eager.dispatch_cache.record(key, _part_call(source, step, node, len(starts)))
        part = eager.dispatch_cache.repeat(eager, key, (source,), line, starts)
    return part or node


def _is_small_part(eager: EagerComputation, source: Node, part: Node) -> bool:
    """Return True for a small part of an array that this process stores."""
    is_small = part.nbytes <= eager.max_eager_bytes
    return is_small and eager.stored_value(source, maxsize) is not None


def _part_call(source: Node, step: ViewStep, part: Node, starts: int) -> EagerCall | None:
    """Return the call that selects parts of arrays as a step does, with as many first positions as
    its numbers, from the pending node of a part."""
    operations = _recipe_of_pending(part, (source,))
    if operations is None:
        return None
    if not starts:
        return EagerCall(PartReadProgram(step), operations[0], part, (0,))
    assert isinstance(step, Part)
    assert step.form is not None
    recipe = with_starts(operations[0], DYNAMIC_SLICE, 1, starts)
    return None if recipe is None else EagerCall(SliceReadProgram(step.form), recipe, part, (0,))


def _recipe_of_pending(
    node: Node, arguments: Sequence[Node]
) -> tuple[Recipe, tuple[int, ...]] | None:
    """Return the recipe of a pending node, and the positions of its operands among stored
    arguments; None if it has other operands, or is an argument itself."""
    order = topological((node,), pending=True)
    recipe, operands = recipe_of_nodes(order, {x: i for i, x in enumerate(order)})
    leaves = [x.leaf_or_self for x in operands]
    if not recipe.length or not all(x in arguments for x in leaves):
        return None
    return recipe, tuple(map(arguments.index, leaves))


def _selection_and_starts(step: Any) -> tuple[Hashable, tuple[int, ...]]:
    """Return what equal selections have in common, and the first positions in which they differ."""
    if type(step) is Part and step.form is not None:
        return step.selection, step.starts
    return step, ()


def written_part(
    array: LazyArray,
    key: Any,
    part: Part | None,
    value: Any,
    write: Callable[[], Node],
    *,
    in_place: bool,
) -> Node:
    """Return an array in which a value replaces the elements that an index selects: a leaf, if the
    array is stored, and the value is a number or a stored array of its type; otherwise the pending
    node that `write` returns.

    part      the part that the index selects; None if the index has arrays
    in_place  nothing else references the value of the array
    """
    written = _repeated_write(array, key, part, value, in_place)
    if written is None:
        node = write()
        if _record_write(array, key, part, value, node):
            written = _repeated_write(array, key, part, value, in_place)
    return written or node


def _repeated_write(
    array: LazyArray, key: Any, part: Part | None, value: Any, in_place: bool
) -> Node | None:
    """Return a leaf with the written array; None if an operation writes the elements."""
    leaf = array.stored_leaf()
    eager = session.eager_indexing()
    if leaf is None or eager is None:
        return None
    write = _write_of(eager, leaf, key, part, value)
    if write is None:
        return None
    numbers = (*write.numbers, *write.starts)
    line = user_line(PART_FRAMES)
    return written_leaf(eager, write.call_key, write.arguments, line, numbers, in_place)


def _record_write(array: LazyArray, key: Any, part: Part | None, value: Any, written: Node) -> bool:
    """Record how elements of an array are replaced, from the pending node of the written array;
    return True if the write can be repeated."""
    source, eager = array.stored_leaf(), session.eager_indexing()
    if source is None or eager is None or eager.stored_value(source, maxsize) is None:
        return False
    write = _write_of(eager, source, key, part, value)
    if write is None or not eager.dispatch_cache.is_new(write.call_key):
        return False
    call, arguments = None, write.arguments
    operations = _recipe_of_pending(written, arguments)
    if operations is not None and sorted(operations[1]) == [*range(len(arguments))]:
        recipe = _with_numbers(operations[0], write)
        if recipe is not None:
            call = EagerCall(write.program(operations[1]), recipe, written, operations[1])
    eager.dispatch_cache.record(write.call_key, call)
    return call is not None


@final
class _KeyedWrite(NamedTuple):
    """A write into an array.

    call_key         what is the same for writes of other values by the same operations
    arguments        the leaves of the array, of arrays in the index, and of a written array
    numbers          a written number
    items            the index, with None in place of arrays
    array_positions  where arrays are among the items
    form             of the written part, if its first positions are not in the call key
    starts           these first positions
    """

    call_key: tuple[Hashable, ...]
    arguments: tuple[Node, ...]
    numbers: tuple[float, ...]
    items: Sequence[Any]
    array_positions: tuple[int, ...]
    form: SliceForm | None = None
    starts: tuple[int, ...] = ()

    def program(self, used: Sequence[int]) -> CallProgram:
        """Return the program, for operands that are the arguments at these positions."""
        count = len(self.array_positions)
        value = None if self.numbers else used.index(count + 1)
        if self.form is not None:
            return SliceWriteProgram(self.form, used.index(0), value)
        arrays = [(i, used.index(1 + k)) for k, i in enumerate(self.array_positions)]
        return WriteProgram(self.items, arrays, used.index(0), value)


def _write_of(
    eager: EagerComputation, leaf: Node, key: Any, part: Part | None, value: Any
) -> _KeyedWrite | None:
    """Return the write of a value into the array of a leaf; None if something must be converted or
    computed before.

    Where a mask selects elements for an array of values, the operation depends on their number in
    the part of each worker.
    """
    written = written_value(leaf, value)
    if written is None or any(x.nbytes > eager.max_eager_bytes for x in written.arrays):
        return None
    arguments, numbers = written.arrays, written.numbers
    call_key = "write", leaf.shape, leaf.dtype.name, written.form
    if part is not None:
        if prod(part.shape) * leaf.dtype.itemsize > eager.max_eager_bytes:
            return None
        selection, starts = _selection_and_starts(part)
        arguments = (leaf, *arguments)
        return _KeyedWrite(
            (*call_key, selection), arguments, numbers, part.key, (), part.form, starts
        )
    index = _array_index(eager, key)
    if index is None or leaf in index.arrays:
        return None
    if any(x.nbytes > eager.max_eager_bytes for x in index.arrays):
        return None
    if index.has_mask and arguments and arguments[0].shape and eager.pool.workers > 1:
        return None
    return _KeyedWrite(
        (*call_key, *index.call_key),
        (leaf, *index.arrays, *arguments),
        numbers,
        index.items,
        index.array_positions,
    )


def _with_numbers(recipe: Recipe, write: _KeyedWrite) -> Recipe | None:
    """Return the recipe of a write with the numbers of the write as its numbers; None if they
    cannot be told apart, or if the recipe does not hold for all writes with its call key."""
    if write.form is not None:
        first = 1 if write.numbers else 2
        return with_starts(
            recipe, DYNAMIC_UPDATE_SLICE, first, len(write.numbers) + len(write.starts)
        )
    written_number = _written_number(recipe, write)
    if write.numbers and written_number is not None:
        recipe = recipe.with_numbers((written_number,))
    is_complete = len(recipe.numbers) == len(write.numbers)
    return recipe if is_complete and _has_own_counts(recipe, write) else None


def _written_number(recipe: Recipe, write: _KeyedWrite) -> int | None:
    """Return the position of the written number in a recipe, whose other numbers are positions;
    None if they cannot be told apart, or there is no written number.

    A write of a part has the number before the positions; an index with arrays may read a part
    first.
    """
    if not write.numbers:
        return None
    dtype = write.arguments[0].dtype
    steps = [(i, x) for i, x in enumerate(recipe.steps) if isinstance(x, NumberStep)]
    if write.array_positions:
        steps = [(i, x) for i, x in steps if x.dtype is dtype]
    if not steps or (write.array_positions and len(steps) > 1):
        return None
    return steps[0][0]


def _has_own_counts(recipe: Recipe, write: _KeyedWrite) -> bool:
    """Return True if the operations of a write hold for all masks of a shape: if no number of true
    elements is among their attributes, or if it is an extent of the written array."""
    counts = {
        sum(step.attributes["counts"])
        for step in recipe.steps
        if isinstance(step, RecipeStep) and "counts" in step.attributes
    }
    if not counts:
        return True
    shape = () if write.numbers else write.arguments[-1].shape
    return write.array_positions == (0,) and shape[:1] == tuple(counts)


# arrays of positions, masks -----------------------------------------------------------------------


@final
class _ArrayIndex(NamedTuple):
    """An index with stored arrays of positions, or a mask.

    call_key         the index, with shapes and types in place of arrays
    items            the index, with None in place of arrays
    array_positions  where the arrays are among the items
    arrays           their leaves
    has_mask         one of them is a mask
    """

    call_key: tuple[Hashable, ...]
    items: list[Any]
    array_positions: tuple[int, ...]
    arrays: tuple[Node, ...]
    has_mask: bool


def _array_index(eager: EagerComputation, key: Any) -> _ArrayIndex | None:
    """Return an index with stored arrays; None if it has no arrays, or others."""
    call_key: list[Hashable] = []
    items: list[Any] = []
    positions: list[int] = []
    arrays: list[Node] = []
    has_mask = False
    for item in key if type(key) is tuple else (key,):
        if isinstance(item, LazyArray):
            node = item.stored_leaf() or number_leaf(eager, item)
            if node is None or (kind := node.dtype.kind) in ("float", "complex"):
                return None
            if node.dtype is uint64:  # NumPy reads 2**64 - 1 as -1, which is out of range here
                return None
            has_mask = has_mask or kind == "bool"
            call_key += node.shape, node.dtype.name
            positions.append(len(items))
            items.append(None)
            arrays.append(node)
            continue
        if type(item) is slice:
            bounds = fixed_bounds(item)
            if bounds is None:
                return None
            call_key.append(bounds)
        elif item is None or item is Ellipsis or type(item) is int:
            call_key.append(item)
        else:
            return None
        items.append(item)
    if not arrays or (has_mask and len(arrays) > 1):
        return None
    return _ArrayIndex(tuple(call_key), items, tuple(positions), tuple(arrays), has_mask)


def with_stored_positions(array: LazyArray, key: Any) -> Any:
    """Return an index of a stored array with arrays of magmath in place of small NumPy arrays and
    lists of positions, so that lines with this form are repeated. Other operations check the
    positions of NumPy's arrays before those of magmath's."""
    items = key if type(key) is tuple else (key,)
    if not any(type(x) is list or type(x) is np.ndarray for x in items):
        return key
    eager = session.eager_indexing()
    if eager is None or array.stored_leaf() is None:
        return key
    stored = tuple([_stored_positions(eager, x) for x in items])
    return stored if type(key) is tuple else stored[0]


def _stored_positions(eager: EagerComputation, item: Any) -> Any:
    """Return a small list or NumPy array of integers as a stored array; other items as they are."""
    is_short = type(item) is list and 0 < len(item) <= eager.max_eager_bytes // int64.itemsize
    if is_short and all(type(x) is int for x in item):
        item = np.asarray(item)
    is_positions = type(item) is np.ndarray and item.ndim and item.dtype.kind in "iu"
    leaf = eager.copied_leaf(item) if is_positions else None
    return item if leaf is None else LazyArray(leaf)


def repeated_elements(array: LazyArray, key: Any) -> Node | None:
    """Return a leaf with the elements of a small stored array at stored positions, or where a
    stored mask is true; None if they are read by an operation."""
    if (eager := session.eager_indexing()) is None:
        return None
    leaf = array.stored_leaf() or number_leaf(eager, array)
    index = None if leaf is None else _array_index(eager, key)
    if leaf is None or index is None:
        return None
    key_of_call = "read", leaf.shape, leaf.dtype.name, *index.call_key
    arguments, line = (leaf, *index.arrays), user_line(METHOD_FRAMES)
    elements: Node | None = eager.dispatch_cache.repeat(eager, key_of_call, arguments, line)
    return elements


def record_elements(array: LazyArray, key: Any, selected: LazyArray) -> None:
    """Record how elements of an array were selected, for the next ones."""
    source, leaf, eager = array._leaf, selected._leaf, session.eager_indexing()
    if source is None or source is not array._node or leaf is None or eager is None:
        return
    index = _array_index(eager, key)
    if index is None:
        return
    call_key = "read", source.shape, source.dtype.name, *index.call_key
    if not eager.dispatch_cache.is_new(call_key):
        return
    arguments = source, *index.arrays
    operations = recipe_of_call(leaf, arguments)
    if operations is None or operations[1] != [*range(len(arguments))]:
        eager.dispatch_cache.record(call_key, None)
        return
    recipe, used = operations
    if index.has_mask:
        step = recipe.steps[-1]
        assert isinstance(step, RecipeStep)
        is_alone = step.operation is COMPRESS and recipe.length == 1
        eager.dispatch_cache.record(call_key, _MaskedRead(step) if is_alone else None)
    else:
        program = ArrayReadProgram(index.items, index.array_positions)
        eager.dispatch_cache.record(call_key, EagerCall(program, recipe, leaf, used))


@final
class _MaskedRead:
    """The call that reads the elements where a mask is true, whatever their number is; `step` read
    those of another mask."""

    __slots__ = ("_step",)
    has_frequent_misses = False

    def __init__(self, step: RecipeStep) -> None:
        self._step = step

    def run(
        self,
        eager: EagerComputation,
        arguments: Sequence[Node],
        line: Line,
        numbers: Sequence[Number] = (),
    ) -> Node | None:
        """Return a leaf with the elements; None as `EagerCall.run`, and if they are too many for a
        result that is computed at its line."""
        call = self._call(eager, *arguments)
        return None if call is None else call.run(eager, arguments, line)

    def _call(self, eager: EagerComputation, leaf: Node, mask: Node) -> EagerCall | None:
        truths = small_local_array(mask)
        if truths is None or mask.value.pool is not eager.pool:
            return None
        cuts, axis = self._step.attributes["cuts"], self._step.attributes["axis"]
        counts = tuple([int(np.count_nonzero(truths[a:b])) for a, b in pairwise(cuts)])
        shape = (*leaf.shape[:axis], sum(counts), *leaf.shape[axis + mask.ndim :])
        if prod(shape) * leaf.dtype.itemsize > eager.max_eager_bytes:
            return None
        attributes = {"axis": axis, "cuts": cuts, "counts": counts}
        read = RecipeStep(COMPRESS, attributes, shape, leaf.dtype, None, None, None, (0, 1))
        items = [slice(None)] * axis + [None]
        recipe = Recipe([None, None, read], (0, 1))
        return EagerCall(ArrayReadProgram(items, (axis,)), recipe, read, (0, 1))
