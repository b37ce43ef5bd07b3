"""A call of a compiled function, traced for arguments of certain shapes, types and layouts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, final

import numpy as np

from magmath.arrays.array import Array, as_array
from magmath.arrays.indexing.masked_elements import MaskedElements
from magmath.arrays.inputs.number_list import is_number
from magmath.arrays.traced_scalar import NumberNeeded
from magmath.arrays.tree import Tree, flatten, unflatten
from magmath.engine.traces import tracing
from magmath.engine.traces.tracing import Trace
from magmath.errors import OptionError
from magmath.graph import Graph, Node, apply, collecting_new_nodes, topological
from magmath.ops import elementwise as e
from magmath.transform.call_arguments import placeholder_of, traced_arguments
from magmath.transform.python_effects import PythonEffects
from magmath.transform.rebound_items import ArgumentContainers, ReboundItems


@final
class TracedCall:
    """The expressions that a function returns and assigns, traced with arguments like these values.

    `tree` is the nesting of the arguments, and `same` their first occurrences (`Specialization`).

    placeholders   the leaves of the arguments; None for an argument that is no array or number
    position       the positions of the arguments by their placeholders
    trace          the variables and random numbers that the function uses
    nodes          the results, then the new values of arguments that are updated in place
    updated        the positions of these arguments
    rebound        the items of arguments that the function binds to other objects
    tree           the nesting of the results; those for `rebound` follow as a list
    needed         the positions of number arguments whose values the function needs to be traced;
                   then tracing has ended there, and there are no results
    uncompared     labels of the objects that it reads and that are too large to be compared
    outside        the pending nodes that it reads from outside, other than arguments. The
                   provenance refers to these nodes themselves: rebuilt copies would not be
                   connected to the array that the user differentiates by
    """

    def __init__(
        self,
        function: Callable[..., Any],
        tree: Tree,
        same: Sequence[int],
        values: Sequence[Any],
    ) -> None:
        self.placeholders = [placeholder_of(value) for value in values]
        self.position = {leaf: i for i, leaf in enumerate(self.placeholders) if leaf}
        self.trace = Trace(can_loop=True)
        self.needed: set[int] = set()
        pairs = zip(self.placeholders, values, strict=True)
        objects = tuple([value for leaf, value in pairs if leaf is None])
        effects = PythonEffects("compile", _name_of(function), function, arguments=objects)
        try:
            with tracing.tracing(self.trace), collecting_new_nodes() as new_nodes:
                arguments = traced_arguments(self.placeholders, values, same)
                traced = _trace(function, unflatten(tree, arguments), arguments)
        except NumberNeeded as error:
            if not error.leaves or not error.leaves.issubset(self.position):
                raise
            self.needed = {self.position[leaf] for leaf in error.leaves}
            return
        del arguments
        self.nodes, self.tree, self.updated, self.rebound = traced
        self.trace.check_effects("compile")
        nodes = set(topological(self.outputs, pending=True))
        self.uncompared = effects.add_reads_to(self.trace, nodes)
        self.outside = _outside(self.outputs, new_nodes)

    @property
    def outputs(self) -> list[Node]:
        """The results, the values that are assigned to variables, and the numbers of the streams
        that follow those drawn by loops."""
        numbers = [draws.number for draws in self.trace.computed_draws]
        return [*self.nodes, *self.trace.assigned.values(), *numbers]

    def graph(self) -> Graph:
        """Return the graph of the results and of the values that are assigned to variables."""
        targets = tuple(self.trace.assigned)
        results = [
            apply(e.ASTYPE, node, dtype=node.dtype) if node in targets else node
            for node in self.nodes
        ]
        return Graph(
            (*results, *self.trace.assigned.values()),
            (*[None for _ in self.nodes], *targets) if targets else (),
        )


def _outside(outputs: Sequence[Node], new_nodes: Collection[Node]) -> set[Node]:
    """Return the pending nodes that existed before tracing, and depend on no argument, variable or
    scalar."""
    without_value = set[Node]()
    order = topological(outputs, pending=True)
    for node in order:
        if node.is_leaf:
            is_known = node.value is not None and node.name != "variable"
        else:
            is_known = node.value is not None or without_value.isdisjoint(node.inputs)
        if not is_known:
            without_value.add(node)
    pending = [node for node in order if node.inputs and node.value is None]
    return {node for node in pending if node not in new_nodes and node not in without_value}


def _name_of(function: Any) -> str:
    """Return how messages name a function."""
    return str(getattr(function, "__qualname__", type(function).__name__))


def result_array(function: Callable[..., Any], value: Any) -> Array:
    """Return a result as an array; numbers and NumPy's arrays are the same in each call."""
    if isinstance(value, Array):
        return value
    if is_number(value) or isinstance(value, (np.ndarray, np.generic)):
        return as_array("compile", value)
    if type(value) is MaskedElements:
        raise value.refuse("a result")
    raise OptionError(
        f"compile: {function!r} must return arrays and numbers, lists, tuples and dictionaries of "
        f"them, or None; it returned a {type(value).__name__}"
    )


def _trace(
    function: Callable[..., Any], arguments: Any, leaves: Sequence[Any]
) -> tuple[list[Node], Tree, list[int], list[ReboundItems]]:
    """Trace a function; return the nodes of its results, their nesting, the positions of arguments
    that it updates in place, and the items that it binds. The nodes of updated arguments follow
    those of the results."""
    before = [x.node if type(x) is Array else None for x in leaves]
    containers, (args, kwargs) = ArgumentContainers(arguments), arguments
    value = function(*args, **kwargs)
    rebound, items = containers.rebound()
    results, returned = flatten((value, items) if rebound else value)
    outputs = [result_array(function, value) for value in results]
    updated = [i for i, x in enumerate(leaves) if type(x) is Array and x.node is not before[i]]
    nodes = [x.node for x in (*outputs, *[leaves[i] for i in updated])]
    return nodes, returned, updated, rebound
