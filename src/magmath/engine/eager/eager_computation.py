"""Eager arrays: a small array is computed when its expression is built, in this process.

For a few kilobytes, an evaluation costs more than the arithmetic: the expression is examined, a
program or kernels are looked up, memory is allocated on the workers. So an operation on small
arrays whose values this process stores is one call of its kernel, as in NumPy. The result is stored
here too, and is sent to the workers when a program reads it (`RemoteArray.array_id`). Its
provenance is recorded, so gradients pass through it as through any evaluated array.

An operation stays pending if it is traced, reads a variable, or draws random numbers (which
`minimize` draws again in each step), and if an operand is pending, large or stored elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from enum import Enum
from functools import cached_property
from math import prod
from sys import maxsize
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, final

import numpy as np

from magmath.core.bounded_memo import store_bounded
from magmath.core.call_effects import CALL_EFFECTS
from magmath.core.dtypes import DTYPES, DType, bfloat16
from magmath.engine.eager.dispatch_cache import DispatchCache
from magmath.engine.eager.eager_operands import EagerOperands, recipe_of_operation
from magmath.engine.remote_array import RemoteArray
from magmath.engine.traces import tracing
from magmath.graph import (
    Graph,
    Node,
    Provenance,
    Recipe,
    Shape,
    set_value,
)
from magmath.graph.operation import NO_ATTRIBUTES, Operation
from magmath.graph.provenance.operand_references import reference_to_value
from magmath.graph.signature import Signature
from magmath.layout import Layout
from magmath.ops.creation import FULL, IOTA
from magmath.ops.elementwise import ARGUMENT, STOP_GRADIENT
from magmath.ops.gradient_results import GRADIENT
from magmath.ops.leaves import CONSTANT, INPUT, SCALAR, input_leaf
from magmath.ops.manipulation import PERMUTE
from magmath.ops.product.contraction import CONTRACT
from magmath.ops.redistribute import REDISTRIBUTE
from magmath.passes.expand import expand
from magmath.passes.simplify import merge_equal
from magmath.runtime.failures import add_user_line

if TYPE_CHECKING:
    from magmath.executor.eager_kernels import EagerKernels
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
"""Bytes of the largest operand: a sum or a product may read more than it writes. Also those of the
largest intermediate value of a function that is composed of several operations, such as `std`."""
MAX_READ_BY_VECTOR = 64 << 20
"""The same for a product with a vector, which takes as long as to read the matrix, if its result
has at most `MAX_PRODUCT` bytes."""
MAX_PRODUCT = 64 << 10
"""A longer product of a large matrix and a vector, such as the predictions for all rows of a data
set, is usually the operand of element-wise operations, which a program fuses with each other. An
iterative method has a square matrix and short vectors, of which it reads a norm in each step."""
_MAX_LAYOUTS = 4096
_MAX_CREATED = 1024
_CREATIONS = frozenset({FULL, IOTA})
"""Operations on numbers alone."""
_DTYPES = {np.dtype(name): dtype for name, dtype in DTYPES.items() if dtype is not bfloat16}
_LONG_LONGS = "qQ"
"""Codes of C's long long: for NumPy they are equal to the types of 64 bits, for torch not."""
_new_node: Callable[..., Node] = Node
_NEVER: Mapping[Any, Recipe] = MappingProxyType({})
"""The recipes of a signature whose nodes are not computed eagerly."""


@final
class _Reason(Enum):
    """Why a node is computed, which decides what happens to its pending operands.

    is_needed               all pending operands are computed with it, random numbers too
    computes_unreferenced   operands to whose arrays user code has no references any more are parts
                            of the expression, and are computed as well
    max_intermediate_bytes  the bytes of the largest such operand: an intermediate value of a
                            function may be larger than a result; 0: `max_eager_bytes`
    """

    NEW_NODE = False, False, 0
    VALUE_NEEDED = True, False, 0
    FUNCTION_RESULT = True, False, MAX_READ
    ASSIGNED = False, True, 0

    def __init__(
        self, is_needed: bool, computes_unreferenced: bool, max_intermediate_bytes: int
    ) -> None:
        self.is_needed = is_needed
        self.computes_unreferenced = computes_unreferenced
        self.max_intermediate_bytes = max_intermediate_bytes


@final
class _Attempt:
    """The attempt to compute a node with its pending operands.

    leaves        the leaves of the pending operands that were computed
    reads_stored  it reads a stored array
    """

    __slots__ = ("leaves", "reads_stored", "reason")

    def __init__(self, reason: _Reason = _Reason.NEW_NODE) -> None:
        self.reason = reason
        self.leaves: dict[Node, Node] = {}
        self.reads_stored = False


