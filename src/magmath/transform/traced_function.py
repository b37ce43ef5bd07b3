"""A function of arrays as a graph of its arguments, for transformations and control flow.

The function is called once, with placeholders in place of its arguments. What it reads otherwise,
variables and random numbers included, is part of the surrounding expression at once; what it
assigns to variables is returned.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from magmath.api.creation import asarray
from magmath.array.array import Array, as_array
from magmath.array.number_list import is_number
from magmath.array.tree import flatten, unflatten
from magmath.array.variable import Variable, assign
from magmath.core.dtypes import DType
from magmath.engine import session
from magmath.engine.tracing import Scope, tracing
from magmath.graph import Node, Shape
from magmath.graph.rebuild import rebuilt
from magmath.ops.leaves import input_leaf


def placeholder(shape: Shape, dtype: DType) -> Node:
    """A leaf without a value, for an argument of a function that is traced."""
    return input_leaf(shape, dtype, session.engine().environment.whole(shape), None)


NOTHING: Hashable = ("nothing",)
"""The tree of a function that returns None."""


@dataclass(frozen=True)
class TracedFunction:
    """The results of a function, as nodes of placeholders.

    tree      how the results are nested
    results   their nodes
    assigned  variables that the function assigns, with the nodes of their next values
    drawn     the numbers of the streams of random numbers that it draws
    """

    tree: Hashable
    results: Sequence[Node]
    assigned: Mapping[Variable, Node]
    drawn: Sequence[Node]

    def unflattened(self, results: Sequence[Any]) -> Any:
        """Something for each result, nested as the function nests its results."""
        return None if self.tree == NOTHING else unflatten(self.tree, results)

    def applied(self, given: Mapping[Node, Node]) -> tuple[list[Node], dict[Variable, Node]]:
        """The results, and the next values of variables, for nodes in place of placeholders."""
        nodes = rebuilt([*self.results, *self.assigned.values()], given)
        count = len(self.results)
        return nodes[:count], dict(zip(self.assigned, nodes[count:], strict=True))


def trace_function(
    name: str, function: Callable[..., Any], tree: Hashable, leaves: Sequence[Any]
) -> TracedFunction:
    """The graph of a function of positional arguments, a tree of these leaves.

    Leaves that are nodes reach the function as arrays, everything else as it is. `name` is the
    public name of the transformation, for errors. Raises TypeError where the function returns
    something else than arrays and numbers, MagmathError where it updates an array in place that
    exists outside of it.
    """
    with tracing(Scope()) as scope:
        given = [Array(leaf) if isinstance(leaf, Node) else leaf for leaf in leaves]
        results, returned = _flattened(function(*unflatten(tree, given)))
        nodes = [_result(name, function, result) for result in results]
    del given, results
    scope.check_updates(name)
    assigned = {scope.read[leaf]: value.inputs[1] for leaf, value in scope.assigned.items()}
    return TracedFunction(returned, nodes, assigned, scope.drawn)


def _flattened(value: Any) -> tuple[list[Any], Hashable]:
    return ([], NOTHING) if value is None else flatten(value)


def _result(name: str, function: Callable[..., Any], value: Any) -> Node:
    if is_number(value):
        return asarray(value).node
    if value is None or isinstance(value, (str, bytes)) or callable(value):
        raise TypeError(
            f"{name}: {_name_of(function)} must return arrays, or lists, tuples and dictionaries "
            f"of arrays; it returned {value!r}"
        )
    return as_array(name, value).node


def _name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", repr(function))


def assign_all(assigned: Mapping[Variable, Node]) -> None:
    """Give variables their next values."""
    if assigned:
        assign(list(assigned.items()))
