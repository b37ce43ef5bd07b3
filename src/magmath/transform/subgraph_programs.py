"""Functions that contain loops, run as several programs. The controller repeats the program of a
step of `while_loop` until its truth value is false; all steps of other loops are one run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, final

from magmath.arrays.array import Array
from magmath.arrays.lazy_array import evaluate
from magmath.arrays.variables.variable import Variable, assign
from magmath.diagnostics.explain import explain_program
from magmath.engine import session
from magmath.graph import Node
from magmath.graph.graph import substituted
from magmath.ops.counted_loops import scan_results
from magmath.ops.while_loops import WHILE, LoopBody
from magmath.passes.subgraphs import Subgraph, subgraphs, with_shared_loops

if TYPE_CHECKING:
    from magmath.diagnostics.explanation import Explanation
    from magmath.program.instructions import Program

NOTHING: Mapping[Any, Any] = MappingProxyType({})
Delivered = TypeVar("Delivered")
Compile = Callable[[Callable[..., Any]], Any]
"""A function that compiles a function of arrays; see `CompiledPart`."""


@final
class RepeatedProgram(NamedTuple):
    """A program, and how many times in a row the last call of a function has run it: more than once
    if it is the body of a loop."""

    program: Program
    times: int


class _Code(Protocol):
    """A compiled function, or the program of a loop."""

    def explain(self) -> Explanation:
        """Return the explanation of the last call."""

    def programs(self) -> list[RepeatedProgram]:
        """Return the programs of the last call, in order."""


class CompiledPart(_Code, Protocol):
    """A compiled function of arrays."""

    def __call__(self, *arrays: Array) -> list[Array]:
        """Return the results for these arrays."""


@final
class SubgraphPrograms:
    """The programs of a function with loops.

    outputs    its results, expressions without versions of variables
    outside    the pending nodes that it reads from outside
    variables  the variables that it reads, by their leaves
    assigned   the new values of variables, which the last program assigns
    """

    def __init__(
        self,
        outputs: Sequence[Node],
        outside: Collection[Node],
        compile: Compile,
        variables: Mapping[Node, Variable],
        assigned: Mapping[Variable, Node],
    ) -> None:
        roots = with_shared_loops([*outputs, *assigned.values()])
        self._outputs, following = roots[: len(outputs)], roots[len(outputs) :]
        self._variables = variables
        *parts, last = subgraphs(roots, outside)
        self._parts = [_Part(x, x.outputs, compile, variables, {}) for x in parts]
        returned = [x for x in last.outputs if x in self._outputs]
        assigned = dict(zip(assigned, following, strict=True))
        self._parts.append(_Part(last, returned, compile, variables, assigned))
        needed = set(self._outputs)
        for part in reversed(self._parts):
            part.kept = set(needed)
            needed.update(part.reads)

    def run(
        self, leaf_values: Mapping[Node, Array], deliver: Callable[[list[Array]], Delivered]
    ) -> Delivered:
        """Run the programs for these values of the other leaves; return what `deliver` returns for
        the outputs.

        The last program assigns the variables. From there on Ctrl-C is deferred: they change
        together with what `deliver` changes, or not at all.
        """
        before = {x: Array(v.node) for x, v in self._variables.items() if x in self._outputs}
        values = {**leaf_values, **self._variables}  # through which gradients find the variables
        *parts, last = self._parts
        for part in parts:
            values |= part.run(values)
            values = {node: values[node] for node in values if node in part.kept}
        with session.engine().pool.defer_interrupts():
            values |= last.run(values)
            outputs = [_value(x, before, values) for x in self._outputs]
            return deliver([Array(x.node) for x in outputs])  # an argument may be among them

    def explain(self) -> Explanation:
        """Return the explanation of the programs of the last run, each loop with one step."""
        from magmath.diagnostics.explanation import Explanation

        parts = [call.code.explain() for part in self._parts for call in part.called]
        return Explanation(
            instructions=tuple([x for part in parts for x in part.instructions]),
            heading=f"{len(parts)} programs in order; that of a loop is listed once",
            temporaries=max((part.temporaries for part in parts), default=0),
            memory=max((part.memory for part in parts), default=0),
            machine=parts[0].machine if parts else "",
        )

    def programs(self) -> list[RepeatedProgram]:
        """Return the programs of the last run, in order; none before the first one."""
        called = [call for part in self._parts for call in part.called]
        return [
            RepeatedProgram(x.program, x.times * call.times)
            for call in called
            for x in call.code.programs()
        ]


@final
class _RepeatedCall(NamedTuple):
    """Code that the last run of a part has called, so many times in a row."""

    code: _Code
    times: int


@final
class _Part:
    """A subgraph, and the programs of it and of its loop.

    outputs   the nodes whose values it returns
    assigned  the new values of variables, which it assigns
    reads     the nodes whose values it needs
    kept      the nodes whose values later parts need
    called    the calls of the last run, in order
    """

    def __init__(
        self,
        subgraph: Subgraph,
        outputs: Sequence[Node],
        compile: Compile,
        variables: Mapping[Node, Variable],
        assigned: Mapping[Variable, Node],
    ) -> None:
        self._subgraph, self._outputs = subgraph, outputs
        self.kept: set[Node] = set()
        self.called: list[_RepeatedCall] = []
        earlier = [x for x in assigned.values() if x not in subgraph.outputs]
        self.reads = list(dict.fromkeys([*subgraph.inputs, *earlier]))
        self._arguments = [x for x in self.reads if x not in variables]
        owned = {x: variables[x] for x in self.reads if x in variables}
        self._program: CompiledPart | None = None
        if outputs or assigned:
            self._program = compile(_function(self._arguments, outputs, owned, assigned))
        self._step: CompiledPart | None = None
        if subgraph.loop is not None:
            self.reads += subgraph.loop.inputs
        if subgraph.loop is not None and subgraph.loop.operation is WHILE:
            body: LoopBody = subgraph.loop.attributes["body"]
            read = (*body.states, *body.captured)
            self._step = compile(_function(read, (body.goes_on, *body.following)))

    def run(self, known: Mapping[Node, Array]) -> dict[Node, Array]:
        """Return the values of the subgraph's outputs, and the results of its loop."""
        subgraph, computed = self._subgraph, dict[Node, Array]()
        self.called.clear()
        if self._program is not None:
            self.called.append(_RepeatedCall(self._program, 1))
            values = self._program(*[_value(x, known) for x in self._arguments])
            computed = dict(zip(self._outputs, values, strict=True))
        if subgraph.loop is not None:
            read = [_value(x, computed, known) for x in subgraph.loop.inputs]
            if self._step is None:
                results = _results_of_all_steps(subgraph.loop, read)
                program = session.engine().loops.last
                assert program is not None
                code = _CountedLoop(program, subgraph.loop.attributes["steps"])
                self.called.append(_RepeatedCall(code, 1))
            else:
                results = self._final_states(read, len(subgraph.loop.attributes["body"].states))
            computed |= {x: results[x.attributes["index"]] for x in subgraph.results}
        return computed

    def _final_states(self, read: list[Array], count: int) -> list[Array]:
        """Run the loop, for the values of its inputs; it has `count` states."""
        goes_on, states, captured = read[0], read[1 : 1 + count], read[1 + count :]
        read.clear()  # a step may reuse the memory of the states before it
        assert self._step is not None
        steps = 0
        while goes_on:
            goes_on, *states = self._step(*states, *captured)
            steps += 1
        if steps:
            self.called.append(_RepeatedCall(self._step, steps))
        return states


