"""Compiled functions that contain loops that are not unrolled: each call runs the programs of their
subgraphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, final

from magmath.api.creation import asarray
from magmath.arrays.array import Array
from magmath.arrays.tree import unflatten
from magmath.engine import session
from magmath.engine.lifetimes.pending_readers import register_reader
from magmath.engine.remote_array import RemoteArray
from magmath.engine.run_numbers import rollback_on_failure
from magmath.engine.traces.captured_arrays import Captures
from magmath.engine.traces.tracing import Trace
from magmath.graph import Graph, Node
from magmath.passes.subgraphs import contains_loop, without_versions
from magmath.transform.call_arguments import check_limits, integer_limits, update_arguments
from magmath.transform.rebound_items import ReboundItems
from magmath.transform.subgraph_programs import RepeatedProgram, SubgraphPrograms
from magmath.transform.traced_call import TracedCall

if TYPE_CHECKING:
    from magmath.diagnostics.explanation import Explanation


def is_divided(trace: Trace, roots: Sequence[Node]) -> bool:
    """Return True for a traced function of several programs: one with loops, or with random numbers
    that loops have drawn, also where the loops vanish, since their results are not used."""
    return bool(trace.computed_draws) or contains_loop(roots)


@final
class DividedSpecialization:
    """The programs of a function with loops, for arguments of certain shapes, types and layouts.

    Variables are read at the beginning of a call and assigned at its end, as by one program; then
    arguments are updated, after the last program has succeeded.
    """

    def __init__(self, traced: TracedCall, compile: Callable[..., Any]) -> None:
        self._traced, trace = traced, traced.trace
        self._draws = trace.computed_draws
        graph = Graph(tuple(traced.outputs))
        self._limits = integer_limits(graph, traced.position)
        self.captures = Captures(graph, traced.placeholders, movable=graph.leaves)
        self.captures.add_state(trace)
        roots = without_versions(graph.outputs, {x: x for x in traced.outside})
        count, last = len(traced.nodes), len(traced.nodes) + len(trace.assigned)
        variables = [trace.read[leaf] for leaf in trace.assigned]
        self._programs = SubgraphPrograms(
            [*roots[:count], *roots[last:]],
            traced.outside,
            compile,
            trace.read,
            dict(zip(variables, roots[count:last], strict=True)),
        )

    def run(self, values: Sequence[Any], arguments: Sequence[Any]) -> Any:
        """Run the programs; return the function's result."""
        traced, trace = self._traced, self._traced.trace
        check_limits(self._limits, values)
        leaf_values: dict[Node, Array] = {}
        for leaf, i in traced.position.items():
            is_array = isinstance(values[i], RemoteArray)
            leaf_values[leaf] = arguments[i] if is_array else asarray(values[i], dtype=leaf.dtype)
        engine = session.engine()
        modes = engine.modes.of_training() if trace.is_training_step else engine.modes
        with engine.in_modes(modes), rollback_on_failure():
            numbers = trace.numbers_of_run()
            leaf_values |= {leaf: asarray(x, dtype=leaf.dtype) for leaf, x in numbers.items()}
            return self._programs.run(leaf_values, partial(self._deliver, arguments))

    @property
    def updated(self) -> Sequence[int]:
        """The positions of the arguments that the function updates in place."""
        return self._traced.updated

    @property
    def rebound(self) -> Sequence[ReboundItems]:
        """The items of arguments that the function binds to other objects."""
        return self._traced.rebound

    @property
    def fast_path(self) -> None:
        """None: arguments are flattened at each call."""

    def explain(self) -> Explanation:
        """Return the explanation of the programs of the last call, each loop with one step."""
        return self._programs.explain()

    def programs(self) -> list[RepeatedProgram]:
        """Return the programs of the last call, in order."""
        return self._programs.programs()

    def _deliver(self, arguments: Sequence[Any], outputs: Sequence[Array]) -> Any:
        """Advance the generators, and update the arguments that the function updates in place;
        return its result."""
        traced = self._traced
        results, numbers_after = outputs[: len(traced.nodes)], outputs[len(traced.nodes) :]
        for draws, number in zip(self._draws, numbers_after, strict=True):
            draws.generator.skip_for_run(int(number) - draws.generator.next)
        count = len(results) - len(traced.updated)
        if traced.updated:
            leaves = [x.evaluated_leaf() for x in results[count:]]
            engine = session.engine()
            engine.runs.wait_for_fallible_run()
            update_arguments(engine, traced.updated, arguments, leaves)
        for x in results[:count] if traced.trace.read else ():
            x.keep_operands(x.evaluated_leaf())
            register_reader(x)
        if traced.tree is None:
            return results[0]
        return unflatten(traced.tree, results[:count])
