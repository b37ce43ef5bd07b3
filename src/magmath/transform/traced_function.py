"""Tracing of functions into graphs of their arguments, for transformations and control flow.

The function is called once, with placeholders for its arguments. Everything else that it reads,
variables and random numbers included, becomes part of the surrounding expression. Assignments to
variables are part of the result; the caller applies them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar, final

from magmath.api.creation import asarray
from magmath.arrays.array import Array, as_array
from magmath.arrays.inputs.number_list import is_number
from magmath.arrays.tree import Tree, flatten, unflatten
from magmath.arrays.variables.variable import Variable, assign
from magmath.batching import BatchOperand, batched
from magmath.core.dtypes import DType
from magmath.engine import session
from magmath.engine.traces import tracing
from magmath.engine.traces.drawn_streams import StreamPosition
from magmath.engine.traces.tracing import Scope
from magmath.errors import TracingError
from magmath.graph import Node, Shape, topological
from magmath.graph.graph import substituted
from magmath.ops.leaves import input_leaf
from magmath.passes.subgraphs import frontier, with_shared_loops

Result = TypeVar("Result", Node, BatchOperand)


def placeholder(shape: Shape, dtype: DType) -> Node:
    """Return a leaf without a value, for an argument of a traced function."""
    return input_leaf(shape, dtype, session.engine().environment.replicated(shape), None)


@final
class ClosureConversion(NamedTuple):
    """The outputs of a function as expressions of its arguments alone: what it captures is an
    argument too.

    captured      what it reads that does not depend on its own arguments
    placeholders  the arguments that stand for these
    outputs       the outputs, in which they do
    """

    captured: list[Node]
    placeholders: list[Node]
    outputs: list[Node]


def closure_converted(
    outputs: Sequence[Node],
    arguments: Collection[Node],
    dependent_nodes: Container[Node] | None = None,
) -> ClosureConversion:
    """Return outputs that capture nothing, as JAX's `closure_convert` makes them;
    `dependent_nodes`, if given, contains all nodes that depend on the arguments."""
    captured = frontier(outputs, arguments, dependent_nodes)
    placeholders = [placeholder(x.shape, x.dtype) for x in captured]
    images = substituted(outputs, dict(zip(captured, placeholders, strict=True)))
    return ClosureConversion(captured, placeholders, images)


@final
@dataclass(frozen=True)
class TracedFunction:
    """The results of a traced function, as expressions of placeholders.

    tree      the structure of the results
    results   the nodes of the results
    assigned  the variables that the function assigns, and the nodes of their new values
    drawn     the stream numbers of the random numbers that it draws
    moved     the positions in streams that its loops have moved
    """

    tree: Tree
    results: Sequence[Node]
    assigned: Mapping[Variable, Node]
    drawn: Sequence[Node]
    moved: Sequence[StreamPosition]

    def unflattened(self, results: Sequence[Any]) -> Any:
        """Return one object per result, nested as the function nests its results."""
        return unflatten(self.tree, results)

    def applied(self, images: Mapping[Node, Node]) -> tuple[list[Node], dict[Variable, Node]]:
        """Return the results and new values of variables with these nodes instead of the
        placeholders."""
        nodes = substituted(self._outputs, images)
        return self._take_results(nodes, nodes)

    def batched(
        self, images: Mapping[Node, Node], size: int
    ) -> tuple[list[BatchOperand], dict[Variable, BatchOperand]]:
        """Return the results and new values of variables for a batch of `size` examples; `images`
        maps nodes of one example to those of the batch."""
        roots = with_shared_loops([*self._outputs, *self.drawn])
        count = len(self._outputs)
        outputs = batched(roots[:count], images, roots[count:], size)
        return self._take_results(outputs, [x.node for x in outputs])

    def check_reads(self, name: str) -> None:
        """Raise TracingError if the function reads a variable after it has assigned it: outside of
        compiled functions an assignment computes the new value, which depends on placeholders."""
        if tracing.current() is not None:
            return
        for node in topological(self._outputs, pending=True):
            if node.operation.is_version and node.value is None:
                read = next(v.name for v in self.assigned if v.leaf is node.inputs[0])
                raise TracingError(
                    f"{name}: the function reads variable {read} after it has assigned it, as a "
                    f"BatchNorm that is called twice does; {name} can do this only in a function "
                    f"that mm.compile compiles"
                )

    @property
    def _outputs(self) -> list[Node]:
        numbers = [position.number for position in self.moved]
        return [*self.results, *self.assigned.values(), *numbers]

    def _take_results(
        self, values: Sequence[Result], nodes: Sequence[Node]
    ) -> tuple[list[Result], dict[Variable, Result]]:
        """Return the results and the new values of variables among values of the outputs; continue
        the streams that loops have moved."""
        first, last = len(self.results), len(self.results) + len(self.assigned)
        for position, number in zip(self.moved, nodes[last:], strict=True):
            position.move(number)
        return list(values[:first]), dict(zip(self.assigned, values[first:last], strict=True))


def trace_function(
    name: str,
    function: Callable[..., Any],
    tree: Tree,
    leaves: Sequence[Any],
    scope: Scope | None = None,
) -> TracedFunction:
    """Trace a function of positional arguments, given as a tree of leaves.

    Leaves that are nodes reach the function as arrays, other leaves unchanged. `name` is the public
    name of the transformation, for errors. `scope` records the effects of the function; by default
    it is one for a function without a `while_loop` that is no branch of `cond`.
    Raises TypeError if the function returns anything but arrays and numbers, TracingError if it
    updates in place an array that exists outside of it.
    """
    with tracing.tracing(Scope() if scope is None else scope) as scope:
        arguments = [Array(leaf) if isinstance(leaf, Node) else leaf for leaf in leaves]
        nodes, returned = result_nodes(name, function, function(*unflatten(tree, arguments)))
    del arguments
    scope.check_effects(name)
    assigned = {scope.read[leaf]: value.inputs[1] for leaf, value in scope.assigned.items()}
    return TracedFunction(returned, nodes, assigned, scope.drawn, list(scope.moved))


def result_nodes(name: str, function: Callable[..., Any], returned: Any) -> tuple[list[Node], Tree]:
    """Return the nodes of the results of a function, and their structure.

    Raises TypeError, with the public name of the transformation, if it returned anything but arrays
    and numbers.
    """
    results, tree = flatten(returned)
    return [_result(name, function, result) for result in results], tree


def _result(name: str, function: Callable[..., Any], value: Any) -> Node:
    if is_number(value):
        return asarray(value).node
    if isinstance(value, (str, bytes)) or callable(value):
        raise TypeError(
            f"{name}: {_name_of(function)} must return arrays, or lists, tuples and dictionaries "
            f"of arrays; it returned {value!r}"
        )
    return as_array(name, value).node


def _name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", repr(function))


def assign_all(assigned: Mapping[Variable, Node]) -> None:
    """Assign new values to variables."""
    if assigned:
        assign(list(assigned.items()))
