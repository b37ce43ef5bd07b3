"""Eager calls: the operations of a function on small arrays, which later calls repeat at once.

A function of the namespace checks its arguments, promotes types and builds nodes, which takes
longer than to compute a few kilobytes. What it did is in the provenance of its result, as far as
the arguments. From that this module makes one recipe and one list of calls of kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast, final

import numpy as np
from msgspec.structs import replace

from magmath.core.call_effects import CALL_EFFECTS
from magmath.core.type_aliases import Number
from magmath.engine.lifetimes.kept_expressions import KEPT
from magmath.engine.remote_array import OVERWRITTEN, RemoteArray
from magmath.graph import Graph, Node, Provenance, provenance_of
from magmath.graph.operation import Line
from magmath.graph.provenance.operand_references import (
    MAX_KEPT,
    LeafReference,
    OperandReference,
    StrongLeafReference,
    reference_to_array,
    set_provenance,
)
from magmath.graph.provenance.provenance import provenance_before
from magmath.graph.provenance.recipe import (
    NumberStep,
    Recipe,
    RecipeEntry,
    RecipeStep,
    built_step,
    number_node,
)
from magmath.ops.leaves import input_leaf

if TYPE_CHECKING:
    from magmath.engine.eager.eager_computation import EagerComputation
    from magmath.executor.eager_program import EagerProgram

MAX_OPERATIONS = 128
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
    assembled    what it returns, from the leaves of its results
    """

    __slots__ = (
        "_assembled", "_misses", "_numbers", "_outputs", "_own", "_program", "_recipe", "_used"
    )  # fmt: skip

    def __init__(
        self,
        operations: _CallOperations,
        program: CallProgram,
        results: Sequence[Node],
        numbers: Sequence[bool | int],
        assembled: Callable[[list[Node]], Any],
    ) -> None:
        self._recipe, self._used, self._own = operations.recipe, operations.used, operations.own
        self._program, self._numbers, self._assembled = program, [*numbers], assembled
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
        if self._numbers and CALL_EFFECTS.reads is not None:
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
        return self._assembled(leaves)


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
    if KEPT.expressions is not None:
        KEPT.expressions += [arguments[i] for i in used]
    return values, tuple(operands)


def call_of(
    eager: EagerComputation, result: Node, arguments: Sequence[Node], numbers: int = 0
) -> EagerCall | None:
    """Return the call that has computed a leaf from these leaves; None if it depends on other
    arrays, on variables or on random numbers, or needs the workers.

    With `numbers`, the call gets as many numbers in place of its own ones; None if it has others,
    or has made arrays, which may be computed from the numbers.
    """
    operations = None if result in arguments else _operations((result,), arguments)
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
    assembled: Callable[[list[Node]], Any],
) -> JointCall | None:
    """Return the call that has computed several leaves from these leaves, with the numbers that it
    has read of other ones; None as `call_of`, and if the numbers are no integers, which seldom are
    the same again."""
    numbers = [number for _, number in reads]
    is_known = not any(x in arguments for x in results) and len({*results}) == len(results)
    if not is_known or not all(type(x) is bool or type(x) is int for x in numbers):
        return None
    operations = _operations((*results, *[leaf for leaf, _ in reads]), arguments)
    if operations is None:
        return None
    program = _program(eager, operations, arguments)
    return None if program is None else JointCall(operations, program, results, numbers, assembled)


def _program(
    eager: EagerComputation, operations: _CallOperations, arguments: Sequence[Node]
) -> EagerProgram | None:
    """Return the program of the operations of a call on these leaves."""
    recipe, used = operations.recipe, operations.used
    arguments = (*arguments, *operations.own)
    nodes = _built(recipe, [arguments[i] for i in used])
    arrays, number_nodes = nodes[: len(used)], [nodes[i] for i in recipe.numbers]
    return eager.program(Graph(tuple([nodes[i] for i in operations.outputs])), arrays, number_nodes)


def recipe_of_call(result: Node, arguments: Sequence[Node]) -> tuple[Recipe, list[int]] | None:
    """Return the recipe by which a leaf was computed from these leaves, and the positions of those
    that are its operands; None as `call_of`."""
    operations = None if result in arguments else _operations((result,), arguments)
    if operations is None or operations.own:
        return None
    return operations.recipe, operations.used


@final
class _CallOperations(NamedTuple):
    """The operations of a call.

    recipe   the operations
    used     the positions of its operands among the arguments, followed by the own arrays
    own      arrays that the function itself has made
    outputs  the positions of the results in the recipe
    """

    recipe: Recipe
    used: list[int]
    own: tuple[Node, ...]
    outputs: list[int]


def _operations(results: Sequence[Node], arguments: Sequence[Node]) -> _CallOperations | None:
    """Return the operations by which leaves were computed from these leaves; None as `call_of`."""
    operations = _Operations(arguments)
    try:
        positions = [operations.add_result(x) for x in results]
    except _OtherOperand:
        return None
    first = len(operations.used)
    outputs = [-1 - i if i < 0 else first + i for i in positions]
    return _CallOperations(operations.recipe(), operations.used, tuple(operations.own), outputs)


