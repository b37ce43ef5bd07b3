"""Loops that run on the workers: the body is one program, its steps need no controller."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from operator import index
from typing import Any

from magmath.array import session
from magmath.array.array import Array, as_array, copy_of
from magmath.array.creation import asarray
from magmath.array.data import Data, data_of, leaf_of
from magmath.array.lines import user_line
from magmath.array.transform import read_besides
from magmath.array.trees import flatten, unflatten
from magmath.array.weak import WeakNumber
from magmath.core.dtypes import int64
from magmath.errors import DTypeError, MagmathError, ShapeError
from magmath.graph import Graph, Node, Past
from magmath.ops import elementwise as e
from magmath.ops.leaves import constant, input_leaf


def fori_loop(lower: int, upper: int, body: Callable[[Any, Any], Any], value: Any) -> Any:
    """What `for i in range(lower, upper): value = body(i, value)` leaves in `value`.

    `value` is an array, or lists, tuples and dictionaries of arrays; `body` is traced once and must
    return the same with the same shapes and types. The steps run as one program, in place, on the
    workers: one message for all of them, and native code where there are many. `i` counts as a
    Python number. Within a compiled function or another loop the steps are written out one by one.

    Raises ShapeError, DTypeError or MagmathError where the body returns something else. The name
    and the meaning are JAX's.
    """
    if not callable(body):
        raise TypeError(f"fori_loop: the body is a function of (i, value), was given {body!r}")
    for bound in (lower, upper):
        if not hasattr(bound, "__index__"):
            raise TypeError(f"fori_loop: the bounds are integers, was given {bound!r}")
    lower, upper = index(lower), index(upper)
    if session.engine().tracing:
        for i in range(lower, upper):
            value = body(i, value)
        return value
    leaves, tree = flatten(value)
    arrays = [v if isinstance(v, Array) else asarray(v) for v in leaves]
    if upper <= lower:
        return unflatten(tree, arrays)
    copies = [copy_of(array) for array in (*arrays, asarray(lower, dtype=int64))]
    given = [data_of(copy.evaluated()) for copy in copies]
    states, read = _run(body, tree, given, upper - lower)
    results = [leaf_of(data) for data in states]
    for leaf in results:
        leaf.past = Past([*read, *[n for x in (*arrays, *copies) for n in x.nodes]], user_line())
    return unflatten(tree, [Array(leaf) for leaf in results])


def _run(
    body: Callable[[Any, Any], Any], tree: Hashable, states: Sequence[Data], steps: int
) -> tuple[list[Data], list[Node]]:
    """The states after some steps, without the last, which is the index; and the arrays that the
    body reads besides. The states' memory is taken over."""
    engine = session.engine()
    places = [input_leaf(d.shape, d.dtype, d.layout, None) for d in states]
    *values, index = places
    with engine.traced():
        returned = body(WeakNumber(index, 0), unflatten(tree, [Array(place) for place in values]))
    results = _checked(returned, tree, states[:-1])
    following = e.add(index, constant(1, int64))
    traced = Graph((*[array.node for array in results], following), tuple(places))
    graph = engine.cut(traced)
    compiled = engine.compile(graph)
    for place, data in zip(places, states, strict=True):
        place.value = data
    outputs, run = engine.run(compiled, graph.leaves, steps=steps)
    run.values()
    return outputs[:-1], read_besides(traced, places)


def _checked(returned: Any, tree: Hashable, states: Sequence[Data]) -> list[Array]:
    """The arrays that the body returned, which must be like those it was given."""
    leaves, returned_tree = flatten(returned)
    if returned_tree != tree:
        raise MagmathError(
            f"fori_loop: the body must return what it is given, arrays nested alike; it returned "
            f"{type(returned).__name__} of {len(leaves)}, for {len(states)}"
        )
    arrays = [as_array("fori_loop", leaf) for leaf in leaves]
    for array, state in zip(arrays, states, strict=True):
        if array.shape != state.shape or array.dtype != state.dtype:
            raise (ShapeError if array.shape != state.shape else DTypeError)(
                f"fori_loop: the body was given {state.shape} {state.dtype} and returned "
                f"{array.shape} {array.dtype}; every step must return the same shape and type"
            )
    return arrays
