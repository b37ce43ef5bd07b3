"""Stored parts: slices and elements of small arrays, which NumPy reads and writes in this process.

The dispatch cache for keys: what `x[1:]` and `x[1:] = v` do is noted by the key and the shapes and
types of the arrays. Later lines of the same form are one line of NumPy (the programs at the end of
this file), and share the recipe, by which gradients pass through them. Small windows, as `x[i : i +
3]`, have one form for all first positions, which are numbers of the call.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np

from magmath.arrays.indexing.subscripts import Part, Window, fixed_bounds
from magmath.arrays.indexing.window_recipes import with_starts
from magmath.arrays.indexing.written_values import written_value
from magmath.arrays.lazy_array import LazyArray
from magmath.arrays.storage.element_storage import ViewStep
from magmath.core.dtypes import uint64
from magmath.engine import session
from magmath.engine.eager.eager_calls import CallProgram, EagerCall, recipe_of_call
from magmath.engine.remote_array import RemoteArray
from magmath.engine.user_line import user_line
from magmath.graph import Node
from magmath.graph.provenance.recipe import NumberStep, Recipe, RecipeStep
from magmath.ops.indexing.dynamic_slice import SET_WINDOW, WINDOW
from magmath.ops.masking import COMPRESS

if TYPE_CHECKING:
    from magmath.engine.eager.eager_arrays import EagerArrays

METHOD_FRAMES = 2
"""Frames from `user_line` to the caller of functions here, which is a method of the array."""
PART_FRAMES = 3
"""The same if a function of `arrays/array.py` is between them."""


# parts without arrays of positions ----------------------------------------------------------------


def stored_part(array: LazyArray, step: ViewStep) -> Node | None:
    """Return a leaf with the elements that a step selects from a small stored array; None if they
    are read by an operation."""
    leaf = array.stored_leaf()
    if leaf is None:
        return None
    eager = session.dispatching()
    if eager is None:
        return None
    form, starts = _form_and_starts(step)
    call = eager.calls.get((form, leaf.shape, leaf.dtype.name))
    return None if call is None else call.run(eager, (leaf,), user_line(PART_FRAMES), starts)


def note_part(array: LazyArray, step: ViewStep, selected: LazyArray) -> None:
    """Note how an array was selected by a step, for the next ones."""
    source, leaf = array._leaf, selected._leaf
    eager = session.dispatching()
    if source is None or source is not array._node or leaf is None or eager is None:
        return
    form, starts = _form_and_starts(step)
    key = form, source.shape, source.dtype.name
    if key in eager.calls:
        return
    known = recipe_of_call(leaf, (source,))
    recipe = None if known is None else known[0]
    program: CallProgram = _Reading(step)
    if recipe is not None and isinstance(form, Window):
        recipe, program = with_starts(recipe, WINDOW, 1, len(starts)), _WindowReading(form)
    eager.note_call(key, None if recipe is None else EagerCall(program, recipe, leaf, (0,)))


def _form_and_starts(step: Any) -> tuple[Hashable, tuple[int, ...]]:
    """Return what equal selections have in common, and the first positions in which they differ."""
    if type(step) is Part and step.window is not None:
        return step.window, step.starts
    return step, ()


def stored_write(array: LazyArray, key: Any, part: Part | None, value: Any) -> Node | None:
    """Return a leaf with the elements of a small stored array, in which a number or a stored array
    of the same type replaces those that a key selects; None if an operation writes them.

    `part` is the part that the key selects; None if the key has arrays.
    """
    leaf = array.stored_leaf()
    eager = session.dispatching()
    if leaf is None or eager is None:
        return None
    write = _write_of(eager, leaf, key, part, value)
    if write is None:
        return None
    call = eager.calls.get(write.form)
    if call is None:
        return None
    try:
        line = user_line(METHOD_FRAMES)
        numbers = (*write.numbers, *write.starts)
        written: Node | None = call.run(eager, write.arguments, line, numbers)
    except (IndexError, ValueError):  # the operation raises it at its own line
        return None
    return written


def note_write(
    source: Node | None, key: Any, part: Part | None, value: Any, written: LazyArray
) -> None:
    """Note how elements of an array were replaced, for the next ones; `source` is its former
    leaf."""
    eager = session.dispatching()
    if source is None or written._leaf is None or eager is None:
        return
    write = _write_of(eager, source, key, part, value)
    if write is None or write.form in eager.calls:
        return
    call, arguments = None, write.arguments
    known = recipe_of_call(written._leaf, arguments)
    if known is not None and sorted(known[1]) == [*range(len(arguments))]:
        recipe = _with_numbers(known[0], write)
        if recipe is not None:
            call = EagerCall(write.program(known[1]), recipe, written._leaf, known[1])
    eager.note_call(write.form, call)


@final
class _Write(NamedTuple):
    """A write into an array.

    form       what is the same for equal writes of other values
    arguments  the leaves of the array, of arrays in the key, and of a written array
    numbers    a written number
    items      the key, with None in place of arrays
    places     where arrays are among the items
    window     the form of the written part, if its first positions are no part of the form
    starts     these first positions
    """

    form: tuple[Hashable, ...]
    arguments: tuple[Node, ...]
    numbers: tuple[float, ...]
    items: Sequence[Any]
    places: tuple[int, ...]
    window: Window | None = None
    starts: tuple[int, ...] = ()

    def program(self, used: Sequence[int]) -> CallProgram:
        """Return the program, for operands that are the arguments at these positions."""
        arrays = len(self.places)
        value = None if self.numbers else used.index(arrays + 1)
        if self.window is not None:
            return _WindowWriting(self.window, used.index(0), value)
        places = [(place, used.index(1 + k)) for k, place in enumerate(self.places)]
        return _Writing(self.items, places, used.index(0), value)


def _write_of(
    eager: EagerArrays, leaf: Node, key: Any, part: Part | None, value: Any
) -> _Write | None:
    """Return the write of a value into the array of a leaf; None if something must be converted or
    computed before.

    Where a mask selects elements for an array of values, the operation depends on their number in
    the part of each worker.
    """
    arguments, numbers, kind = written_value(leaf, value)
    if kind is None:
        return None
    form = "write", leaf.shape, leaf.dtype.name, kind
    if part is not None:
        own, starts = _form_and_starts(part)
        arguments = (leaf, *arguments)
        return _Write((*form, own), arguments, numbers, part.key, (), part.window, starts)
    known = _array_key(key)
    if known is None or leaf in known.arrays:
        return None
    if known.has_mask and arguments and arguments[0].shape and eager.pool.workers > 1:
        return None
    return _Write(
        (*form, *known.form), (leaf, *known.arrays, *arguments), numbers, known.items, known.places
    )


def _with_numbers(recipe: Recipe, write: _Write) -> Recipe | None:
    """Return the recipe of a write with the numbers of the write as its numbers; None if they
    cannot be told apart, or if the recipe does not hold for all writes of the form."""
    if write.window is not None:
        first = 1 if write.numbers else 2
        return with_starts(recipe, SET_WINDOW, first, len(write.numbers) + len(write.starts))
    written_number = _written_number(recipe, write)
    if write.numbers and written_number is not None:
        recipe = recipe.with_numbers((written_number,))
    is_complete = len(recipe.numbers) == len(write.numbers)
    return recipe if is_complete and _has_own_counts(recipe, write) else None


def _written_number(recipe: Recipe, write: _Write) -> int | None:
    """Return the position of the written number in a recipe, whose other numbers are positions;
    None if they cannot be told apart, or there is no written number.

    A write of a part has the number before the positions; a key with arrays may read a part first.
    """
    if not write.numbers:
        return None
    dtype = write.arguments[0].dtype
    steps = [(i, x) for i, x in enumerate(recipe.steps) if isinstance(x, NumberStep)]
    if write.places:
        steps = [(i, x) for i, x in steps if x.dtype is dtype]
    if not steps or (write.places and len(steps) > 1):
        return None
    return steps[0][0]


def _has_own_counts(recipe: Recipe, write: _Write) -> bool:
    """Return True if the operations of a write hold for all masks of a form: if no number of true
    elements is among their attributes, or if it is an extent of the written array."""
    counts = {
        sum(step.attributes["counts"])
        for step in recipe.steps
        if isinstance(step, RecipeStep) and "counts" in step.attributes
    }
    if not counts:
        return True
    shape = () if write.numbers else write.arguments[-1].shape
    return write.places == (0,) and shape[:1] == tuple(counts)


# arrays of positions, masks -----------------------------------------------------------------------


@final
class _ArrayKey(NamedTuple):
    """A key with stored arrays of positions, or a mask.

    form      the key, with shapes and types in place of arrays
    items     the key, with None in place of arrays
    places    where the arrays are among the items
    arrays    their leaves
    has_mask  one of them is a mask
    """

    form: tuple[Hashable, ...]
    items: list[Any]
    places: tuple[int, ...]
    arrays: tuple[Node, ...]
    has_mask: bool


def _array_key(key: Any) -> _ArrayKey | None:
    """Return a key as a form and arrays; None if it has no arrays, or others than stored ones."""
    form: list[Hashable] = []
    items: list[Any] = []
    places: list[int] = []
    arrays: list[Node] = []
    has_mask = False
    for item in key if type(key) is tuple else (key,):
        if isinstance(item, LazyArray):
            node = item.stored_leaf()
            if node is None or (kind := node.dtype.kind) in ("float", "complex"):
                return None
            if node.dtype is uint64:  # NumPy reads 2**64 - 1 as -1, which is out of range here
                return None
            has_mask = has_mask or kind == "bool"
            form += node.shape, node.dtype.name
            places.append(len(items))
            items.append(None)
            arrays.append(node)
            continue
        if type(item) is slice:
            bounds = fixed_bounds(item)
            if bounds is None:
                return None
            form.append(bounds)
        elif item is None or item is Ellipsis or type(item) is int:
            form.append(item)
        else:
            return None
        items.append(item)
    if not arrays or (has_mask and len(arrays) > 1):
        return None
    return _ArrayKey(tuple(form), items, tuple(places), tuple(arrays), has_mask)


def are_small_positions(array: LazyArray, key: np.ndarray[Any, Any]) -> bool:
    """Return True for a NumPy array of positions in a stored array, both small: other operations
    check the positions of NumPy's arrays before those of magmath's."""
    eager = session.dispatching()
    if eager is None or not key.ndim or key.dtype.kind not in "iu":
        return False
    leaf, limit = array._leaf, eager.max_eager_bytes
    return leaf is not None and leaf is array._node and max(leaf.nbytes, key.nbytes) <= limit


def stored_elements(array: LazyArray, key: Any) -> Node | None:
    """Return a leaf with the elements of a small stored array at stored positions, or where a
    stored mask is true; None if they are read by an operation."""
    leaf = array.stored_leaf()
    if leaf is None:
        return None
    known = _array_key(key)
    if known is None or (eager := session.dispatching()) is None:
        return None
    form = "read", leaf.shape, leaf.dtype.name, *known.form
    line = user_line(METHOD_FRAMES)
    try:
        if known.has_mask:
            step = eager.calls.get(form)
            call = None if step is None else _masked_call(eager, step, leaf, known.arrays[0])
        else:
            call = eager.calls.get(form)
        return None if call is None else call.run(eager, (leaf, *known.arrays), line)
    except IndexError:  # the operation raises it at its own line
        return None


def note_elements(array: LazyArray, key: Any, selected: LazyArray) -> None:
    """Note how elements of an array were selected, for the next ones."""
    source, leaf, eager = array._leaf, selected._leaf, session.dispatching()
    if source is None or source is not array._node or leaf is None or eager is None:
        return
    known = _array_key(key)
    if known is None:
        return
    form = "read", source.shape, source.dtype.name, *known.form
    if form in eager.calls:
        return
    arguments = source, *known.arrays
    operations = recipe_of_call(leaf, arguments)
    if operations is None or operations[1] != [*range(len(arguments))]:
        eager.note_call(form, None)
        return
    recipe, used = operations
    if known.has_mask:
        step = recipe.steps[-1]
        assert isinstance(step, RecipeStep)
        is_alone = step.operation is COMPRESS and recipe.length == 1
        eager.note_call(form, step if is_alone else None)
    else:
        program = _Picking(known.items, known.places)
        eager.note_call(form, EagerCall(program, recipe, leaf, used))


def _masked_call(eager: EagerArrays, step: RecipeStep, leaf: Node, mask: Node) -> EagerCall | None:
    """Return the call that reads the elements where a mask is true, whatever their number is."""
    data = mask.value
    if type(data) is not RemoteArray or data.pool is not eager.pool:
        return None
    truths = data.local_elements()
    if truths is None:
        return None
    cuts, axis = step.attributes["cuts"], step.attributes["axis"]
    counts = tuple([int(np.count_nonzero(truths[a:b])) for a, b in pairwise(cuts)])
    shape = (*leaf.shape[:axis], sum(counts), *leaf.shape[axis + mask.ndim :])
    attributes = {"axis": axis, "cuts": cuts, "counts": counts}
    read = RecipeStep(COMPRESS, attributes, shape, leaf.dtype, None, None, None, (0, 1))
    items = [slice(None)] * axis + [None]
    recipe = Recipe([None, None, read], (0, 1))
    return EagerCall(_Picking(items, (axis,)), recipe, read, (0, 1))


# programs -----------------------------------------------------------------------------------------

_Arrays = Sequence["np.ndarray[Any, Any]"]


@final
class _Reading:
    """The program that copies the elements which a step selects."""

    __slots__ = ("_strided",)

    def __init__(self, step: ViewStep) -> None:
        self._strided = step.strided

    def run(self, arrays: _Arrays, numbers: Sequence[Any]) -> _Arrays:
        """Return the copy."""
        return (np.array(self._strided(arrays[0]), order="C"),)


@final
class _WindowReading:
    """The program that copies a window from the first positions on that are its numbers."""

    __slots__ = ("_window",)

    def __init__(self, window: Window) -> None:
        self._window = window

    def run(self, arrays: _Arrays, numbers: Sequence[Any]) -> _Arrays:
        """Return the copy."""
        return (np.array(arrays[0][self._window.key_of(numbers)], order="C"),)


@final
class _Picking:
    """The program that copies the elements of the first array which the others select."""

    __slots__ = ("_items", "_places")

    def __init__(self, items: Sequence[Any], places: Sequence[int]) -> None:
        self._items, self._places = [*items], places

    def run(self, arrays: _Arrays, numbers: Sequence[Any]) -> _Arrays:
        """Return the copy."""
        items = self._items.copy()
        for place, values in zip(self._places, arrays[1:]):  # noqa: B905  they are as many
            items[place] = values
        return (np.array(arrays[0][tuple(items)], order="C"),)


@final
class _Writing:
    """The program that copies an array and writes elements of the copy.

    items   the key, with None in place of arrays
    places  where arrays are among the items, each with its position among the operands
    source  the position of the array among the operands
    value   that of the written array; None if it is a number
    """

    __slots__ = ("_items", "_places", "_source", "_value")

    def __init__(
        self,
        items: Sequence[Any],
        places: Sequence[tuple[int, int]],
        source: int,
        value: int | None,
    ) -> None:
        self._items, self._places = [*items], places
        self._source, self._value = source, value

    def run(self, arrays: _Arrays, numbers: Sequence[Any]) -> _Arrays:
        """Return the array with the elements replaced."""
        values = arrays[self._source].copy()
        items = self._items
        if self._places:
            items = items.copy()
            for place, operand in self._places:
                items[place] = arrays[operand]
        values[tuple(items)] = numbers[0] if self._value is None else arrays[self._value]
        return (values,)


@final
class _WindowWriting:
    """The program that copies an array and writes a window of the copy.

    source  the position of the array among the operands
    value   that of the written array; None if it is the first number, before those of the window
    """

    __slots__ = ("_source", "_value", "_window")

    def __init__(self, window: Window, source: int, value: int | None) -> None:
        self._window, self._source, self._value = window, source, value

    def run(self, arrays: _Arrays, numbers: Sequence[Any]) -> _Arrays:
        """Return the array with the window replaced."""
        values = arrays[self._source].copy()
        if self._value is None:
            values[self._window.key_of(numbers[1:])] = numbers[0]
        else:
            values[self._window.key_of(numbers)] = arrays[self._value]
        return (values,)
