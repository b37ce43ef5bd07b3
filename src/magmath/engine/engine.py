"""The engine: it turns graphs into programs, runs them on one pool, and caches them by structure.

The engine finds the program of an expression by its structure. On a miss it builds the graph, with
leaves in place of evaluated parts, runs the passes and sends the program to the workers once. A run
then names the program, the numbers of its inputs and the values of its scalars.
"""

from __future__ import annotations

from collections.abc import (
    Callable,
    Collection,
    Container,
    Hashable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, NamedTuple, Protocol, final

from magmath.core.bounded_memo import RecentlyUsed
from magmath.core.paused_gc import paused_gc
from magmath.core.stage_times import stage
from magmath.core.traceback_cleanup import clear_frames
from magmath.engine.abandoned_run import AbandonedRun
from magmath.engine.asynchronous_build import AsynchronousDivision
from magmath.engine.data_failures import any_pending_fallible
from magmath.engine.donation import donate, is_small_write, with_former_values
from magmath.engine.eager_arrays import EagerArrays
from magmath.engine.found_program import FoundProgram
from magmath.engine.intermediate_cache import IntermediateCache
from magmath.engine.intermediate_choice import worthwhile_intermediates
from magmath.engine.joint_evaluation import JointEvaluation, Pending
from magmath.engine.live_references import is_unobservable, live_intermediates
from magmath.engine.loop_runs import LoopPrograms, has_counted_loop
from magmath.engine.pending_arrays import note_bytes
from magmath.engine.program_build import Compiled, environment_of
from magmath.engine.program_table import ProgramTable
from magmath.engine.redistribution_cache import NeededCopies, RedistributionCache
from magmath.engine.remote_array import RemoteArray, leaf_of, no_value_error, remote_array_of
from magmath.engine.result_records import (
    RecipeMemo,
    deliver_results,
    record_by_structure,
    record_provenance,
)
from magmath.engine.stream_state import INITIAL_STREAMS, StreamState
from magmath.errors import MagmathError
from magmath.graph import Graph, Node, set_value, structure_of, topological
from magmath.layout import Layout
from magmath.ops.leaves import CONSTANT, INPUT, SCALAR, VARIABLE
from magmath.ops.redistribute import REDISTRIBUTE, redistribute
from magmath.passes.expand import expand

if TYPE_CHECKING:
    from magmath.runtime.messages import Number
    from magmath.runtime.pool import Pool
    from magmath.runtime.run_handle import ProgressCallback, RunHandle

MAX_STRUCTURES = 512
"""Structures of expressions whose programs and recipes are found without building a graph."""
EAGER_WRITES = 64
"""Depth of a pending expression at which the next small write (`x[i] = v`) computes it."""
MAX_EAGER_BYTES = 32 << 10
"""The size of the largest array for which eager execution beats a program of one worker."""
MAX_REPLICATED_BYTES = 128 << 10
"""The size of the largest array that is replicated by default, not split. Up to this size eager
execution also beats programs of several workers, which are messages."""
NO_VALUES: Mapping[Node, list[Node]] = {}
NO_CONTEXT = nullcontext()


class Target(Protocol):
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
    """What one evaluation computes.

    outputs   the requested nodes, then those that are computed with them
    order     the nodes that the outputs need, up to evaluated ones, in topological order
    held      the intermediates among them that something refers to
    results   the outputs that are results of calls, whose gradients exist
    """

    outputs: tuple[Node, ...]
    order: list[Node]
    held: Container[Node]
    results: Sequence[Node]


@final
class Engine:
    """Compiles and runs the programs of one pool."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.environment = environment_of(pool)
        self.eager_arrays = EagerArrays(pool, self.environment.whole)
        self.max_eager_bytes = MAX_EAGER_BYTES if pool.is_inline else MAX_REPLICATED_BYTES
        self.stream_state = StreamState(pool.seed)
        self.initial_stream_state = StreamState(pool.seed, INITIAL_STREAMS)
        self.copies = RedistributionCache(pool.workers, pool.memory_limit)
        self._programs = ProgramTable(pool, self.copies)
        self._found: RecentlyUsed[Hashable, FoundProgram] = RecentlyUsed(MAX_STRUCTURES)
        self._recipes: RecipeMemo = RecentlyUsed(MAX_STRUCTURES)
        self._intermediates = IntermediateCache(pool)
        self._joint = JointEvaluation()
        self.loops = LoopPrograms(self)
        self.is_training = False
        """True while programs are parts of a training step (`Program.training`)."""
        self._last: RunHandle | None = None
        self._last_fallible_run: RunHandle | None = None  # the last run that can fail for some data
        self.profiler: Callable[[RunHandle], object] | None = None  # receives runs to profile
        self._needed_copies = NeededCopies()

    @property
    def max_eager_bytes(self) -> int:
        """The size of the largest arrays that are computed without a program."""
        return self._max_eager_bytes

    @max_eager_bytes.setter
    def max_eager_bytes(self, nbytes: int) -> None:
        self._max_eager_bytes = nbytes
        pool = self.pool
        here = not pool.deterministic and pool.memory_limit is None and pool.is_on_cpu
        self.eager_arrays.max_eager_bytes = nbytes if here else 0

    def compile(
        self,
        graph: Graph,
        *,
        training: bool = False,
        division: AsynchronousDivision | None = None,
        in_range: Collection[Node] = (),
        later: Collection[Node] = (),
    ) -> Compiled:
        """Return the program of a graph whose leaves all have layouts; builds it on a miss.

        `training`: the program is a training step (`Program.training`). `division`: each worker
        runs it on its own. `in_range`: leaves whose values are in range as indices. `later`: leaves
        whose arrays are not on the workers yet.
        """
        return self._programs.program_of(
            graph,
            self.environment,
            training=training or self.is_training,
            division=division,
            in_range=in_range,
            later=later,
        )

    @contextmanager
    def training_step(self) -> Iterator[None]:
        """Compile programs as parts of a training step within this block."""
        self.is_training = True
        try:
            yield
        finally:
            self.is_training = False

    def forget_programs(self) -> None:
        """Drop all programs, here and on the workers: expressions and functions that are compiled
        later are planned anew. Those that were compiled before cannot run any more."""
        for memo in (self._programs, self._found, self._recipes, self.loops):
            memo.clear()

    def run(
        self,
        compiled: Compiled,
        leaves: Sequence[Node],
        *,
        steps: int = 1,
        progress: ProgressCallback | None = None,
        asynchronous: bool = False,
    ) -> tuple[list[RemoteArray], RunHandle]:
        """Run a program on the data of `leaves`; return the data of the outputs and the run.

        The caller must give variables among the targets their new data. Raises MagmathError for
        data of another pool.
        """
        given = [remote_array_of(leaves[i]) for i in compiled.inputs]
        numbers = [leaves[i].value for i in compiled.scalars]
        return self.start(
            compiled, given, numbers, steps=steps, progress=progress, asynchronous=asynchronous
        )

    def start(
        self,
        compiled: Compiled,
        given: Sequence[RemoteArray],
        numbers: Sequence[Number],
        *,
        steps: int = 1,
        progress: ProgressCallback | None = None,
        asynchronous: bool = False,
    ) -> tuple[list[RemoteArray], RunHandle]:
        """Like `run`, with the program's input arrays and scalars in order."""
        if self.pool.memory_limit is not None:
            self.copies.make_room(self.pool.array_bytes, compiled.new_bytes)
        timed = self.profiler is not None
        run = self.pool.run(
            compiled.identifier,
            self.numbers_of(given),
            numbers,
            steps=steps,
            progress=progress,
            timed=timed,
            asynchronous=asynchronous,
        )
        self._last = run
        if compiled.is_fallible and not self.pool.is_inline:
            self._last_fallible_run = run
        if self.profiler is not None:
            run.values()
            self.profiler(run)
        outputs = []
        for number, (shape, dtype, layout) in zip(run.outputs, compiled.results, strict=True):
            outputs.append(RemoteArray(self.pool, number, shape, dtype, layout, run))
        note_bytes(compiled.result_bytes)
        if run.can_be_abandoned and self.pool.memory_limit is None:
            run.recovery = AbandonedRun(compiled, tuple(given), tuple(numbers), outputs)
        if self.pool.interrupts.count:
            self.pool.interrupt_point()
        return outputs, run

    def restore(self, given: Sequence[RemoteArray]) -> None:
        """Recompute those of the arrays whose run was interrupted and abandoned."""
        for data in given:
            run = data.origin
            if (
                run is not None
                and run.recovery is not None
                and self.pool.was_abandoned(data.number)
            ):
                run.recovery.rerun(self.start)

    def wait_for_fallible_run(self) -> None:
        """Wait for the last run that can fail for its data; raise its failure. This precedes what
        would replace values by results of such runs, or of runs that read them."""
        run = self._last_fallible_run
        if run is not None:
            if run.is_pending:
                run.wait()
            self._last_fallible_run = None
        if self.pool.any_failed:
            self.drain()

    @property
    def has_uncertain_runs(self) -> bool:
        """True if a run that can fail for its data may be pending, or if one has failed."""
        return self._last_fallible_run is not None or self.pool.any_failed

    def has_succeeded(self, data: RemoteArray) -> bool:
        """Wait for the run that computes an array; return False if it has failed. Failures are not
        raised."""
        if data.pool is not self.pool or self.pool.is_inline:
            return True
        if self.pool.any_failed:
            self.restore([data])
        if data.origin is not None:
            data.origin.complete()
        return not data.has_failed

    def wait_for(self, leaves: Sequence[Node]) -> None:
        """Wait until all started runs are done. Raises their failures, and those of the leaves."""
        self.wait()
        if self.pool.any_failed:
            data = [remote_array_of(x) for x in leaves]
            self.restore(data)
            for x in data:
                if x.has_failed:
                    self.pool.raise_failure(x.number)

    def drain(self) -> None:
        """Wait until all started runs are done. Failures are not raised."""
        if self._last is not None and not self.pool.is_inline:
            self._last.complete()
            self._last = self._last_fallible_run = None

    def wait(self) -> None:
        """Wait until all started runs are done. Raises their failures, once."""
        run = self._last
        if run is not None and run.is_pending:
            run.values()
        elif run is not None:  # its failure may have been raised
            self.pool.finish()

    def numbers_of(self, given: Sequence[RemoteArray]) -> list[int]:
        """Return the numbers of arrays. Raises MagmathError for data of another pool."""
        if self.pool.any_failed:
            self.restore(given)
        return [
            data.number if data.pool is self.pool else self._checked(data).number for data in given
        ]

    def _checked(self, data: RemoteArray) -> RemoteArray:
        if data.pool is not self.pool:
            raise MagmathError(
                f"an array of shape {data.shape} belongs to another pool, which has ended or is "
                f"not the current one; make it again in this pool (mm.init starts with no arrays)"
            )
        return data

    def evaluate(self, nodes: Sequence[Node]) -> list[Node]:
        """Return input leaves with the values of `nodes`.

        Raises TracingError for nodes that depend on arguments of a function that is being traced.
        """
        known = {node: self.redistributed(node) for node in nodes if _is_copy(node)}
        if self.eager_arrays.max_eager_bytes > 0 and self.profiler is None:
            for node in nodes:
                leaf = None if node in known else self.eager_arrays.value_leaf(node)
                if leaf is not None:
                    known[node] = leaf
        requested = tuple(dict.fromkeys([node for node in nodes if node not in known]))
        known |= self._values_of(requested) if requested else {}
        deliver_results(known)
        return [known[node] for node in nodes]

    def assign(self, pairs: Sequence[tuple[Target, Node]]) -> None:
        """Compute and store new values of variables.

        A new value is computed in the memory of the former one, unless that has other references.
        If an operation can fail depending on its data, this waits for the result first, so that the
        variables keep their values after a failure.
        """
        self.wait_for_fallible_run()
        self.forget_failed()
        nodes = dict.fromkeys([node for _, node in pairs])
        eager = self._assigned_eagerly(pairs)
        known = {node: node.known for node in nodes}
        requested = tuple([node for node in nodes if _is_pending(node) and node not in eager])
        order = topological(requested, cut=True)
        certain = not any_pending_fallible(order)
        overwritten = {node: v.release() for v, node in pairs} if certain else {}
        with self.pool.defer_interrupts():
            if requested:
                made = self._values_of(requested, overwritten)
                if not certain:
                    self.wait()
                deliver_results(made)
                known |= made
            for v, node in pairs:
                v.set_value(eager.get(node) or remote_array_of(known[node]))

    def _assigned_eagerly(self, pairs: Sequence[tuple[Target, Node]]) -> dict[Node, RemoteArray]:
        """Return the values of small pending nodes that this process computes."""
        if not self.eager_arrays.max_eager_bytes or self.profiler is not None:
            return {}
        values = {
            node: self.eager_arrays.assigned_value(node, v.layout)
            for v, node in pairs
            if _is_pending(node)
        }
        return {node: data for node, data in values.items() if data is not None}

    def _values_of(
        self, requested: tuple[Node, ...], overwritten: Mapping[Node, list[Node]] = NO_VALUES
    ) -> dict[Node, Node]:
        """Return input leaves with the values of nodes.

        `overwritten` maps the new values of variables to the leaves of the former values.
        """
        try:
            return self._values_of_expression(requested, overwritten)
        except BaseException as error:
            clear_frames(error)  # references count: `live_intermediates`
            raise

    def _values_of_expression(
        self, requested: tuple[Node, ...], overwritten: Mapping[Node, list[Node]]
    ) -> dict[Node, Node]:
        expression = self._expression_of(requested)
        outputs = expression.outputs
        order, expanded = expression.order, outputs
        lowered = [x for x in order if x.operation.lower_to is not None and x.value is None]
        if lowered and has_counted_loop(lowered):
            return self._values_through_loops(expression, len(requested))
        if lowered:
            simpler = expand(self.cut(Graph(outputs)))
            order, expanded = simpler.nodes, simpler.outputs
        numbers = self._eager_numbers(order, expanded)
        if numbers is not None:
            data = self._execute_eagerly(order, expanded, numbers)
            known = dict(zip(outputs, map(leaf_of, data), strict=True))
            record_provenance(known, expression.order, expression.held)
        else:
            targets: tuple[Node | None, ...] = ()
            if expanded is outputs and self._may_donate(order, outputs):
                outputs, targets = donate(order, outputs)
                targets = with_former_values(order, outputs, targets, overwritten)
            known = self._known_by_program(expression, outputs, targets)
        others = outputs[len(requested) :]
        self._set_intermediates(others, known, expression.order, expression.results)
        return known

    def _values_through_loops(self, expression: _Expression, requested: int) -> dict[Node, Node]:
        """Return input leaves with the values of an expression that contains loops."""
        outputs = expression.outputs
        found = self.loops.without_loops(self.cut(Graph(outputs)).outputs)
        pending = [x for x in found if x.operation is not INPUT]
        values = dict(zip(pending, self.evaluate(pending), strict=True))
        known = {x: values.get(y, y) for x, y in zip(outputs, found, strict=True)}
        record_provenance(known, expression.order, expression.held)
        self._set_intermediates(outputs[requested:], known, expression.order, expression.results)
        return known

    def _expression_of(self, requested: tuple[Node, ...]) -> _Expression:
        """Return the expression of requested nodes and of those that are computed with them."""
        outputs, order = requested, topological(requested, cut=True)
        results, updates = self._joint.nodes_with(order)
        if results or updates:
            outputs = (*outputs, *results, *updates)
            order = topological(outputs, cut=True)
        held = live_intermediates(order, outputs)
        if self.pool.memory_limit is None:
            outputs = (*outputs, *worthwhile_intermediates(order, held))
        return _Expression(outputs, order, held, results)

    def _known_by_program(
        self,
        expression: _Expression,
        outputs: tuple[Node, ...],
        targets: tuple[Node | None, ...],
    ) -> dict[Node, Node]:
        """Return input leaves with the values of outputs, which a program computes; `targets` are
        the leaves whose memory it reuses."""
        donated = [leaf for leaf in targets if leaf is not None]
        if donated:
            self.wait_for_fallible_run()
        with self.pool.defer_interrupts() if donated else NO_CONTEXT:
            structure = structure_of(expression.order, outputs, targets)
            data = self._run_program(expression.order, outputs, targets, structure)
            known = dict(zip(outputs, map(leaf_of, data), strict=True))
            record_by_structure(
                known, expression.order, expression.held, donated, structure, self._recipes
            )
            if donated:  # the expressions cannot be recomputed
                for node, leaf in known.items():
                    set_value(node, leaf)
        return known

    def _may_donate(self, order: Sequence[Node], requested: Sequence[Node]) -> bool:
        """Return True if no failure of the expression could follow a write to donated memory.

        Worker processes report failures later. In this process nothing fails after the only write,
        which checks its indices first.
        """
        if not any_pending_fallible(order):
            return True
        writes = [x for x in order if x.operation.overwrites_first and x.value is None]
        return self.pool.is_inline and len(requested) == 1 and writes == list(requested)

    def _run_program(
        self,
        order: Sequence[Node],
        requested: tuple[Node, ...],
        targets: tuple[Node | None, ...],
        structure: tuple[Hashable, list[Node]],
    ) -> list[RemoteArray]:
        """Compute nodes by their program, which is found by the structure of the expression."""
        key, leaves = structure
        program = self._found.find(key)
        compiled = None if program is None else program.compiled()
        if program is None or compiled is None:
            with paused_gc(), stage("look up"):
                graph = self.cut(Graph(requested, targets), order)
                copied = self.with_copies(graph, make=True)
                compiled = self.compile(copied)
            if copied is not graph:  # it reads copies of some leaves
                return self.run(compiled, copied.leaves)[0]
            program = FoundProgram(compiled, graph, leaves)
            self._found.store(key, program)
        self._programs.note_use(compiled)
        return self.start(compiled, *program.operands(leaves))[0]

    def _set_intermediates(
        self,
        nodes: Sequence[Node],
        known: Mapping[Node, Node],
        expression: Sequence[Node],
        results: Sequence[Node],
    ) -> None:
        """Set the values of nodes that user code refers to and that were computed with others.

        Their arrays drop the expression, unless it serves gradients by variables, or recomputation
        after a failure. Arrays of `results`, whose gradients exist, drop it like requested ones.
        """
        certain = bool(nodes) and self._is_certain(expression)
        for node in nodes:
            can_drop = certain and (not node.reads_version or node in results)
            array = node.user_array() if can_drop and node.user_array is not None else None
            if array is not None and array.node is node:
                array.set_known(known[node])
                continue
            set_value(node, known[node])
            donated = self.pool.is_inline or certain  # a written value cannot be recomputed
            if not (donated and node.operation.overwrites_first):
                self._intermediates.add(node)

    def _is_certain(self, expression: Sequence[Node]) -> bool:
        """Return True if the run of an expression cannot fail for its data, and neither can a run
        on which it depends."""
        if any_pending_fallible(expression):
            return False
        if not self.has_uncertain_runs:
            return True
        given = [
            remote_array_of(x)
            for x in expression
            if x.operation is INPUT or (x.value is not None and not x.is_leaf)
        ]
        return not any(
            x.has_failed or (x.origin is not None and x.origin.is_pending) for x in given
        )

    def forget_failed(self) -> list[Node]:
        """Drop intermediate values of failed runs, so that they are computed again on use; return
        their nodes."""
        return self._intermediates.forget_failed()

    def with_copies(self, graph: Graph, *, make: bool) -> Graph:
        """Return the graph with redistributed copies in place of arrays that it only redistributes.

        Uses cached copies; with `make`, also makes missing copies and caches them.
        """
        if self.environment.workers == 1:
            return graph
        new: dict[Node, Node] = {}
        for position, layout in self._needed_copies.of(graph, self.environment):
            leaf = graph.leaves[position]
            if leaf in graph.targets:
                continue
            if make:
                new[leaf] = self.redistributed(redistribute(leaf, layout))
            elif (copy := self.copies.find(remote_array_of(leaf), layout)) is not None:
                new[leaf] = leaf_of(copy)
        return graph.substituted(new) if new else graph

    def redistributed(self, node: Node, *, asynchronous: bool = False) -> Node:
        """Return the leaf of a copy of an array in another layout: a cached copy or a new one.

        With `asynchronous`, the workers make a new copy concurrently with their next commands.
        """
        source, layout = remote_array_of(node.inputs[0]), node.layout
        assert layout is not None
        copy = self.copies.find(source, layout)
        if copy is None:
            graph = self.cut(Graph((node,)))
            (copy,), _ = self.run(self.compile(graph), graph.leaves, asynchronous=asynchronous)
            if self.environment.workers > 1:
                self.copies.keep(source, layout, copy, self.pool.array_bytes)
        leaf = leaf_of(copy)
        record_provenance({node: leaf}, [*node.inputs, node], ())
        return leaf

    def note_update(self, array: Pending, node: Node) -> None:
        """Register an array after an update in place: a later evaluation of other arrays may
        compute it in the same program. Small arrays are computed when they are read."""
        signature = node.signature
        if signature is not None and signature.nbytes > self.max_eager_bytes:
            self._joint.note_update(array)

    def note_gradients(self, gradients: Sequence[Pending], value: Pending) -> None:
        """Register the gradients of a function and its value: an evaluation of one gradient
        computes the others and the value in the same program."""
        if self.pool.memory_limit is None:
            self._joint.note_gradients(gradients, value)

    @property
    def _can_execute_eagerly(self) -> bool:
        """True if the worker of this process may compute small nodes without a program."""
        pool_can = self.pool.is_inline and not self.environment.deterministic
        return pool_can and self.profiler is None

    def is_executed_eagerly(self, node: Node) -> bool:
        """Return True if the worker of this process computes the node, and others of its size,
        without a program."""
        return self._can_execute_eagerly and node.nbytes <= self.max_eager_bytes

    def should_evaluate_now(self, own: Sequence[Node]) -> bool:
        """Return True if a written array, the first of `own`, should be computed at once.

        That is so if no live reference outside `own` could be differentiated later. A write that
        depends on an earlier pending write stays pending, and so do up to `EAGER_WRITES` operations
        with small writes, since one evaluation of them all is faster.
        """
        written = own[0]
        if self.is_executed_eagerly(written):
            if written.depth < EAGER_WRITES and is_small_write(written, self.max_eager_bytes):
                return False
        elif any(x.operation.overwrites_first and x.value is None for x in written.inputs[:1]):
            return False
        return is_unobservable(topological(own[:1], cut=True), own)

    def _eager_numbers(
        self, order: Sequence[Node], requested: Sequence[Node]
    ) -> dict[Node, int] | None:
        """Return the numbers of leaves and evaluated nodes if the nodes are computed eagerly.

        Returns None if a program computes them. Eager execution needs the worker of this process
        and small arrays, each whole on that worker. Raises TracingError for an argument of a
        function that is being traced.
        """
        pool, max_bytes = self.pool, self.max_eager_bytes
        small = self._can_execute_eagerly
        small &= not any(node.operation.is_leaf or node.operation is CONSTANT for node in requested)
        given: dict[Node, int] = {}
        for node in order:
            operation, value = node.operation, node.value
            if operation is SCALAR or operation is VARIABLE:
                if value is None or operation is VARIABLE:
                    raise no_value_error()
            elif not small:
                continue
            elif value is not None or operation.is_leaf:
                data = remote_array_of(node)
                small = data.layout.is_on_single_worker and data.nbytes <= max_bytes
                given[node] = data.number if data.pool is pool else self._checked(data).number
            else:
                small = node.nbytes <= max_bytes and operation is not REDISTRIBUTE
        return given if small else None

    def _execute_eagerly(
        self, order: Sequence[Node], requested: Sequence[Node], given: dict[Node, int]
    ) -> list[RemoteArray]:
        different = list(dict.fromkeys(requested))  # a mark and its value are the same node now
        outputs = self.pool.compute(order, different, given)
        note_bytes(self.max_eager_bytes * len(different))  # at most
        arrays = [
            RemoteArray(self.pool, number, node.shape, node.dtype, layout)
            for node, (number, layout) in zip(different, outputs, strict=True)
        ]
        if len(different) < len(requested):
            data = dict(zip(different, arrays, strict=True))
            arrays = [data[node] for node in requested]
        if self.pool.interrupts.count:
            self.pool.interrupt_point()
        return arrays

    def cut(self, graph: Graph, order: Sequence[Node] | None = None) -> Graph:
        """Return the graph with leaves in place of evaluated nodes.

        `order`, if it is known, holds the nodes that the outputs need, up to evaluated ones, in
        topological order.
        """
        new: dict[Node, Node] = {}
        known = None if order is None or any(graph.targets) else order
        for node in topological(graph.roots, cut=True) if known is None else known:
            if node.operation.is_leaf:
                new[node] = node
            elif node.value is not None:
                new[node] = node.value
            else:
                inputs = tuple([new[source] for source in node.inputs])
                new[node] = node.with_inputs(inputs)
        return graph.mapped(new)


def _is_pending(node: Node) -> bool:
    """Return True for a node without a computed value."""
    return node.value is None or node.operation is SCALAR


def _is_copy(node: Node) -> bool:
    """Return True for the redistribution of an evaluated array."""
    if node.operation is not REDISTRIBUTE or node.value is not None:
        return False
    source = node.inputs[0]
    return source.name == "input" or (not source.is_leaf and source.value is not None)
