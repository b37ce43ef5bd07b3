"""The evaluation of expressions: their values, with those that user code may read next.

An expression of small arrays is computed in this process. For any other the program is found by the
structure of the expression; only on a miss is the graph built, planned and sent to the workers. A
run then names the program, the ids of its inputs and the values of its scalars.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Mapping, Sequence
from contextlib import nullcontext
from typing import NamedTuple, Protocol, final

from magmath.core.bounded_memo import RecentlyUsed
from magmath.core.expression_lock import exclusive
from magmath.core.paused_gc import paused_gc
from magmath.core.stage_times import stage
from magmath.core.traceback_cleanup import clear_frames
from magmath.engine.array_handle import ArrayHandle
from magmath.engine.eager.eager_computation import EagerComputation
from magmath.engine.evaluation.intermediate_choice import worthwhile_intermediates
from magmath.engine.evaluation.interpreter import Interpreter
from magmath.engine.evaluation.joint_evaluation import JointEvaluation
from magmath.engine.evaluation.loop_runs import LoopPrograms, has_counted_loop
from magmath.engine.evaluation.redistributed_copies import (
    RedistributedCopies,
    is_redistribution_of_value,
)
from magmath.engine.evaluation.result_provenance import (
    RecipeMemo,
    deliver_results,
    record_provenance,
    record_provenance_by_structure,
)
from magmath.engine.fallible_operations import has_pending_fallible
from magmath.engine.lifetimes.donation import (
    donate,
    is_small_write,
    lost_nodes,
    with_leaves_of_variables,
)
from magmath.engine.lifetimes.intermediate_cache import IntermediateCache
from magmath.engine.lifetimes.kept_expressions import is_keeping_expressions
from magmath.engine.lifetimes.live_references import is_unobservable, live_intermediates
from magmath.engine.programs.expression_program import ExpressionProgram
from magmath.engine.programs.pending_graph import pending_graph
from magmath.engine.programs.program_runs import ProgramRuns
from magmath.engine.programs.program_table import ProgramTable
from magmath.engine.remote_array import OVERWRITTEN, RemoteArray, leaf_of, remote_array_of
from magmath.engine.traces import tracing
from magmath.graph import Graph, Node, read_leaves, set_value, structure_of, topological
from magmath.graph.structure import Structure
from magmath.layout import Layout
from magmath.ops.leaves import INPUT, SCALAR
from magmath.passes.expand import expand

MAX_STRUCTURES = 512
"""Structures of expressions whose programs and recipes are found without building a graph."""
PENDING_WRITES = 64
"""Depth of a pending expression at which the next small write (`x[i] = v`) computes it."""
NO_VALUES: Mapping[Node, list[Node]] = {}


class TargetVariable(Protocol):
    """The methods of a variable that the engine uses."""

    @property
    def layout(self) -> Layout:
        """The distribution of the value over the workers."""

    def release(self) -> list[Node]:
        """Return a list with the value's leaf, which only the list, the variable and user code
        reference."""

    def set_value(self, data: RemoteArray) -> None:
        """Store a new value."""


@final
class _Expression(NamedTuple):
    """The nodes that one evaluation computes.

    outputs   the requested nodes, then those that are computed with them
    order     the nodes that the outputs need, up to evaluated ones, in topological order
    live      the intermediates among them that something refers to
    results   the outputs that are results of calls, whose gradients exist
    """

    outputs: tuple[Node, ...]
    order: list[Node]
    live: Container[Node]
    results: Sequence[Node]


@final
class Evaluator:
    """Computes the values of expressions on one pool, and those that are assigned to variables."""

    def __init__(
        self,
        programs: ProgramTable,
        runs: ProgramRuns,
        copies: RedistributedCopies,
        eager_computation: EagerComputation,
        interpreter: Interpreter,
        loops: LoopPrograms,
    ) -> None:
        self._pool = runs.pool
        self._programs = programs
        self._runs = runs
        self._copies = copies
        self._eager_computation = eager_computation
        self._interpreter = interpreter
        self._loops = loops
        self._by_structure: RecentlyUsed[Hashable, ExpressionProgram] = RecentlyUsed(MAX_STRUCTURES)
        self._recipes: RecipeMemo = RecentlyUsed(MAX_STRUCTURES)
        self._intermediates = IntermediateCache(self._pool)
        self._joint = JointEvaluation()

    def clear(self) -> None:
        """Forget the programs and recipes of all structures."""
        self._by_structure.clear()
        self._recipes.clear()

    @exclusive
    def evaluate(self, nodes: Sequence[Node]) -> list[Node]:
        """Return input leaves with the values of `nodes`.

        Raises TracingError for nodes that depend on arguments of a function that is being traced.
        """
        leaves = {x: self._copies.leaf(x) for x in nodes if is_redistribution_of_value(x)}
        if self._eager_computation.max_eager_bytes > 0:
            for node in nodes:
                leaf = None if node in leaves else self._eager_computation.leaf_of_needed_node(node)
                if leaf is not None:
                    leaves[node] = leaf
        requested = tuple(dict.fromkeys([node for node in nodes if node not in leaves]))
        leaves |= self._values_of(requested) if requested else {}
        deliver_results(leaves)
        return [leaves[node] for node in nodes]

    @exclusive
    def assign(self, pairs: Sequence[tuple[TargetVariable, Node]]) -> None:
        """Compute and store new values of variables.

        A new value is computed in the memory of the former one, unless that has other references.
        If an operation can fail depending on its data, this waits for the result first, so that the
        variables keep their values after a failure.
        """
        self._runs.wait_for_fallible_run()
        self.forget_failed()
        nodes = dict.fromkeys([node for _, node in pairs])
        eager = self._assigned_eagerly(pairs)
        leaves = {node: node.leaf_or_self for node in nodes}
        requested = tuple([node for node in nodes if _should_be_stored(node) and node not in eager])
        # The list of `topological` has no name: while it existed, each node would have one more
        # reference, and would count as referenced by user code (`live_intermediates`).
        is_fallible = has_pending_fallible(topological(requested, pending=True))
        former_leaves = {} if is_fallible else {node: v.release() for v, node in pairs}
        with self._pool.defer_interrupts():
            if requested:
                computed = self._values_of(requested, former_leaves)
                if is_fallible:
                    self._runs.wait()
                deliver_results(computed)
                leaves |= computed
            for v, node in pairs:
                v.set_value(eager.get(node) or remote_array_of(leaves[node]))

    def _assigned_eagerly(
        self, pairs: Sequence[tuple[TargetVariable, Node]]
    ) -> dict[Node, RemoteArray]:
        """Return the values of small pending nodes that this process computes."""
        if not self._eager_computation.max_eager_bytes:
            return {}
        values = {
            node: self._eager_computation.assigned_value(node, v.layout)
            for v, node in pairs
            if _should_be_stored(node)
        }
        return {node: data for node, data in values.items() if data is not None}

    def _values_of(
        self, requested: tuple[Node, ...], former_leaves: Mapping[Node, list[Node]] = NO_VALUES
    ) -> dict[Node, Node]:
        """Return input leaves with the values of nodes.

        `former_leaves` maps the new values of variables to the leaves of the former values.
        """
        try:
            return self._values_of_expression(requested, former_leaves)
        except BaseException as error:
            clear_frames(error)  # references count: `live_intermediates`
            raise

    def _values_of_expression(
        self, requested: tuple[Node, ...], former_leaves: Mapping[Node, list[Node]]
    ) -> dict[Node, Node]:
        expression = self._expression_of(requested)
        outputs = expression.outputs
        order, expanded = expression.order, outputs
        composite = [x for x in order if x.operation.expansion is not None and x.value is None]
        if composite and has_counted_loop(composite):
            return self._values_through_loops(expression, len(requested))
        lost: set[Node] = set()
        array_ids = self._interpreter.array_ids_of_operands(order, outputs)
        if array_ids is not None and composite:
            simpler = expand(pending_graph(Graph(outputs)))
            order, expanded = simpler.nodes, simpler.outputs
            array_ids = self._interpreter.array_ids_of_operands(order, expanded)
        if array_ids is not None:
            data = self._interpreter.execute(order, expanded, array_ids)
            leaves = dict(zip(outputs, map(leaf_of, data), strict=True))
            structure = structure_of(expression.order, outputs, (None,) * len(outputs))
            record_provenance_by_structure(
                leaves, expression.order, expression.live, (), structure, self._recipes
            )
        else:
            targets: tuple[Node | None, ...] = ()
            if not composite and self._can_donate(order, outputs):
                outputs, targets = donate(order, outputs)
                targets = with_leaves_of_variables(targets, order, outputs, former_leaves)
                lost = lost_nodes(order, targets)
                if lost:
                    self._intermediates.pin(lost)
            leaves = self._values_by_program(expression, outputs, targets)
        intermediates = outputs[len(requested) :]
        self._set_intermediates(intermediates, leaves, expression, lost)
        return leaves

    def _values_through_loops(self, expression: _Expression, requested: int) -> dict[Node, Node]:
        """Return input leaves with the values of an expression that contains loops."""
        outputs = expression.outputs
        loop_free = self._loops.without_loops(pending_graph(Graph(outputs)).outputs)
        pending = [x for x in loop_free if x.operation is not INPUT]
        values = dict(zip(pending, self.evaluate(pending), strict=True))
        leaves = {x: values.get(y, y) for x, y in zip(outputs, loop_free, strict=True)}
        # Nodes that read inputs of the loops may read their leaves now (`read_leaves`).
        record_provenance(leaves, topological(outputs, pending=True), expression.live)
        self._set_intermediates(outputs[requested:], leaves, expression)
        return leaves

    def _expression_of(self, requested: tuple[Node, ...]) -> _Expression:
        """Return the expression of requested nodes and of those that are computed with them."""
        outputs, order = requested, topological(requested, pending=True)
        results, updates = self._joint.nodes_with(order)
        if results or updates:
            outputs = (*outputs, *results, *updates)
            order = topological(outputs, pending=True)
        live = live_intermediates(order, outputs)
        if self._pool.memory_limit is None:
            outputs = (*outputs, *worthwhile_intermediates(order, live))
        return _Expression(outputs, order, live, results)

    def _values_by_program(
        self,
        expression: _Expression,
        outputs: tuple[Node, ...],
        targets: tuple[Node | None, ...],
    ) -> dict[Node, Node]:
        """Return input leaves with the values of outputs, which a program computes; `targets` are
        the leaves whose memory it reuses."""
        donated = [leaf for leaf in targets if leaf is not None]
        if donated:
            self._runs.wait_for_fallible_run()
        with self._pool.defer_interrupts() if donated else nullcontext():
            structure = structure_of(expression.order, outputs, targets)
            data = self._run_program(expression.order, outputs, targets, structure)
            leaves = dict(zip(outputs, map(leaf_of, data), strict=True))
            record_provenance_by_structure(
                leaves, expression.order, expression.live, donated, structure, self._recipes
            )
            if donated:  # the expressions cannot be recomputed
                for node, leaf in leaves.items():
                    set_value(node, leaf)
            if self._pool.is_inline:  # no run fails later and restores what it has overwritten
                for leaf in donated:  # which kept expressions of variables may read
                    set_value(leaf, OVERWRITTEN)
        return leaves

    def _can_donate(self, order: Sequence[Node], requested: Sequence[Node]) -> bool:
        """Return True if no failure of the expression could follow a write to donated memory.

        Worker processes report failures later. In this process nothing fails after the only write,
        which checks its indices first.
        """
        if not has_pending_fallible(order):
            return True
        writes = [x for x in order if x.operation.overwrites_first and x.value is None]
        return self._pool.is_inline and len(requested) == 1 and writes == list(requested)

    def _run_program(
        self,
        order: Sequence[Node],
        requested: tuple[Node, ...],
        targets: tuple[Node | None, ...],
        structure: Structure,
    ) -> list[RemoteArray]:
        """Compute nodes by their program, which is found by the structure of the expression."""
        structure_key, leaves = structure
        key = structure_key, self._programs.modes
        program = self._by_structure.find(key)
        compiled = None if program is None else program.compiled()
        if program is None or compiled is None:
            with paused_gc(), stage("look up"):
                graph = pending_graph(Graph(requested, targets), order)
                copied = self._copies.substituted_in(graph, make=True)
                compiled = self._programs.program_of(copied)
            if copied is not graph:  # it reads copies of some leaves
                return self._runs.run(compiled, copied.leaves)[0]
            program = ExpressionProgram(compiled, graph, leaves)
            self._by_structure.store(key, program)
        self._programs.mark_used(compiled)
        return self._runs.start(compiled, *program.operands(leaves))[0]

    def _set_intermediates(
        self,
        nodes: Sequence[Node],
        leaves: Mapping[Node, Node],
        expression: _Expression,
        lost: Container[Node] = (),
    ) -> None:
        """Set the values of nodes that user code refers to and that were computed with others.

        Their arrays drop the expression, unless it serves gradients by variables, or recomputation
        after a failure. Arrays of results, whose gradients exist, drop it like requested ones.
        Nodes of `lost` read memory that the run has overwritten, so their values are never dropped.
        """
        if not nodes:
            return
        is_fallible = self._is_fallible(expression.order)
        if not (is_fallible or lost or is_keeping_expressions() or tracing.current() is not None):
            _forget_former_expressions(expression.order, leaves)
        for node in nodes:
            can_drop = not is_fallible and (not node.reads_version or node in expression.results)
            array = node.user_array() if can_drop and node.user_array is not None else None
            if array is not None and array.set_computed_of(node, leaves[node]):
                continue
            set_value(node, leaves[node])
            # A written value cannot be recomputed.
            donated = self._pool.is_inline or not is_fallible
            if node not in lost and not (donated and node.operation.overwrites_first):
                self._intermediates.add(node)

    def _is_fallible(self, expression: Sequence[Node]) -> bool:
        """Return True if the run of an expression, or one on which it depends, can fail for its
        data."""
        if has_pending_fallible(expression):
            return True
        if not self._runs.has_fallible_runs:
            return False
        operands = [
            remote_array_of(x)
            for x in expression
            if x.operation is INPUT or (x.value is not None and not x.is_leaf)
        ]
        return any(x.has_failed or (x.origin is not None and x.origin.is_pending) for x in operands)

    def forget_failed(self) -> list[Node]:
        """Drop intermediate values of failed runs, so that they are computed again on use; return
        their nodes."""
        return self._intermediates.forget_failed()

    def add_update(self, array: ArrayHandle, node: Node) -> None:
        """Register an array after an update in place: a later evaluation of other arrays may
        compute it in the same program. Small arrays are computed when they are read."""
        signature = node.signature
        if signature is not None and signature.nbytes > self._interpreter.max_bytes:
            self._joint.add_update(array)

    def add_gradients(self, gradients: Sequence[ArrayHandle], value: ArrayHandle) -> None:
        """Register the gradients of a function and its value: an evaluation of one gradient
        computes the others and the value in the same program."""
        if self._pool.memory_limit is None:
            self._joint.add_gradients(gradients, value)

    def should_evaluate_now(self, own_nodes: Sequence[Node]) -> bool:
        """Return True if a written array, the first of `own_nodes`, should be computed at once.

        That is so if no live reference outside `own_nodes` could be differentiated later. A write
        that depends on an earlier pending write stays pending, and so do up to `PENDING_WRITES`
        operations with small writes, since one evaluation of them all is faster.
        """
        written, max_bytes = own_nodes[0], self._interpreter.max_bytes
        if self._interpreter.can_compute(written) and is_small_write(written, max_bytes):
            if written.depth < PENDING_WRITES:
                return False
        elif any(x.operation.overwrites_first and x.value is None for x in written.inputs[:1]):
            return False
        return is_unobservable(topological(own_nodes[:1], pending=True), own_nodes)


def _forget_former_expressions(order: Sequence[Node], computed: Container[Node]) -> None:
    """Replace nodes that were known before an expression was computed by their leaves, in the nodes
    that read them: their own expressions need not be kept, since the leaves have records of them.

    Expressions of variables are kept: their records need the values that were read.
    """
    known = {
        x for x in order
        if x.inputs and isinstance(x.value, Node) and not x.reads_version and x not in computed
    }  # fmt: skip
    if known:
        for node in order:
            if node not in known:
                read_leaves(node, known)


def _should_be_stored(node: Node) -> bool:
    """Return True for a node whose value must be made an array: one without a value, or a
    number."""
    return node.value is None or node.operation is SCALAR