@final
class _OtherOperand(Exception):
    """An operand that is no argument, and not computed from arguments alone."""


@final
class _Operations:
    """The operations between arguments and a result, as the steps of one recipe.

    arguments  the positions of the arguments, followed by the own arrays
    own        arrays that the operations read and that are no arguments, nor computed
    used       the positions of the arguments that are operands, in the order of their first use

    Positions of operands in steps are negative until `recipe` puts them first.
    """

    def __init__(self, arguments: Sequence[Node]) -> None:
        self.arguments = {leaf: i for i, leaf in enumerate(arguments)}
        self.own: list[Node] = []
        self._count = len(arguments)
        self._steps: list[NumberStep | RecipeStep] = []
        self._done: dict[tuple[int, int], int] = {}
        self.used: list[int] = []

    def add_result(self, leaf: Node) -> int:
        """Add the steps of a leaf, an argument or one without a record; return its position."""
        if leaf in self.arguments:
            return self._used_position(self.arguments[leaf])
        record = provenance_of(leaf)
        return self._own_position(leaf) if record is None else self.add(record)

    def add(self, record: Provenance) -> int:
        """Add the steps of a record; return the position of its output."""
        recipe, key = record.recipe, (id(record), record.output)
        if key in self._done:
            return self._done[key]
        if recipe is None:
            raise _OtherOperand
        operands = dict(zip(recipe.operands, record.operands, strict=True))
        numbers = record.numbers()
        positions: dict[int, int] = {}
        reached = recipe.reached(record.output)
        if len(self._steps) + len(reached) - len(operands) > MAX_OPERATIONS:
            raise _OtherOperand
        for i in reached:
            step = recipe.steps[i]
            if step is None:
                positions[i] = self._operand(operands[i])
            else:
                positions[i] = self._step(step, numbers.get(i), positions)
        return self._done.setdefault(key, positions[record.output])

    def _step(self, step: RecipeEntry, number: Any, positions: Mapping[int, int]) -> int:
        """Add a step of a record; return its position. `positions` are those of its sources."""
        if isinstance(step, Node):
            step = NumberStep(step.operation, step.dtype, step.attributes.get("value", step.value))
        if isinstance(step, NumberStep):
            value = step.value if number is None else number
            step = NumberStep(step.operation, step.dtype, value)
        else:
            assert step is not None
            if step.operation.is_random or step.operation.is_mark or step.operation.is_version:
                raise _OtherOperand
            sources = tuple([positions[i] for i in step.sources])
            step = replace(step, line=None, sources=sources)
        self._steps.append(step)
        if len(self._steps) > MAX_OPERATIONS:
            raise _OtherOperand
        return len(self._steps) - 1

    def _operand(self, operand: OperandReference) -> int:
        """Return the position of an operand of a record, whose steps are added if it was computed
        itself."""
        if not isinstance(operand, (LeafReference, StrongLeafReference)):
            raise _OtherOperand
        leaf = operand.find()
        argument = None if leaf is None else self.arguments.get(leaf)
        if argument is not None:
            return self._used_position(argument)
        before = provenance_before(operand)
        if before is not None:
            return self.add(before)
        if leaf is None or not operand.kept_bytes:
            raise _OtherOperand
        return self._own_position(leaf)

    def _own_position(self, leaf: Node) -> int:
        """Return the position of an array that the function has made."""
        if leaf.nbytes > MAX_KEPT:
            raise _OtherOperand
        argument = self.arguments[leaf] = self._count + len(self.own)
        self.own.append(leaf)
        return self._used_position(argument)

    def _used_position(self, argument: int) -> int:
        """Return the position of an argument that is an operand."""
        if argument not in self.used:
            self.used.append(argument)
        return -1 - self.used.index(argument)

    def recipe(self) -> Recipe:
        """Return the recipe, with the used arguments as its operands."""
        first = len(self.used)
        steps: list[RecipeEntry] = [None] * first
        for step in self._steps:
            if isinstance(step, RecipeStep):
                sources = tuple([-1 - i if i < 0 else first + i for i in step.sources])
                step = replace(step, sources=sources)
            steps.append(step)
        return Recipe(steps, range(first))


def _built(recipe: Recipe, operands: Sequence[Node]) -> list[Node]:
    """Return the nodes of all steps, on leaves without values in place of the operands."""
    nodes: dict[int, Node] = {}
    for i, leaf in enumerate(operands):
        assert leaf.layout is not None
        nodes[i] = input_leaf(leaf.shape, leaf.dtype, leaf.layout, None)
    for i, step in enumerate(recipe.steps[len(operands) :], len(operands)):
        if isinstance(step, NumberStep):
            nodes[i] = number_node(step, step.value)
        else:
            assert isinstance(step, RecipeStep)
            node = built_step(step, nodes, None, None)
            assert node is not None
            nodes[i] = node
    return [*nodes.values()]
