"""Functions that contain loops, run as several programs. The controller repeats the program of a
step of `while_loop` until its truth value is false; all steps of other loops are one run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from magmath.arrays.array import Array
from magmath.arrays.lazy_array import evaluate
from magmath.diagnostics.explain import explain_program
from magmath.engine import session
from magmath.graph import Node
from magmath.graph.provenance.rebuild import rebuilt
from magmath.ops.counted_loops import scan_results
from magmath.ops.while_loops import WHILE, LoopBody
from magmath.passes.subgraphs import Subgraph, subgraphs, with_shared_loops

if TYPE_CHECKING:
    from magmath.diagnostics.explanation import Explanation
    from magmath.program.instructions import Program

Compile = Callable[[Callable[..., Any]], Callable[..., Any]]
CompiledPart = Callable[..., list[Array]]


@final
class SubgraphPrograms:
    """The programs of a function with loops, for expressions without versions of variables.

    `outside` are the pending nodes that it reads from outside.
    """

    def __init__(
        self, outputs: Sequence[Node], outside: Collection[Node], compile: Compile
    ) -> None:
        outputs = self._outputs = with_shared_loops(outputs)
        self._parts = [_Part(subgraph, compile) for subgraph in subgraphs(outputs, outside)]
        needed = set(outputs)
        for part in reversed(self._parts):
            part.kept = set(needed)
            needed.update(part.reads)

    def run(self, given: Mapping[Node, Array]) -> list[Array]:
        """Return the outputs, for these values of the leaves."""
        known = dict(given)
        for part in self._parts:
            known |= part.run(known)
            known = {node: known[node] for node in known if node in part.kept}
        return [
            Array(_value(x, known).node) for x in self._outputs
        ]  # an argument may be among them

    @property
    def called(self) -> list[Any]:
        """The compiled functions that the last run has called, in order."""
        return [program for part in self._parts for program in part.called]


@final
class _Part:
    """A subgraph, and the programs of it and of its loop.

    `reads` are the nodes whose values it needs, `kept` those whose values later parts need.
    `called` are the programs that the last run has called.
    """

    def __init__(self, subgraph: Subgraph, compile: Compile) -> None:
        self._subgraph = subgraph
        self.kept: set[Node] = set()
        self.called: list[Any] = []
        self._program = compile(_function(subgraph.inputs, subgraph.outputs))
        self._step: CompiledPart | None = None
        self.reads = list(subgraph.inputs)
        if subgraph.loop is not None:
            self.reads += subgraph.loop.inputs
        if subgraph.loop is not None and subgraph.loop.operation is WHILE:
            body: LoopBody = subgraph.loop.attributes["body"]
            read = (*body.states, *body.captured)
            self._step = compile(_function(read, (body.goes_on, *body.following)))

    def run(self, known: Mapping[Node, Array]) -> dict[Node, Array]:
        """Return the values of the subgraph's outputs, and the results of its loop."""
        subgraph, found = self._subgraph, dict[Node, Array]()
        self.called.clear()
        if subgraph.outputs:
            self.called.append(self._program)
            values = self._program(*[_value(x, known) for x in subgraph.inputs])
            found = dict(zip(subgraph.outputs, values, strict=True))
        if subgraph.loop is not None:
            read = [_value(x, found, known) for x in subgraph.loop.inputs]
            if self._step is None:
                results = _results_of_all_steps(subgraph.loop, read)
                self.called.append(_ExplainedLoop(session.engine().loops.last))
            else:
                results = self._final_states(read, len(subgraph.loop.attributes["body"].states))
            found |= {x: results[x.attributes["index"]] for x in subgraph.results}
        return found

    def _final_states(self, read: list[Array], count: int) -> list[Array]:
        """Run the loop, for the values of its inputs; it has `count` states."""
        goes_on, states, captured = read[0], read[1 : 1 + count], read[1 + count :]
        read.clear()  # a step may reuse the memory of the states before it
        assert self._step is not None
        if goes_on:
            self.called.append(self._step)
        while goes_on:
            goes_on, *states = self._step(*states, *captured)
        return states


@final
@dataclass(frozen=True)
class _ExplainedLoop:
    """The program of a loop with a fixed number of steps, for explanations."""

    program: Program | None

    def explain(self) -> Explanation:
        """Return the explanation of the program."""
        assert self.program is not None
        return explain_program(self.program, session.engine().environment)


def _results_of_all_steps(loop: Node, read: Sequence[Array]) -> list[Array]:
    """Run a loop with a fixed number of steps, for the values of its inputs."""
    engine = session.engine()
    evaluate(*read)
    results = scan_results(
        loop.attributes["body"], loop.attributes["steps"], [x.node for x in read], loop.line,
        reverse=loop.attributes["reverse"],
    )  # fmt: skip
    return [Array(leaf) for leaf in engine.loops.recorded_results(results)]


def _value(node: Node, *known: Mapping[Node, Array]) -> Array:
    """Return the value of a node; one from outside of the function refers to it itself."""
    found = [values[node] for values in known if node in values]
    return found[0] if found else Array(node)


def _function(inputs: Sequence[Node], outputs: Sequence[Node]) -> CompiledPart:
    """Return the function of arrays that computes the outputs from the inputs."""

    def function(*arrays: Array) -> list[Array]:
        given = dict(zip(inputs, [x.node for x in arrays], strict=True))
        return [Array(node) for node in rebuilt(outputs, given)]

    return function
