"""Loops that run on the workers: the body is one program, its steps need no controller."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from operator import index
from typing import TYPE_CHECKING, Any

from magmath.array import session, tracing
from magmath.array.array import Array, as_array, copy_of
from magmath.array.creation import asarray
from magmath.array.data import Data, data_of, leaf_of
from magmath.array.lines import user_line
from magmath.array.tracing import Trace
from magmath.array.trees import flatten, unflatten
from magmath.array.variable import overwrite
from magmath.array.weak import WeakNumber
from magmath.core.dtypes import int64
from magmath.errors import DTypeError, MagmathError, ShapeError
from magmath.graph import Graph, Node, Provenance
from magmath.ops import elementwise as e
from magmath.ops.leaves import constant, input_leaf

if TYPE_CHECKING:
    from magmath.runtime.run_handle import RunHandle


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
    leaves, tree = flatten(value)
    arrays = [+v if isinstance(v, Array) else asarray(v) for v in leaves]
    if tracing.current() is not None:
        value = unflatten(tree, arrays)
        for i in range(lower, upper):
            value = body(i, value)
        return value
    if upper <= lower:
        return unflatten(tree, arrays)
    states = [*arrays, asarray(lower, dtype=int64)]
    data = [data_of(copy_of(state).evaluated()) for state in states]
    loop = _Loop(body, tree, data, lower)
    results = loop.run(data, upper - lower)
    for leaf in results:
        leaf.provenance = Provenance.unknown([*loop.read, *map(_node, arrays)], user_line())
    return unflatten(tree, [Array(leaf) for leaf in results])


class _Loop:
    """The body of a loop as a program: its states, and the variables that it assigns, are targets.

    `read` are the arrays and variables that the results depend on besides the first states.
    """

    def __init__(
        self, body: Callable[[Any, Any], Any], tree: Hashable, states: Sequence[Data], lower: int
    ) -> None:
        self.engine = session.engine()
        self.lower = lower
        self.places = [input_leaf(d.shape, d.dtype, d.layout, None) for d in states]
        *values, index = self.places
        with tracing.tracing(Trace(step=index)) as self.trace:
            start = unflatten(tree, [Array(place) for place in values])
            nodes = [x.node for x in _checked(body(WeakNumber(index, 0), start), tree, states[:-1])]
        del start
        self.trace.check_updates("fori_loop")
        following = e.add(index, constant(1, int64))
        assigned = self.trace.assigned
        traced = Graph((*nodes, following, *assigned.values()), (*self.places, *assigned))
        numbers = ("parameter", "constant", "variable")
        outside = [x for x in traced.nodes if x.name not in numbers and x not in self.places]
        variables = [v.node for v in self.trace.read.values()]
        self.read = [*outside, *variables]
        self.graph = self.engine.cut(traced)
        self.compiled = self.engine.compile(self.graph)

    def run(self, states: Sequence[Data], steps: int) -> list[Node]:
        """The leaves of the states after some steps, without the index; their memory is used."""
        variables = [self.trace.read[leaf] for leaf in self.trace.assigned]
        values: dict[Node, Any] = dict(zip(self.places, states, strict=True))
        values |= self.trace.numbers_of_run(steps, self.lower)

        def start() -> tuple[list[Data], RunHandle]:
            given = [values.get(x) or data_of(x) for x in self._leaves(self.compiled.inputs)]
            numbers = [values.get(x, x.value) for x in self._leaves(self.compiled.parameters)]
            return self.engine.start(self.compiled, given, numbers, steps=steps)

        made, run = overwrite(variables, start)
        run.values()
        return [leaf_of(one) for one in made[:-1]]

    def _leaves(self, positions: Sequence[int]) -> list[Node]:
        return [self.graph.leaves[i] for i in positions]


def _node(array: Array) -> Node:
    return array.node


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