@final
class EagerComputation:
    """The computation of results of at most `max_eager_bytes` for one pool, in this process.

    `replicated` returns the layout of replicated arrays.
    """

    def __init__(self, pool: Pool, replicated: Callable[..., Layout]) -> None:
        self.pool = pool
        self._replicated = replicated
        self.max_eager_bytes = 0  # `Engine.small_sizes`
        self._result_layouts: dict[Shape, Layout] = {}
        self._copy_layouts: dict[Shape, Layout] = {}
        self._argument_recipes: dict[Signature, Recipe] = {}
        self._created: dict[Hashable, np.ndarray[Any, Any]] = {}
        """The values of nodes of numbers alone, by their signatures and inputs."""
        self.dispatch_cache: DispatchCache[EagerComputation] = DispatchCache()

    @cached_property
    def _kernels(self) -> EagerKernels:
        from magmath.executor.eager_kernels import EagerKernels  # loads the kernels: on first use

        options = self.pool.worker_options
        return EagerKernels(options.winograd, options.workspace_limit)

    @cached_property
    def _number(self) -> Callable[[Node], np.ndarray[Any, Any] | None]:
        from magmath.executor.prepared_kernels import number_array

        return number_array

    def store_numbers(self, node: Node, value: np.ndarray[Any, Any]) -> None:
        """Store the value of nodes of numbers alone, with the signature and the inputs of this
        one."""
        key = node.signature, node.inputs
        if key not in self._created:
            store_bounded(self._created, key, value, _MAX_CREATED)

    def program(
        self, graph: Graph, arrays: Sequence[Node], numbers: Sequence[Node]
    ) -> EagerProgram | None:
        """Return the program of a graph of small arrays, for values of these leaves; None if it
        needs the workers."""
        from magmath.executor.eager_program import EagerProgram

        graph = merge_equal(expand(graph, self._kernels.has_function))
        leaves = {*arrays, *numbers}
        steps = [x for x in graph.nodes if x not in leaves]
        if any(graph.targets) or len(steps) > MAX_STEPS or not all(map(_is_computable_here, steps)):
            return None
        if any(x.nbytes > self.max_eager_bytes for x in graph.outputs):
            return None
        if any(x.dtype is bfloat16 for x in leaves):
            return None
        return EagerProgram(self._kernels, graph.nodes, arrays, numbers, graph.outputs)

    def copied_leaf(self, values: np.ndarray[Any, Any]) -> Node | None:
        """Return an input leaf with a copy of a small NumPy array; None if the workers store it, or
        its type needs a conversion."""
        shape, dtype = values.shape, _DTYPES.get(values.dtype)
        if dtype is None or values.nbytes > self.max_eager_bytes or self.pool.closed:
            return None
        if values.dtype.char in _LONG_LONGS:
            return None
        layout = self._copy_layouts.get(shape)
        if layout is None:
            layout = store_bounded(self._copy_layouts, shape, self._replicated(shape), _MAX_LAYOUTS)
        data = RemoteArray(self.pool, None, shape, dtype, layout, None, values.copy(order="C"))
        return input_leaf(shape, dtype, layout, data)

    def leaf_of_new_node(self, node: Node) -> Node | None:
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
            operands = self._operands_of(node)
            if operands is not None and operands.leaves:
                try:
                    return self._result(node, operands)
                except Exception as error:
                    add_user_line(error)
                    raise
        if node.is_of_numbers:  # it belongs to no pool until its value is needed
            return None
        return self._attempt(node, _Attempt())

    def leaf_of_needed_node(self, node: Node) -> Node | None:
        """Return an input leaf with the value of a pending node that is needed now, or None if a
        program computes it.

        Numbers alone, random numbers and pending arrays are no reasons to wait any more.
        """
        if node.reads_version or node.depth > MAX_DEPTH_NEEDED or self.pool.closed:
            return None
        return self._attempt(node, _Attempt(_Reason.VALUE_NEEDED))

    def leaf_of_result(self, node: Node) -> Node | None:
        """Return an input leaf with the value of the pending result of a function that has read
        stored arrays, or None if it stays pending. Intermediate values may have `MAX_READ` bytes.
        """
        if node.reads_version or node.depth > MAX_DEPTH or self.pool.closed:
            return None
        return self._attempt(node, _Attempt(_Reason.FUNCTION_RESULT))

    def assigned_value(self, node: Node, layout: Layout) -> RemoteArray | None:
        """Return the value of a pending node that is assigned to a variable of this layout, or None
        if a program computes it: if an operand or the node itself is a pending array of user code.

        The node may read values of variables. Its leaf would not record that, so no node gets it.
        """
        array = None if node.user_array is None else node.user_array()
        if array is not None or node.depth > MAX_DEPTH or self.pool.closed:
            return None
        try:
            leaf = self._compute(node, _Attempt(_Reason.ASSIGNED))
        except Exception:  # the usual way raises the error
            return None
        data: RemoteArray | None = None if leaf is None else leaf.value
        return data if data is not None and data.layout == layout else None

    def _attempt(self, node: Node, attempt: _Attempt) -> Node | None:
        """Return an input leaf with the value of a node, and set the values of the operands that
        were computed with it; None if it stays pending.

        Expressions of numbers alone belong to no pool, so they stay pending until their values are
        needed, and outlive the pool.
        """
        try:
            leaf = self._compute(node, attempt)
        except Exception as error:
            if not (attempt.reads_stored or attempt.reason.is_needed):
                return None
            add_user_line(error)
            raise
        if leaf is None or not (attempt.reads_stored or attempt.reason.is_needed):
            return None
        for operand, value_leaf in attempt.leaves.items():
            set_value(operand, value_leaf)
        return leaf

    def _compute(self, node: Node, attempt: _Attempt, max_bytes: int = 0) -> Node | None:
        """Return an input leaf with the value of a node; None if it stays pending, as a value of
        more than `max_bytes` does (0: `max_eager_bytes`)."""
        signature = node.signature
        if signature is None or signature.nbytes > (max_bytes or self.max_eager_bytes):
            return None
        recipes = signature.recipes
        if recipes is None:
            recipes = signature.recipes = {} if _is_eager(node) else _NEVER
        if recipes is _NEVER or (node.operation.is_random and not attempt.reason.is_needed):
            return None
        if node.is_of_numbers and self._created:
            value = self._created.get((signature, node.inputs))
            if value is not None:
                return self.new_leaf(signature.shape, signature.dtype, value.copy(), None)
        operands = self._operands_of(node, attempt)
        return None if operands is None else self._result(node, operands, attempt)

    def _result(
        self, node: Node, operands: EagerOperands, attempt: _Attempt | None = None
    ) -> Node | None:
        """Return an input leaf with the value of a node and the record of its operands; None if an
        operation of which it is composed stays pending."""
        operation, signature = node.operation, node.signature
        assert signature is not None
        if operation is GRADIENT:
            value = operands.values[0].copy()
        elif operation.expansion is None or self._kernels.has_function(node):
            value = self._kernels.value_of(node, operands.values)
        else:
            expanded = expand(Graph((node,))).outputs[0]
            leaf = self._leaf_of_operand(expanded, attempt or _Attempt())
            if leaf is None:
                return None
            value = leaf.value.host_array
        if operation is STOP_GRADIENT:
            CALL_EFFECTS.count += 1  # its result looks like a constant
        provenance = None
        if operands.leaves and operation is not STOP_GRADIENT:
            provenance = operands.provenance(node)
        return self.new_leaf(signature.shape, signature.dtype, value, provenance)

    def stored_value(self, leaf: Node, max_bytes: int = MAX_READ) -> np.ndarray[Any, Any] | None:
        """Return the value of a leaf if it is small and this process stores it, otherwise None."""
        data = leaf.value
        if type(data) is not RemoteArray or data.pool is not self.pool:
            return None
        value = data.host_array
        if value is None:
            value = data.local_array()
        return None if value is None or value.nbytes > max_bytes else value

    def new_leaf(
        self,
        shape: Shape,
        dtype: DType,
        values: np.ndarray[Any, Any],
        provenance: Provenance | None,
    ) -> Node:
        """Return an input leaf with a value that this process stores."""
        layout = self._result_layouts.get(shape) or self.result_layout(shape)
        data = RemoteArray(self.pool, None, shape, dtype, layout, None, values)
        return _new_node(
            INPUT, (), NO_ATTRIBUTES, shape, dtype, layout, None, data, None, 0, False, False,
            provenance,
        )  # fmt: skip

    def result_layout(self, shape: Shape) -> Layout:
        """Return the layout of a small result: that of a program's result."""
        layout = self._replicated(shape, shared=True)
        return store_bounded(self._result_layouts, shape, layout, _MAX_LAYOUTS)

    def argument_leaf(self, node: Node) -> Node | None:
        """Return an input leaf with the value of a new argument of a differentiated function; None
        if it is pending, large or stored elsewhere."""
        (source,), signature = node.inputs, node.signature
        if self.pool.closed or signature is None or signature.nbytes > self.max_eager_bytes:
            return None
        leaf: Node | None = source.leaf_or_self
        if source.leaf_or_self.operation is not INPUT:
            leaf = self._leaf_of_operand(source, _Attempt())
        value = None if leaf is None else self.stored_value(leaf)
        if leaf is None or value is None:
            return None
        recipe = self._argument_recipes.get(signature)
        if recipe is None:
            recipe = recipe_of_operation(node.operation, signature)
            store_bounded(self._argument_recipes, signature, recipe, _MAX_LAYOUTS)
        operands = (reference_to_value(source, leaf),)
        record = Provenance.of(recipe, recipe.last, operands, node.line)
        return self.new_leaf(signature.shape, signature.dtype, value.copy(), record)

    def _operands_of(self, node: Node, attempt: _Attempt | None = None) -> EagerOperands | None:
        """Return the operands of a node; None if one is pending, large or stored elsewhere, or,
        without an attempt, is neither a stored array nor a number.

        The transpose of a stored array is read without a copy, so `x.T @ y` needs none of x.
        """
        operands = EagerOperands()
        max_bytes = max_read(node.operation, node.shape, node.dtype)
        for source in node.inputs:
            operation = source.operation
            if operation is SCALAR or operation is CONSTANT:
                number = source.value if operation is SCALAR else source.attributes["value"]
                if number is None or source.provenance is not None:  # the value of an expression
                    return None
                value = self._number(source)
                if value is None:
                    return None
                operands.add_number(source, number, value)
                continue
            leaf, transpose = source, None
            is_transpose = operation is PERMUTE and source.value is None
            if is_transpose and source.inputs[0].operation is INPUT:
                leaf, transpose = source.inputs[0], source
            if leaf.operation is not INPUT:
                computed = None if attempt is None else self._leaf_of_operand(source, attempt)
                if computed is None:
                    return None
                leaf, transpose = computed, None
            elif attempt is not None:
                attempt.reads_stored = True
            value = self.stored_value(leaf, max_bytes)
            if value is None:
                return None
            operands.add_array(leaf, value, transpose)
        return operands

    def _leaf_of_operand(self, node: Node, attempt: _Attempt) -> Node | None:
        """Return the leaf with the value of an operand, which is computed now if it is made of
        numbers or a part of the same function; None if it stays pending."""
        if node.value is not None:
            attempt.reads_stored = True
            return node.value if isinstance(node.value, Node) else None
        reason, user_array = attempt.reason, node.user_array
        is_of_numbers = node.is_of_numbers and node.depth <= MAX_DEPTH
        pending = user_array is not None and not is_of_numbers
        if pending and reason.computes_unreferenced:
            assert user_array is not None
            pending = user_array() is not None
        if node.is_leaf or (pending and not reason.is_needed):
            return None
        max_bytes = reason.max_intermediate_bytes
        if max_bytes and user_array is not None and user_array() is not None:
            max_bytes = 0
        leaf = attempt.leaves.get(node) or self._compute(node, attempt, max_bytes)
        if leaf is not None:
            attempt.leaves[node] = leaf
        return leaf


def max_read(operation: Operation, shape: Shape, dtype: DType) -> int:
    """Return the bytes of the largest operand that an operation in this process may have, by its
    result: any, if it reads only a part, such as the rows of a batch."""
    if operation.reads_subset:
        return maxsize
    is_by_vector = operation is CONTRACT and len(shape) <= 1
    is_short = is_by_vector and prod(shape) * dtype.itemsize <= MAX_PRODUCT
    return MAX_READ_BY_VECTOR if is_short else MAX_READ


def _is_computable_here(node: Node) -> bool:
    """Return True for a number, and for an operation with a result that is not large."""
    if node.operation is SCALAR or node.operation is CONSTANT:
        return node.value is not None or node.operation is CONSTANT
    return node.nbytes <= MAX_READ and _is_eager(node)


def _is_eager(node: Node) -> bool:
    """Return True if nodes of this signature may be computed when they are built."""
    operation = node.operation
    if operation is ARGUMENT or operation is REDISTRIBUTE or node.dtype is bfloat16:
        return False
    is_mark = operation.is_mark and operation is not GRADIENT
    return not (is_mark or operation.is_version or operation.is_leaf)
