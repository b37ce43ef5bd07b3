"""Transformations of functions and expressions: `grad` and `compile`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from magmath.array import session
from magmath.array.array import Array, WeakNumber, as_array
from magmath.array.engine import Compiled, Engine, data_of
from magmath.array.trees import flatten, unflatten
from magmath.autodiff import gradients
from magmath.core.dtypes import bool_, complex128, float64, int64
from magmath.errors import MagmathError
from magmath.graph import Graph, Node
from magmath.ops.leaves import input_leaf, parameter

if TYPE_CHECKING:
    from magmath.array.explanation import Explanation
    from magmath.runtime.pending import Run


@overload
def grad(y: Array, xs: Array) -> Array: ...
@overload
def grad(y: Array, xs: Sequence[Array]) -> list[Array]: ...
def grad(y: Array, xs: Array | Sequence[Array]) -> Array | list[Array]:
    """The gradient of a 0-d array with respect to an array, or to each of several.

    The result is an expression like any other: it can be combined, compiled and differentiated
    again. Only what was built from `xs` before they were evaluated counts as depending on them,
    variables always do. Raises ShapeError if y is not 0-d, DTypeError for other than real floats.
    """
    sources = [xs] if isinstance(xs, Array) else list(xs)
    found = [Array(node) for node in gradients(y.node, [x.node for x in sources])]
    return found[0] if isinstance(xs, Array) else found


def compile(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, traced once for each combination of shapes, types and layouts, then replayed.

    Its arguments may be arrays, NumPy arrays, Python numbers, and lists, tuples and dictionaries of
    them; numbers become parameters, so another number compiles nothing. It must return arrays (or
    lists, tuples, dictionaries of them), must not ask for values inside, and runs as Python only
    while it is traced.
    """
    return _Function(function)


class _Function:
    """A function and its traces."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._traces: dict[Hashable, _Trace] = {}
        self._last: _Trace | None = None
        update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        engine = session.engine()
        leaves, tree = flatten((args, kwargs))
        values = [
            as_array("compile", v) if isinstance(v, (np.ndarray, np.generic)) else v for v in leaves
        ]
        key = (id(engine), tree, tuple([_signature(v) for v in values]))
        trace = self._traces.get(key)
        if trace is None:
            trace = self._traces[key] = _Trace(engine, self._function, values, tree)
        self._last = trace
        return trace.run(values)

    def explain(self) -> Explanation:
        """How the function is computed for arguments like those of its last call.

        Raises MagmathError before the first one.
        """
        from magmath.array.explain import explain_run

        if self._last is None or self._last.last is None:
            raise MagmathError(
                "explain: call the compiled function first; what it does depends on its arguments"
            )
        return explain_run(self._last.last)


class _Trace:
    """One program of a function: for these shapes, types and layouts."""

    def __init__(
        self, engine: Engine, function: Callable[..., Any], values: Sequence[Any], tree: Hashable
    ) -> None:
        self.engine = engine
        self.places = [self._placeholder(v) for v in values]
        args, kwargs = unflatten(
            tree,
            [_traced(p, v) for p, v in zip(self.places, values, strict=True)],
        )
        with engine.traced():
            outputs, self.tree = flatten(function(*args, **kwargs))
        for output in outputs:
            if not isinstance(output, Array):
                raise MagmathError(
                    f"compile: {function!r} must return arrays, it returned a "
                    f"{type(output).__name__}"
                )
        self.graph = engine.cut(Graph(tuple(output.node for output in outputs)))
        self.compiled: Compiled = engine.compile(self.graph)
        self.last: Run | None = None

    def _placeholder(self, value: Any) -> Node | None:
        """A leaf for an argument, which has no value while the function is traced."""
        if isinstance(value, Array):
            data = data_of(value.evaluated())
            return input_leaf(data.shape, data.dtype, data.layout, None)
        if isinstance(value, (bool, int, float, complex)):
            return parameter(None, WIDEST[type(value)])
        return None

    def run(self, values: Sequence[Any]) -> Any:
        """Replay with other values."""
        for place, value in zip(self.places, values, strict=True):
            if place is not None:
                place.value = data_of(value.evaluated()) if isinstance(value, Array) else value
        outputs, self.last = self.engine.run(self.compiled, self.graph.leaves)
        for place in self.places:
            if place is not None:
                place.value = None  # do not keep the arguments alive
        arrays = [Array(input_leaf(d.shape, d.dtype, d.layout, d)) for d in outputs]
        return unflatten(self.tree, arrays)


WIDEST = {bool: bool_, int: int64, float: float64, complex: complex128}


def _traced(place: Node | None, value: Any) -> Any:
    """What the function is called with while it is traced."""
    if place is None:
        return value
    return Array(place) if isinstance(value, Array) else WeakNumber(place, value)


def _signature(value: Any) -> Hashable:
    if isinstance(value, Array):
        return value.shape, value.dtype, value.layout
    if isinstance(value, (bool, int, float, complex)):
        return "number", type(value).__name__
    hashable: Hashable = value
    try:
        hash(hashable)
    except TypeError:
        raise MagmathError(
            f"compile: an argument of type {type(value).__name__} is neither an array, a number, "
            f"nor hashable"
        ) from None
    return hashable
