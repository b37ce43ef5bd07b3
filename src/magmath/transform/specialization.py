"""A specialization: the program of a compiled function for arguments of certain shapes, types and
layouts, and its runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, final

from magmath.arrays.array import Array
from magmath.arrays.tree import Tree, flatten, unflatten
from magmath.arrays.variables.variable import overwrite
from magmath.core.precision_state import PRECISION
from magmath.core.promotion import DEFAULT
from magmath.engine.engine import Engine
from magmath.engine.hoisted_values import HoistedGraph, HoistedValues, hoist
from magmath.engine.lifetimes.pending_readers import register_reader
from magmath.engine.programs.program_build import CompiledProgram
from magmath.engine.remote_array import RemoteArray, leaf_of, remote_array_of
from magmath.engine.repeated_runs import RepeatedRuns, ResultBuffers
from magmath.engine.run_numbers import rollback_on_failure
from magmath.engine.traces.captured_arrays import Captures
from magmath.engine.user_line import user_line
from magmath.graph import Graph, Node
from magmath.transform.call_arguments import (
    RequiredArgument,
    check_limits,
    integer_limits,
    is_array_or_number,
    required_argument,
    update_arguments,
)
from magmath.transform.call_chain import CallChain
from magmath.transform.call_provenance import ProvenanceTemplate
from magmath.transform.rebound_items import ReboundItems
from magmath.transform.subgraph_programs import RepeatedProgram
from magmath.transform.traced_call import TracedCall

if TYPE_CHECKING:
    from magmath.diagnostics.explanation import Explanation

NO_DATA: Mapping[Node, RemoteArray] = {}
NO_NUMBERS: Mapping[Node, float] = {}


@final
class Specialization:
    """The program of a function for certain shapes, types and layouts.

    It is made from a traced call with these values of arguments, of which `tree` is the nesting.
    `same` has for each argument the position of the first argument that is the same array; it is
    empty if all differ.
    """

    def __init__(
        self,
        engine: Engine,
        call: TracedCall,
        tree: Tree,
        same: Sequence[int],
        values: Sequence[Any],
    ) -> None:
        self.engine = engine
        self.floating, self.precision = DEFAULT.floating, PRECISION.value
        trace, position, traced = call.trace, call.position, call.graph()
        self.tree = call.tree
        self.updated: Sequence[int] = call.updated
        self.rebound: Sequence[ReboundItems] = call.rebound
        self._assigned = [trace.read[leaf] for leaf in trace.assigned]
        self._reads_variables = bool(trace.read)
        self._returns_one_array = self.tree is None and not (self._reads_variables or self.updated)
        """True if the result is one array that keeps no operands, and no argument changes."""
        self._trace = trace
        self._is_same_in_each_run = trace.is_same_in_each_run
        self._result_count = len(call.nodes) - len(self.updated)
        graph = self.engine.pending_graph(traced)
        self._hoisted: HoistedValues | None = None
        self._content_scalars: Mapping[Node, Node] = {}
        hoisted_graph = self._hoist(graph, position)
        if hoisted_graph is not None:
            graph, self._hoisted = hoisted_graph.graph, hoisted_graph.hoisted
            self._content_scalars = hoisted_graph.content_scalars
        modes = engine.modes.of_training() if trace.is_training_step else engine.modes
        compiled = engine.compile(graph, modes=modes)
        self.runs = RepeatedRuns(engine, compiled, graph, draws=not self._is_same_in_each_run)
        self._limits = integer_limits(traced, position)
        self._set_sources(graph, compiled, position, len(values))
        self._required = self._required_arguments(tree, same, values)
        """What `accepted_values` requires of the arguments; None if it accepts none."""
        self.takes_several_arrays = len([x for x in values if type(x) is RemoteArray]) > 1
        self.captures = Captures(traced, call.placeholders)
        self.captures.add_state(trace)
        kinds = None
        if self._required is not None and not any(graph.targets):
            kinds = [required.kind for required in self._required]
        self.provenance = ProvenanceTemplate(traced, position, call.outside, user_line(), kinds)

    def _required_arguments(
        self, tree: Tree, same: Sequence[int], values: Sequence[Any]
    ) -> list[RequiredArgument] | None:
        """Return the requirements of a call with arrays and numbers alone that changes nothing."""
        is_plain = (
            not (same or self.updated or self._assigned)
            and self._is_same_in_each_run
            and tree == flatten((tuple(values), {}))[1]
            and all(map(is_array_or_number, values))
        )
        return [required_argument(value) for value in values] if is_plain else None

    def _set_sources(
        self, graph: Graph, compiled: CompiledProgram, position: Mapping[Node, int], arguments: int
    ) -> None:
        """Set where the program's arrays and scalars come from: from the arguments at these
        positions, or from leaves."""
        leaves = graph.leaves
        self._array_sources = [position.get(leaves[i], leaves[i]) for i in compiled.inputs]
        self._scalar_sources = [position.get(leaves[i], leaves[i]) for i in compiled.scalars]
        self._fixed_scalars = [x.value for x in self._scalar_sources if isinstance(x, Node)]
        self._in_order = self._array_sources == list(range(arguments))
        has_fixed_scalars = (
            self._is_same_in_each_run
            and len(self._fixed_scalars) == len(self._scalar_sources)
            and not self._limits
        )
        self._takes_arrays = self._in_order and has_fixed_scalars and self._hoisted is None
        """True if the program's operands are the arguments, all of them arrays."""

    def explain(self) -> Explanation:
        """Return the explanation of the last run."""
        from magmath.diagnostics.explain import explain_program, explain_run

        runs = self.runs
        if runs.last is not None:
            return explain_run(runs.last)
        heading = "small, so computed in this process; larger arrays would be computed by"
        return explain_program(runs.compiled.program, self.engine.environment, heading=heading)

    def programs(self) -> list[RepeatedProgram]:
        """Return the program, which a call runs once."""
        return [RepeatedProgram(self.runs.compiled.program, 1)]

    @property
    def fast_path(self) -> Specialization | None:
        """Itself if calls need not flatten their arguments, otherwise None."""
        return None if self._required is None else self

    def _hoist(self, graph: Graph, position: Mapping[Node, int]) -> HoistedGraph | None:
        """Return the graph without the values that are the same in each call, which are hoisted.

        None for a function that assigns variables, or draws random numbers.
        """
        if self._assigned or self.updated or not self._is_same_in_each_run:
            return None
        return hoist(self.engine, graph, position)

    def accepted_values(self, args: tuple[Any, ...]) -> list[Any] | None:
        """Return the values of arguments for `run` if they are evaluated arrays and numbers like
        the traced ones, otherwise None.

        This is the fast path, which does not flatten the arguments.
        """
        required = self._required
        if required is None or len(args) != len(required) or not self.captures.is_current:
            return None
        values: list[Any] = []
        for passed, (kind, dtype, layout, text) in zip(args, required):  # noqa: B905  as many
            if type(passed) is not kind:
                return None
            argument: Any = passed
            if layout is None:
                if text is not None and repr(argument) != text:
                    return None
                values.append(argument)
                continue
            leaf = argument._leaf
            if leaf is not argument._node:  # an expression
                return None
            value = leaf.value
            if type(value) is not RemoteArray:  # it was made while a function was traced
                return None
            if (value.layout is not layout and value.layout != layout) or value.dtype is not dtype:
                return None
            values.append(value)
        return values

    def run_again(self, chain: CallChain, arguments: Sequence[Any]) -> Any:
        """Run the program for a call that continues a chain; return the function's result."""
        inputs: Sequence[RemoteArray] = chain.values
        chain.values = []  # which would keep the arrays
        numbers: Sequence[Any] = self._fixed_scalars
        if not self._takes_arrays:
            check_limits(self._limits, inputs)
            numbers, hoisted = self._scalars_and_hoisted(inputs, NO_NUMBERS)
            inputs = self._input_arrays(inputs, hoisted)
        results = self.runs.run(inputs, numbers)
        self.provenance.store_continued(results.leaves, chain, arguments)
        returned = (
            Array(results.leaves[0])
            if self._returns_one_array
            else self._deliver(results.leaves, arguments)
        )
        self.runs.offer_for_reuse(results)
        return returned

    def run(self, values: Sequence[Any], arguments: Sequence[Any]) -> Any:
        """Run the program with the values of other arguments; return the function's result."""
        check_limits(self._limits, values)
        drawn = NO_NUMBERS if self._is_same_in_each_run else self._trace.numbers_of_run()
        numbers: Sequence[Any] = self._fixed_scalars
        hoisted = NO_DATA
        if not self._takes_arrays:
            numbers, hoisted = self._scalars_and_hoisted(values, drawn)
        operands = self.provenance.operands(arguments)
        if self._assigned:
            # Variables and arguments change together, or not at all.
            with self.engine.pool.defer_interrupts() if self.updated else nullcontext():
                new_data, self.runs.last = overwrite(
                    self._assigned,
                    lambda: self.engine.runs.start(
                        self.runs.compiled, self._input_arrays(values), numbers
                    ),
                    can_fail=self.runs.compiled.can_fail(numbers),
                )
                leaves = [leaf_of(data) for data in new_data]
                self.provenance.store(leaves, operands, arguments, drawn)
                return self._deliver(leaves, arguments)
        inputs = values if self._in_order else self._input_arrays(values, hoisted)
        if self._is_same_in_each_run and not self.updated:
            results = self.runs.run(inputs, numbers)
        else:
            results = self._run_with_effects(inputs, numbers)
        self.provenance.store(results.leaves, operands, arguments, drawn)
        returned = self._deliver(results.leaves, arguments)
        self.runs.offer_for_reuse(results)
        return returned

    def _run_with_effects(
        self, inputs: Sequence[RemoteArray], numbers: Sequence[Any]
    ) -> ResultBuffers:
        """Run a program that takes numbers from counters, or whose results replace arguments. If it
        fails, it gives the numbers back."""
        with nullcontext() if self._is_same_in_each_run else rollback_on_failure():
            if self.updated:
                self.engine.runs.wait_for_fallible_run()
            results = self.runs.run(inputs, numbers)
            if self.updated:
                self.engine.runs.wait_for_fallible_run()
            return results

    def _scalars_and_hoisted(
        self, values: Sequence[Any], drawn: Mapping[Node, float]
    ) -> tuple[Sequence[Any], Mapping[Node, RemoteArray]]:
        """Return the scalars of a call, and the hoisted values, which are the same in each call."""
        numbers: Sequence[Any] = self._fixed_scalars
        if drawn or len(numbers) < len(self._scalar_sources):
            numbers = [
                values[x] if isinstance(x, int) else drawn.get(x, x.value)
                for x in self._scalar_sources
            ]
        hoisted: Mapping[Node, RemoteArray] = {}
        if self._hoisted is not None:
            hoisted = self._hoisted.data()
            numbers = self._with_content_ids(numbers, hoisted)
        return numbers, hoisted

    def _input_arrays(
        self, values: Sequence[Any], hoisted: Mapping[Node, RemoteArray] = NO_DATA
    ) -> list[RemoteArray]:
        """Return the input arrays of the program, in order."""
        return [
            values[x] if isinstance(x, int) else hoisted.get(x) or remote_array_of(x)
            for x in self._array_sources
        ]

    def _with_content_ids(
        self, numbers: Sequence[Any], hoisted: Mapping[Node, RemoteArray]
    ) -> Sequence[Any]:
        """Return the scalars of a call with the content ids of the arrays that it reads."""
        if not self._content_scalars:
            return numbers
        leaves = list(self._content_scalars.values())
        data = [hoisted.get(leaf) or remote_array_of(leaf) for leaf in leaves]
        content_ids = self.engine.runs.content_ids_of(data)
        id_of_scalar = dict(zip(self._content_scalars, content_ids, strict=True))
        return [
            id_of_scalar.get(x, number) if isinstance(x, Node) else number
            for x, number in zip(self._scalar_sources, numbers, strict=True)
        ]

    def _deliver(self, leaves: Sequence[Node], arguments: Sequence[Any]) -> Any:
        """Update the arguments that the function updates in place; return its result."""
        if self.updated:
            update_arguments(self.engine, self.updated, arguments, leaves[self._result_count :])
        if self.tree is None:
            return self._returned_array(leaves[0]) if self._reads_variables else Array(leaves[0])
        results = [self._returned_array(leaf) for leaf in leaves[: self._result_count]]
        return unflatten(self.tree, results)

    def _returned_array(self, leaf: Node) -> Array:
        """Return a result of a call as an array."""
        array = Array(leaf)
        if self._reads_variables:
            array.keep_operands(leaf)
            register_reader(array)
        return array
