"""Transformations of functions and expressions: `grad` and `compile`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import update_wrapper
from typing import Any, overload

import numpy as np

from magmath.array import session
from magmath.array.array import Array, WeakNumber, as_array
from magmath.array.engine import Compiled, Engine, data_of
from magmath.autodiff import gradients
from magmath.core.dtypes import bool_, complex128, float64, int64
from magmath.errors import MagmathError
from magmath.graph import Graph, Node
from magmath.ops.leaves import input_leaf, parameter


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
        update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        engine = session.engine()
        leaves, tree = _flatten((args, kwargs))
        values = [
            as_array("compile", v) if isinstance(v, (np.ndarray, np.generic)) else v for v in leaves
        ]
        key = (id(engine), tree, tuple([_signature(v) for v in values]))
        trace = self._traces.get(key)
        if trace is None:
            trace = self._traces[key] = _Trace(engine, self._function, values, tree)
        return trace.run(values)


class _Trace:
    """One program of a function: for these shapes, types and layouts."""

    def __init__(
        self, engine: Engine, function: Callable[..., Any], values: Sequence[Any], tree: Hashable
    ) -> None:
        self.engine = engine
        self.places = [self._placeholder(v) for v in values]
        args, kwargs = _unflatten(
            tree,
            [_traced(p, v) for p, v in zip(self.places, values, strict=True)],
        )
        outputs, self.tree = _flatten(function(*args, **kwargs))
        for output in outputs:
            if not isinstance(output, Array):
                raise MagmathError(
                    f"compile: {function!r} must return arrays, it returned a "
                    f"{type(output).__name__}"
                )
        self.graph = engine.cut(Graph(tuple(output.node for output in outputs)))
        self.compiled: Compiled = engine.compile(self.graph)

    def _placeholder(self, value: Any) -> Node | None:
        if isinstance(value, Array):
            data = data_of(value.evaluated())
            return input_leaf(data.shape, data.dtype, data.layout, data)
        if isinstance(value, (bool, int, float, complex)):
            return self.engine.placed(parameter(value, WIDEST[type(value)]))
        return None

    def run(self, values: Sequence[Any]) -> Any:
        """Replay with other values."""
        for place, value in zip(self.places, values, strict=True):
            if place is not None:
                place.value = data_of(value.evaluated()) if isinstance(value, Array) else value
        outputs, _ = self.engine.run(self.compiled, self.graph.leaves)
        for place, value in zip(self.places, values, strict=True):
            if place is not None and isinstance(value, Array):
                place.value = None  # do not keep the arguments alive
        arrays = [Array(input_leaf(d.shape, d.dtype, d.layout, d)) for d in outputs]
        return _unflatten(self.tree, arrays)


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


def _flatten(value: Any) -> tuple[list[Any], Hashable]:
    """The leaves of nested lists, tuples and dictionaries, and their structure."""
    if isinstance(value, dict):
        leaves, trees = _flatten_all(value.values())
        return leaves, ("dict", tuple(value), trees)
    if isinstance(value, (list, tuple)):
        leaves, trees = _flatten_all(value)
        return leaves, ("list" if isinstance(value, list) else "tuple", trees)
    return [value], None


def _flatten_all(values: Iterable[Any]) -> tuple[list[Any], tuple[Hashable, ...]]:
    parts = [_flatten(value) for value in values]
    return [leaf for leaves, _ in parts for leaf in leaves], tuple(tree for _, tree in parts)


def _unflatten(tree: Any, leaves: Sequence[Any]) -> Any:
    value, rest = _built(tree, list(leaves))
    assert not rest
    return value


def _built(tree: Any, leaves: list[Any]) -> tuple[Any, list[Any]]:
    if tree is None:
        return leaves[0], leaves[1:]
    kind, *parts = tree
    values = []
    for part in parts[-1]:
        value, leaves = _built(part, leaves)
        values.append(value)
    if kind == "dict":
        return dict(zip(parts[0], values, strict=True)), leaves
    return (values if kind == "list" else tuple(values)), leaves
