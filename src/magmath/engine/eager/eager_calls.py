"""Eager calls: the operations of a function on small arrays, which later calls repeat at once.

A function of the namespace checks its arguments, promotes types and builds nodes, which takes
longer than to compute a few kilobytes. What it did is one recipe (`call_recipes`), of which this
module makes one list of calls of kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast, final

import numpy as np

from magmath.core.call_effects import NUMBERS_READ
from magmath.core.type_aliases import Number
from magmath.engine.eager.call_recipes import CallOperations, nodes_of, operations_between
from magmath.engine.lifetimes.kept_expressions import KEPT
from magmath.engine.remote_array import OVERWRITTEN, RemoteArray
from magmath.graph import Graph, Node, Provenance
from magmath.graph.operation import Line
from magmath.graph.provenance.operand_references import (
    OperandReference,
    StrongLeafReference,
    reference_to_array,
    set_provenance,
)
from magmath.graph.provenance.recipe import NumberStep, Recipe, RecipeStep
from magmath.ops.leaves import input_leaf

if TYPE_CHECKING:
    from magmath.engine.eager.eager_computation import EagerComputation
    from magmath.executor.eager_program import EagerProgram

MAX_MISSES = 4
"""Calls that have read other numbers, more than the others, until calls of a key are no longer
repeated."""


class CallProgram(Protocol):
    """A program that computes the result of a call from its operands."""

    def run(
        self, arrays: Sequence[np.ndarray[Any, Any]], numbers: Sequence[Any], /
    ) -> Sequence[np.ndarray[Any, Any]]:
        """Return the result, in new memory."""


class UpdateProgram(CallProgram, Protocol):
    """A program that computes an array with some elements replaced."""

    def write(
        self,
        target: np.ndarray[Any, Any],
        arrays: Sequence[np.ndarray[Any, Any]],
        numbers: Sequence[Any],
        /,
    ) -> None:
        """Replace the elements in the memory of the array, as `run` does in a copy."""


@final
class EagerCall:
    """The operations of a call, from its arguments to its result.

    program    computes the result from the operands
    recipe     how gradients build the result again, on the same operands
    used       the positions of the operands among the arguments, followed by the own arrays
    own        arrays that the function itself has made
    """

    __slots__ = ("_dtype", "_own", "_program", "_recipe", "_shape", "_used")
    has_frequent_misses = False

    def __init__(
        self,
        program: CallProgram,
        recipe: Recipe,
        result: Node | RecipeStep,
        used: Sequence[int],
        own_arrays: tuple[Node, ...] = (),
    ) -> None:
        self._program = program
        self._recipe = recipe
        self._shape, self._dtype = result.shape, result.dtype
        self._used = used
        self._own = own_arrays

    def run(
        self,
        eager: EagerComputation,
        arguments: Sequence[Node],
        line: Line,
        numbers: Sequence[Number] = (),
    ) -> Node | None:
        """Return a leaf with the result for these leaves, and the numbers whose positions the
        recipe has; None if the values of the leaves are not stored here.

        Raises what a kernel raises.
        """
        read = _read(eager, arguments, self._own, self._used)
        if read is None:
            return None
        values, operands = read
        (result,) = self._program.run(values, numbers)
        recipe = self._recipe
        provenance = Provenance.of(recipe, recipe.last, operands, line, numbers)
        return eager.new_leaf(self._shape, self._dtype, result, provenance)

    def write(
        self,
        eager: EagerComputation,
        arguments: Sequence[Node],
        line: Line,
        numbers: Sequence[Number] = (),
    ) -> Node | None:
        """Return a leaf with the result of an `UpdateProgram`, as `run`, in the memory of the first
        argument, which the caller drops."""
        former = arguments[0]
        if former.value.copies:  # in other layouts
            return None
        read = _read(eager, arguments, self._own, self._used, overwritten=former)
        if read is None:
            return None
        values, operands = read
        recipe, data = self._recipe, former.value
        if data.is_sent:
            data = RemoteArray(
                eager.pool, None, data.shape, data.dtype, data.layout, None, data.host_array
            )
        else:
            data.mark_reused()
        provenance = Provenance.of(recipe, recipe.last, operands, line, numbers)
        written = input_leaf(self._shape, self._dtype, data.layout, data)
        set_provenance(written, provenance)
        program = cast("UpdateProgram", self._program)
        program.write(values[self._used.index(0)], values, numbers)
        return written


@final
class JointCall:
    """The operations of a call with several results, or of one that has read numbers.

    operations   from its arguments to its results, and to the numbers that it has read
    program      computes these from the operands
    results      the leaves of the results that it had
    numbers      the numbers that it has read
    assemble     returns what the call returns, given the leaves of its results
    """

    __slots__ = (
        "_assemble", "_misses", "_numbers", "_outputs", "_own", "_program", "_recipe", "_used"
    )  # fmt: skip

    def __init__(
        self,
        operations: CallOperations,
        program: CallProgram,
        results: Sequence[Node],
        numbers: Sequence[bool | int],
        assemble: Callable[[list[Node]], Any],
    ) -> None:
        self._recipe, self._used, self._own = operations.recipe, operations.used, operations.own
        self._program, self._numbers, self._assemble = program, [*numbers], assemble
        self._outputs = [
            (leaf.shape, leaf.dtype, output)
            for leaf, output in zip(results, operations.outputs, strict=False)
        ]
        self._misses = 0

    @property
    def has_frequent_misses(self) -> bool:
        """True if the numbers were others more often than the same."""
        return self._misses > MAX_MISSES

    def run(
        self,
        eager: EagerComputation,
        arguments: Sequence[Node],
        line: Line,
        numbers: Sequence[Number] = (),
    ) -> Any | None:
        """Return what the call returns for these leaves; None if the values of the leaves are not
        stored here, the numbers that the call reads are others, or these reads are recorded.

        Raises what a kernel raises.
        """
        if self._numbers and NUMBERS_READ.value is not None:
            return None
        read = _read(eager, arguments, self._own, self._used)
        if read is None:
            return None
        values, operands = read
        computed = self._program.run(values, ())
        outputs = self._outputs
        if self._numbers and self._numbers != [x.item() for x in computed[len(outputs) :]]:
            self._misses += 1
            return None
        self._misses -= self._misses > 0
        record = Provenance.of(self._recipe, outputs[0][2], operands, line)
        leaves = [
            eager.new_leaf(
                shape, dtype, value, record if i == 0 else record.of_output(output, line)
            )
            for i, ((shape, dtype, output), value) in enumerate(zip(outputs, computed))  # noqa: B905
        ]
        return self._assemble(leaves)


def _read(
    eager: EagerComputation,
    arguments: Sequence[Node],
    own_arrays: tuple[Node, ...],
    used: Sequence[int],
    overwritten: Node | None = None,
) -> tuple[list[np.ndarray[Any, Any]], tuple[OperandReference, ...]] | None:
    """Return the values of the arrays at these positions among the arguments and the own arrays of
    a call, and the operands of a record for them; None if they are not stored here.

    Of an array that the call overwrites, a record keeps how it was computed, or an empty leaf.
    """
    pool = eager.pool
    if own_arrays:
        arguments = (*arguments, *own_arrays)
    values: list[np.ndarray[Any, Any]] = []
    operands: list[OperandReference] = []
    for i in used:
        leaf = arguments[i]
        data = leaf.value
        if type(data) is not RemoteArray or data.pool is not pool:
            return None
        value = data.host_array
        if value is None and (value := data.local_array()) is None:
            return None
        values.append(value)
        if leaf is overwritten and leaf.provenance is None:
            empty = input_leaf(leaf.shape, leaf.dtype, data.layout, OVERWRITTEN)
            operands.append(StrongLeafReference(empty, 0))
        else:
            operands.append(reference_to_array(leaf))
    if KEPT.value is not None:
        KEPT.value += [arguments[i] for i in used]
    return values, tuple(operands)


def call_of(
    eager: EagerComputation, result: Node, arguments: Sequence[Node], numbers: int = 0
) -> EagerCall | None:
    """Return the call that has computed a leaf from these leaves; None if it depends on other
    arrays, on variables or on random numbers, or needs the workers.

    With `numbers`, the call gets as many numbers in place of its own ones; None if it has others,
    or has made arrays, which may be computed from the numbers.
    """
    operations = None if result in arguments else operations_between((result,), arguments)
    if operations is None or not operations.recipe.length:
        return None
    recipe, used, own_arrays = operations.recipe, operations.used, operations.own
    if numbers:
        number_steps = [i for i, x in enumerate(recipe.steps) if isinstance(x, NumberStep)]
        if len(number_steps) != numbers or own_arrays or len(used) != len(arguments):
            return None
        recipe = recipe.with_numbers(number_steps)
    program = _program(eager, operations._replace(recipe=recipe), arguments)
    return None if program is None else EagerCall(program, recipe, result, used, own_arrays)


def joint_call_of(
    eager: EagerComputation,
    results: Sequence[Node],
    arguments: Sequence[Node],
    reads: Sequence[tuple[Node, Any]],
    assemble: Callable[[list[Node]], Any],
) -> JointCall | None:
    """Return the call that has computed several leaves from these leaves, with the numbers that it
    has read of other ones; None as `call_of`, and if the numbers are no integers, which seldom are
    the same again."""
    numbers = [number for _, number in reads]
    are_new = not any(x in arguments for x in results) and len({*results}) == len(results)
    if not are_new or not all(type(x) is bool or type(x) is int for x in numbers):
        return None
    operations = operations_between((*results, *[leaf for leaf, _ in reads]), arguments)
    if operations is None:
        return None
    program = _program(eager, operations, arguments)
    return None if program is None else JointCall(operations, program, results, numbers, assemble)


def _program(
    eager: EagerComputation, operations: CallOperations, arguments: Sequence[Node]
) -> EagerProgram | None:
    """Return the program of the operations of a call on these leaves."""
    recipe, used = operations.recipe, operations.used
    arguments = (*arguments, *operations.own)
    nodes = nodes_of(recipe, [arguments[i] for i in used])
    arrays, number_nodes = nodes[: len(used)], [nodes[i] for i in recipe.numbers]
    return eager.program(Graph(tuple([nodes[i] for i in operations.outputs])), arrays, number_nodes)
