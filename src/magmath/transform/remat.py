"""Rematerialization: functions whose intermediates are recomputed for the gradient."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Sequence
from contextlib import nullcontext
from typing import Any

from magmath.arrays.array import Array
from magmath.arrays.traced_scalar import TracedScalar
from magmath.arrays.tree import flatten
from magmath.graph import Node, collecting_new_nodes, topological
from magmath.graph.graph import dependents, topological_until
from magmath.ops.leaves import is_known_number
from magmath.ops.recomputation import checkpoint
from magmath.transform.function_argument import named, require_function, with_keywords_last
from magmath.transform.traced_function import assign_all, placeholder, trace_function


def remat(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with a gradient that recomputes its intermediates.

    A network of many layers keeps the intermediates of each layer until its gradient is computed.
    With `layer = mm.remat(layer)` it keeps only the arguments of each layer and computes the layer
    once more for its gradient: about a third more arithmetic, and the memory of one layer instead
    of all. The result and the gradient are the same, random numbers included.

    Arguments and results are arrays, or lists, tuples and dictionaries of them; other arguments are
    passed unchanged. The function cannot read values that depend on its arguments. Captured
    variables and arrays have gradients too, and stay in memory; in a function without array
    arguments, the values computed from them are recomputed. The semantics are those of
    `jax.checkpoint`.

    Raises TracingError if the function reads a variable after it has assigned it, unless it is
    called in a compiled function.
    """
    require_function("remat: needs a function of arrays", function)

    def recomputed(*args: Any, **kwargs: Any) -> Any:
        leaves, tree = flatten((*args, kwargs))
        arguments = {
            placeholder(leaf.shape, leaf.dtype): leaf.node for leaf in leaves if _is_array(leaf)
        }
        remaining = iter(arguments)
        inputs = [next(remaining) if _is_array(leaf) else leaf for leaf in leaves]
        with nullcontext(set[Node]()) if arguments else collecting_new_nodes() as new_nodes:
            traced = trace_function("remat", with_keywords_last(function), tree, inputs)
        traced.check_reads("remat")
        sources = [*arguments, *_draws(traced.results, traced.drawn)]
        if not arguments:
            sources = _read(traced.results, new_nodes.difference(sources))
        order = topological(traced.results, pending=True)
        varying = dependents(order, sources)
        captured = _captured(order, sources, varying) if arguments else []
        nodes, assigned = traced.applied(arguments)
        recomputed_from = tuple([arguments.get(x, x) for x in sources])
        arrays = [
            Array(checkpoint(node, recomputed_from, tuple(captured)))
            if result in varying and _has_gradient(result)
            else Array(node)
            for result, node in zip(traced.results, nodes, strict=True)
        ]
        assign_all(assigned)
        return traced.unflattened(arrays)

    return named(recomputed, "remat", function)


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, Array) and not isinstance(leaf, TracedScalar)


def _draws(results: Sequence[Node], drawn: Collection[Node]) -> list[Node]:
    """Return the random stream numbers that the results depend on."""
    numbers = set(drawn)
    return [node for node in topological(results, pending=True) if node in numbers]


def _read(results: Sequence[Node], new_nodes: Collection[Node]) -> list[Node]:
    """Return what a function that has made these nodes reads from outside."""
    computed = {node for node in new_nodes if node.value is None and not node.is_leaf}
    order = topological_until(results, (), lambda node: node.inputs if node in computed else ())
    return [node for node in order if node not in computed and not is_known_number(node)]


def _captured(
    order: Sequence[Node], sources: Collection[Node], varying: Container[Node]
) -> list[Node]:
    """Return the nodes that the `varying` nodes of a function read, that may have a gradient, and
    that do not depend on the sources from which it is recomputed."""
    given = set(sources)
    computed = [node for node in order if node in varying and node not in given]
    read = dict.fromkeys([x for node in computed for x in node.inputs])
    return [x for x in read if x not in varying and _has_gradient(x) and not is_known_number(x)]


def _has_gradient(node: Node) -> bool:
    return node.dtype.kind in ("float", "complex")