@final
@dataclass(frozen=True)
class _CountedLoop:
    """The program of a step of a loop with a fixed number of steps."""

    program: Program
    steps: int

    def explain(self) -> Explanation:
        """Return the explanation of one step."""
        return explain_program(self.program, session.engine().environment)

    def programs(self) -> list[RepeatedProgram]:
        """Return the program with its number of steps."""
        return [RepeatedProgram(self.program, self.steps)]


def _results_of_all_steps(loop: Node, read: Sequence[Array]) -> list[Array]:
    """Run a loop with a fixed number of steps, for the values of its inputs."""
    engine = session.engine()
    evaluate(*read)
    results = scan_results(
        loop.attributes["body"], loop.attributes["steps"], [x.node for x in read], loop.line,
        reverse=loop.attributes["reverse"],
    )  # fmt: skip
    return [Array(leaf) for leaf in engine.loops.recorded_results(results)]


def _value(node: Node, *computed: Mapping[Node, Array]) -> Array:
    """Return the value of a node; one from outside of the function refers to it itself."""
    candidates = [values[node] for values in computed if node in values]
    return candidates[0] if candidates else Array(node)


def _function(
    inputs: Sequence[Node],
    outputs: Sequence[Node],
    variables: Mapping[Node, Variable] = NOTHING,
    assigned: Mapping[Variable, Node] = NOTHING,
) -> Callable[..., list[Array]]:
    """Return the function of arrays that computes the outputs from the inputs and from variables by
    their leaves, and assigns new values to variables."""

    def function(*arrays: Array) -> list[Array]:
        images = dict(zip(inputs, [x.node for x in arrays], strict=True))
        images |= {leaf: v.node for leaf, v in variables.items()}
        results = substituted([*outputs, *assigned.values()], images)
        count = len(outputs)
        if assigned:
            assign(list(zip(assigned, results[count:], strict=True)))
        return [Array(node) for node in results[:count]]

    return function
