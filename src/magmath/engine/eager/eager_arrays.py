"""Eager arrays: a small array is computed when its expression is built, in this process.

For a few kilobytes, an evaluation costs more than the arithmetic: the expression is examined, a
program or kernels are looked up, memory is allocated on the workers. So an operation on small
arrays whose values this process stores is one call of its kernel, as in NumPy. The result is stored
here too, and is sent to the workers when a program reads it (`RemoteArray.number`). Its provenance
is recorded, so gradients pass through it as through any evaluated array.

An operation stays pending if it is traced, reads a variable, or draws random numbers (which
`minimize` draws anew in each step), and if an operand is pending, large or stored elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, final

import numpy as np

from magmath.core.bounded_memo import store_bounded
from magmath.core.call_effects import CALL_EFFECTS
from magmath.core.dtypes import DTYPES, DType, bfloat16
from magmath.core.type_aliases import Number
from magmath.engine.remote_array import RemoteArray
from magmath.engine.traces import tracing
from magmath.graph import (
    Graph,
    Node,
    Provenance,
    Recipe,
    RecordedOperand,
    Shape,
    set_value,
    weak_operand,
)
from magmath.graph.operation import NO_ATTRIBUTES, Line, Operation
from magmath.graph.provenance.recipe import NumberStep, RecipeEntry, RecipeStep
from magmath.graph.provenance.recorded_operands import operand_of_array
from magmath.graph.signature import Signature
from magmath.layout import Layout
from magmath.ops.creation import FULL, IOTA
from magmath.ops.elementwise import ARGUMENT, STOP_GRADIENT
from magmath.ops.gradient_results import GRADIENT
from magmath.ops.leaves import CONSTANT, INPUT, SCALAR, input_leaf
from magmath.ops.manipulation import PERMUTE
from magmath.ops.redistribute import REDISTRIBUTE
from magmath.passes.expand import expand
from magmath.passes.simplify import merge_equal
from magmath.runtime.failures import add_user_line

if TYPE_CHECKING:
    from magmath.executor.eager import EagerKernels
    from magmath.executor.eager_program import EagerProgram
    from magmath.runtime.pool import Pool

MAX_DEPTH = 64
"""Depth of an expression, of a function that is composed of several operations, up to which it is
computed when it is built."""
MAX_DEPTH_NEEDED = 200
"""The same for an expression whose value is needed."""
MAX_STEPS = 200
"""Operations of a compiled function up to which they are computed one after the other."""
MAX_READ = 1 << 20
"""Bytes of the largest operand: a sum or a product may read more than it writes."""
_MAX_LAYOUTS = 4096
_MAX_CALLS = 8192
_NUMBER, _CONSTANT = -1, -2  # in a pattern: a number of the user's code, and of a function's own
_CREATIONS = frozenset({FULL, IOTA})
"""Operations on numbers alone."""
_DTYPES = {np.dtype(name): dtype for name, dtype in DTYPES.items() if dtype is not bfloat16}
_new_leaf: Callable[..., Node] = Node
_NEVER: Mapping[Any, Recipe] = MappingProxyType({})
"""The recipes of a signature whose nodes are not computed eagerly."""


@final
class _Attempt:
    """The computation of a node.

    is_needed     its value is needed now
    is_assigned   it is assigned, so that operands without other references are parts of it
    made          the leaves of pending operands
    reads_stored  it reads a stored array
    """

    __slots__ = ("is_assigned", "is_needed", "made", "reads_stored")

    def __init__(self, *, is_needed: bool = False, is_assigned: bool = False) -> None:
        self.is_needed, self.is_assigned = is_needed, is_assigned
        self.made: dict[Node, Node] = {}
        self.reads_stored = False


_Position = int | tuple[int, Signature | None]
"""The position of a leaf; of a transposed one in addition the signature of the transposition."""
_Read = tuple[list["np.ndarray[Any, Any]"], list[Node], list[Number], list[_Position], list[Node]]
"""The operands of a node: their values, the different leaves and the numbers among them, for each
operand the position of its leaf, `_NUMBER` or `_CONSTANT`, and the transposes. No class, since each
operation makes one."""


@final
class EagerArrays:
    """The computation of results of at most `max_eager_bytes` for one pool, in this process.

    `whole` returns the layout of replicated arrays.
    """

    def __init__(self, pool: Pool, whole: Callable[..., Layout]) -> None:
        self.pool = pool
        self._whole = whole
        self.max_eager_bytes = 0
        self._result_layouts: dict[Shape, Layout] = {}
        self._copy_layouts: dict[Shape, Layout] = {}
        self.calls: dict[Hashable, Any] = {}
        """By the forms of calls, the call that repeats them; None for calls that are not repeated,
        and what `arrays/protocols/dispatch_cache.py` and `arrays/indexing/stored_parts.py` note of
        others."""

    @cached_property
    def _kernels(self) -> EagerKernels:
        from magmath.executor.eager import EagerKernels  # loads the kernels: on first use

        return EagerKernels()

    @cached_property
    def _number(self) -> Callable[[Node], np.ndarray[Any, Any] | None]:
        from magmath.executor.eager import number_array

        return number_array

    def note_call(self, form: Hashable, call: object) -> None:
        """Store what is known of calls of a form."""
        store_bounded(self.calls, form, call, _MAX_CALLS)

    def program(
        self, graph: Graph, arrays: Sequence[Node], numbers: Sequence[Node]
    ) -> EagerProgram | None:
        """Return the program of a graph of small arrays, for values of these leaves; None if it
        needs the workers."""
        from magmath.executor.eager_program import EagerProgram

        graph = merge_equal(expand(graph, self._kernels.has_function))
        given = {*arrays, *numbers}
        made = [x for x in graph.nodes if x not in given]
        if any(graph.targets) or len(made) > MAX_STEPS or not all(map(self._is_step, made)):
            return None
        if not all(x.dtype is not bfloat16 for x in given):
            return None
        return EagerProgram(self._kernels, graph.nodes, arrays, numbers, graph.outputs)

    def _is_step(self, node: Node) -> bool:
        """Return True for a number, and for an operation with a small result."""
        if node.operation is SCALAR or node.operation is CONSTANT:
            return node.value is not None or node.operation is CONSTANT
        return node.nbytes <= self.max_eager_bytes and _is_eager(node)

    def copied_leaf(self, values: np.ndarray[Any, Any]) -> Node | None:
        """Return an input leaf with a copy of a small NumPy array; None if the workers store it, or
        its type needs a conversion."""
        shape, dtype = values.shape, _DTYPES.get(values.dtype)
        if dtype is None or values.nbytes > self.max_eager_bytes or self.pool.closed:
            return None
        layout = self._copy_layouts.get(shape)
        if layout is None:
            layout = store_bounded(self._copy_layouts, shape, self._whole(shape), _MAX_LAYOUTS)
        data = RemoteArray(self.pool, None, shape, dtype, layout, None, values.copy(order="C"))
        return input_leaf(shape, dtype, layout, data)

    def leaf_of(self, node: Node) -> Node | None:
        """Return an input leaf with the value of a new node, or None if it stays pending."""
        signature = node.signature
        if (
            signature is None
            or signature.nbytes > self.max_eager_bytes
            or signature.recipes is _NEVER
        ):
            return None
        if node.reads_version or node.depth > MAX_DEPTH or tracing.current() is not None:
            return None
        operation = node.operation
        if self.pool.closed or operation in _CREATIONS:
            return None
        if signature.recipes is not None and not operation.is_random:
            read = self._read(node.inputs)
            if read is not None:
                _, leaves, _, _, _ = read
                if leaves:
                    try:
                        return self._result(node, read)
                    except Exception as error:
                        add_user_line(error)
                        raise
        if _is_of_numbers(node):  # it belongs to no pool until its value is needed
            return None
        return self._attempted(node, _Attempt())

    def value_leaf(self, node: Node) -> Node | None:
        """Return an input leaf with the value of a pending node that is needed now, or None if a
        program computes it.

        Numbers alone, random numbers and pending arrays are no reasons to wait any more.
        """
        if node.reads_version or node.depth > MAX_DEPTH_NEEDED or self.pool.closed:
            return None
        return self._attempted(node, _Attempt(is_needed=True))

    def assigned_value(self, node: Node, layout: Layout) -> RemoteArray | None:
        """Return the value of a pending node that is assigned to a variable of this layout, or None
        if a program computes it: if an operand or the node itself is a pending array of user code.

        The node may read values of variables. Its leaf would not record that, so no node gets it.
        """
        array = None if node.user_array is None else node.user_array()
        if array is not None or node.depth > MAX_DEPTH or self.pool.closed:
            return None
        try:
            leaf = self._computed(node, _Attempt(is_assigned=True))
        except Exception:  # the usual way raises the error
            return None
        data: RemoteArray | None = None if leaf is None else leaf.value
        return data if data is not None and data.layout == layout else None

    def _attempted(self, node: Node, attempt: _Attempt) -> Node | None:
        try:
            leaf = self._computed(node, attempt)
        except Exception as error:
            if not (attempt.reads_stored or attempt.is_needed):
                return None
            add_user_line(error)
            raise
        # Expressions of numbers alone belong to no pool, so they stay pending until their values
        # are needed, and outlive the pool.
        if leaf is None or not (attempt.reads_stored or attempt.is_needed):
            return None
        for operand, known in attempt.made.items():
            set_value(operand, known)
        return leaf

    def _computed(self, node: Node, attempt: _Attempt) -> Node | None:
        signature = node.signature
        if signature is None or signature.nbytes > self.max_eager_bytes:
            return None
        recipes = signature.recipes
        if recipes is None:
            recipes = signature.recipes = {} if _is_eager(node) else _NEVER
        if recipes is _NEVER or (node.operation.is_random and not attempt.is_needed):
            return None
        read = self._read(node.inputs, attempt)
        return None if read is None else self._result(node, read, attempt)

    def _result(self, node: Node, read: _Read, attempt: _Attempt | None = None) -> Node | None:
        """Return an input leaf with the value of a node, given its operands; None if an operation
        of which it is composed stays pending."""
        operands, _, _, _, _ = read
        operation, signature = node.operation, node.signature
        assert signature is not None
        if operation is GRADIENT:
            values = operands[0].copy()
        elif operation.lower_to is None or self._kernels.has_function(node):
            values = self._kernels.value_of(node, operands)
        else:
            lowered = self._known(expand(Graph((node,))).outputs[0], attempt or _Attempt())
            if lowered is None:
                return None
            values = lowered.value.elements
        return self._leaf(values, operation, signature, node.inputs, read, node.line)

    def _leaf(
        self,
        values: np.ndarray[Any, Any],
        operation: Operation,
        signature: Signature,
        inputs: Sequence[Node],
        read: _Read,
        line: Line,
    ) -> Node:
        """Return an input leaf with the value of an operation, and record its operands."""
        _, leaves, numbers, pattern, views = read
        if operation is STOP_GRADIENT:
            CALL_EFFECTS.count += 1  # its result looks like a constant
        if not leaves or operation is STOP_GRADIENT:
            return self.stored_leaf(signature.shape, signature.dtype, values, None)
        key = tuple(pattern)
        recipe: Recipe | None = signature.recipes.get(key)
        if recipe is None:
            recipe = signature.recipes[key] = _recipe(
                operation, signature, inputs, pattern, len(leaves)
            )
        operands: list[RecordedOperand] = [operand_of_array(x) for x in leaves]
        if views:
            operands += map(weak_operand, views)
        made = Provenance.of(recipe, recipe.last, tuple(operands), line, tuple(numbers))
        return self.stored_leaf(signature.shape, signature.dtype, values, made)

    def stored_leaf(
        self,
        shape: Shape,
        dtype: DType,
        values: np.ndarray[Any, Any],
        provenance: Provenance | None,
    ) -> Node:
        """Return an input leaf with a value that this process stores."""
        layout = self._result_layouts.get(shape)
        if layout is None:
            layout = self._whole(shape, shared=True)  # that of a program's result
            store_bounded(self._result_layouts, shape, layout, _MAX_LAYOUTS)
        data = RemoteArray(self.pool, None, shape, dtype, layout, None, values)
        return _new_leaf(
            INPUT, (), NO_ATTRIBUTES, shape, dtype, layout, None, data, None, 0, False, provenance
        )

    def _read(self, inputs: Sequence[Node], attempt: _Attempt | None = None) -> _Read | None:
        """Return the operands of a node; None if one is pending, large or stored elsewhere, or,
        without an attempt, is neither a stored array nor a number.

        The transpose of a stored array is read without a copy, so `x.T @ y` needs none of x.
        """
        values: list[np.ndarray[Any, Any]] = []
        leaves: list[Node] = []
        numbers: list[Number] = []
        pattern: list[_Position] = []
        views: list[Node] = []
        for source in inputs:
            operation = source.operation
            if operation is SCALAR or operation is CONSTANT:
                number = source.value if operation is SCALAR else source.attributes["value"]
                if number is None or source.provenance is not None:  # the value of an expression
                    return None
                value = self._number(source)
                numbers.append(number)
                pattern.append(_NUMBER if operation is SCALAR else _CONSTANT)
            else:
                leaf, view = source, None
                transposes = operation is PERMUTE and source.value is None
                if transposes and source.inputs[0].operation is INPUT:
                    leaf, view = source.inputs[0], source
                if leaf.operation is not INPUT:
                    known = None if attempt is None else self._known(source, attempt)
                    if known is None:
                        return None
                    leaf, view = known, None
                elif attempt is not None:
                    attempt.reads_stored = True
                data = leaf.value
                if type(data) is not RemoteArray or data.pool is not self.pool:
                    return None
                value = data.elements
                if value is None:
                    value = data.local_elements()
                position = len(leaves)
                if leaf in leaves:
                    position = leaves.index(leaf)
                else:
                    leaves.append(leaf)
                if view is None or value is None:
                    pattern.append(position)
                else:
                    value = PERMUTE.reference(value, **view.attributes)
                    pattern.append((position, view.signature))
                    views.append(view)
            if value is None or value.nbytes > MAX_READ:
                return None
            values.append(value)
        return values, leaves, numbers, pattern, views

    def _known(self, node: Node, attempt: _Attempt) -> Node | None:
        """Return the leaf with the value of an operand, which is computed now if it is made of
        numbers or a part of the same function; None if it stays pending."""
        if node.value is not None:
            attempt.reads_stored = True
            return node.value if isinstance(node.value, Node) else None
        user_array = node.user_array
        pending = user_array is not None and not _is_of_numbers(node)
        if pending and attempt.is_assigned:
            assert user_array is not None
            pending = user_array() is not None  # without an array it is a part of the expression
        if node.is_leaf or (pending and not attempt.is_needed):
            return None
        leaf = attempt.made.get(node) or self._computed(node, attempt)
        if leaf is not None:
            attempt.made[node] = leaf
        return leaf


def _is_of_numbers(node: Node) -> bool:
    """Return True for a small expression of numbers alone, such as `mm.eye(3)`: it waits for a
    pool, not for its reader."""
    stack, seen = [node], {node}
    while stack:
        x = stack.pop()
        if x.operation.is_random or (x.operation.is_leaf and x.operation is not SCALAR):
            return False
        for source in x.inputs:
            if source not in seen:
                seen.add(source)
                stack.append(source)
        if len(seen) > MAX_DEPTH:
            return False
    return True


def _is_eager(node: Node) -> bool:
    """Return True if nodes of this signature may be computed when they are built."""
    operation = node.operation
    if operation is ARGUMENT or operation is REDISTRIBUTE or node.dtype is bfloat16:
        return False
    is_mark = operation.is_mark and operation is not GRADIENT
    return not (is_mark or operation.is_version or operation.is_leaf)


def _recipe(
    operation: Operation,
    signature: Signature,
    inputs: Sequence[Node],
    pattern: Sequence[_Position],
    operands: int,
) -> Recipe:
    """Return the recipe of nodes of one signature: the operands, the numbers, the transposes of
    operands, the operation.

    `pattern` has the position of each input among the operands. The transposes are operands too,
    which gradients find while they exist, and are built again otherwise.
    """
    given = [x for x in inputs if x.operation is SCALAR or x.operation is CONSTANT]
    numbers = range(operands, operands + len(given))
    steps: list[RecipeEntry] = [None] * operands
    steps += [NumberStep(x.operation, x.dtype, 0) for x in given]
    next_number = iter(numbers)
    sources: list[int] = []
    positions = [*range(operands)]
    for position in pattern:
        if isinstance(position, int):
            sources.append(next(next_number) if position < 0 else position)
            continue
        source, view = position
        assert view is not None
        positions.append(len(steps))
        sources.append(len(steps))
        steps.append(_step(PERMUTE, view, (source,)))
    steps.append(_step(operation, signature, tuple(sources)))
    return Recipe(steps, positions, numbers)


def _step(operation: Operation, signature: Signature, sources: tuple[int, ...]) -> RecipeStep:
    return RecipeStep(
        operation,
        signature.attributes,
        signature.shape,
        signature.dtype,
        None,
        None,
        signature,
        sources,
    )
