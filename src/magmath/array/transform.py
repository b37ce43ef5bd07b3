"""Transformations of functions and expressions: `grad` and `compile`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, overload
from weakref import ref

import numpy as np

from magmath.array import session
from magmath.array.again import Repeated
from magmath.array.array import Array, as_array
from magmath.array.data import Data, data_of
from magmath.array.engine import Engine
from magmath.array.lines import user_line
from magmath.array.trees import flatten, unflatten
from magmath.array.weak import WeakNumber
from magmath.autodiff import gradients
from magmath.core.dtypes import WIDEST, DType, fitting, int64
from magmath.errors import MagmathError
from magmath.graph import Graph, Node, Past
from magmath.layout import Layout
from magmath.ops.leaves import input_leaf, parameter

if TYPE_CHECKING:
    from magmath.array.explanation import Explanation


@overload
def grad(y: Array, xs: Array) -> Array: ...
@overload
def grad(y: Array, xs: Sequence[Array]) -> list[Array]: ...
def grad(y: Array, xs: Array | Sequence[Array]) -> Array | list[Array]:
    """The gradient of a 0-d array with respect to an array, or to each of several.

    The result is an expression like any other: it can be combined, compiled and differentiated
    again. What y has nothing to do with has gradient zero. MagmathError is raised where y depends
    on xs through an array that was computed, whose expression has been let go (of variables every
    expression is kept), and where it depends on what xs was made from but not on xs: `x[0]` is
    another array each time it is written. Raises ShapeError if y is not 0-d, DTypeError for other
    than real floats.
    """
    sources = [xs] if isinstance(xs, Array) or not isinstance(xs, Iterable) else list(xs)
    for array in (y, *sources):
        if not isinstance(array, Array):
            raise TypeError(f"grad: needs arrays, was given {type(array).__name__}")
    found = [Array(node) for node in gradients(y.node, [x.node for x in sources])]
    return found[0] if isinstance(xs, Array) else found


def compile(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, traced once for each combination of shapes, types and layouts, then replayed.

    Its arguments may be arrays, NumPy arrays, Python numbers, and lists, tuples and dictionaries of
    them; numbers become parameters, so another number compiles nothing. It must return arrays (or
    lists, tuples, dictionaries of them), must not ask for values inside, and runs as Python only
    while it is traced.
    """
    if not callable(function):
        raise TypeError(f"compile: needs a function of arrays, was given {function!r}")
    return _Function(function)


_Key = tuple[Engine, Hashable, list[Hashable]]  # structure and signatures of the arguments


class _Function:
    """A function and its traces."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._traces: dict[Hashable, _Trace] = {}
        self._last: _Trace | None = None
        update_wrapper(self, function)

    def __reduce__(self) -> str:
        """For pickle and copy: the function itself, by its name, as Python's functions are."""
        return str(self._function.__qualname__)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        engine, last = session.engine(), self._last
        if last is not None and last.engine is engine and not kwargs:
            known = last.accepted(args)
            if known is not None:
                return last.run(*known)
        leaves, tree = flatten((args, kwargs))
        values = [_value(leaf) for leaf in leaves]
        self._last = self._trace((engine, tree, [_signature(value) for value in values]), values)
        return self._last.run(values, [n for x in leaves if isinstance(x, Array) for n in x.nodes])

    def _trace(self, key: _Key, values: Sequence[Any]) -> _Trace:
        """The trace for this engine and arguments of this structure; made if there is none."""
        engine, tree, signatures = key
        place = id(engine), tree, tuple(signatures)
        trace = self._traces.get(place)
        if trace is None:
            trace = self._traces[place] = _Trace(key, self._function, values)
        return trace

    def explain(self) -> Explanation:
        """How the function is computed for arguments like those of its last call.

        Raises MagmathError before the first one.
        """
        from magmath.array.explain import explain_run

        last = None if self._last is None else self._last.repeated.last
        if last is None:
            raise MagmathError(
                "explain: call the compiled function first; what it does depends on its arguments"
            )
        return explain_run(last)


class _Trace:
    """One program of a function: for these shapes, types and layouts."""

    def __init__(self, key: _Key, function: Callable[..., Any], values: Sequence[Any]) -> None:
        self.engine, tree, _ = key
        places = [_placeholder(value) for value in values]
        args, kwargs = unflatten(tree, [_traced(p, v) for p, v in zip(places, values, strict=True)])
        with self.engine.traced():
            outputs, self.tree = flatten(function(*args, **kwargs))
        for output in outputs:
            if not isinstance(output, Array):
                raise MagmathError(
                    f"compile: {function!r} must return arrays, it returned a "
                    f"{type(output).__name__}"
                )
        traced = Graph(tuple(output.node for output in outputs))
        self._read = [ref(node) for node in read_besides(traced, places)]
        self._line = user_line()
        graph = self.engine.cut(traced)
        compiled = self.engine.compile(graph)
        leaves, position = graph.leaves, {place: i for i, place in enumerate(places) if place}
        self._arrays = [position.get(leaves[i], leaves[i]) for i in compiled.inputs]
        self._numbers = [position.get(leaves[i], leaves[i]) for i in compiled.parameters]
        self._in_order = self._arrays == list(range(len(values)))
        self._limits = _limits(traced, position)
        self._fixed = [x.value for x in self._numbers if isinstance(x, Node)]
        plain = tree == flatten((tuple(values), {}))[1] and all(map(_is_known, values))
        self._likes = [_like(value) for value in values] if plain else None
        self.repeated = Repeated(self.engine, compiled)

    def accepted(self, args: tuple[Any, ...]) -> tuple[list[Any], list[Node]] | None:
        """What `run` takes for arrays that are known and numbers, if they are like those that were
        traced: the common case, in which nothing is taken apart."""
        likes = self._likes
        if likes is None or len(args) != len(likes):
            return None
        values: list[Any] = []
        nodes: list[Node] = []
        for given, (kind, dtype, layout) in zip(args, likes):  # noqa: B905  they are as many
            if type(given) is not kind:
                return None
            argument: Any = given
            if layout is None:
                values.append(argument)
                continue
            leaf = argument._leaf
            if leaf is not argument._node:  # an expression
                return None
            value = leaf.value
            if (value.layout is not layout and value.layout != layout) or value.dtype is not dtype:
                return None
            nodes.append(leaf)
            values.append(value)
        return values, nodes

    def run(self, values: Sequence[Any], nodes: Sequence[Node]) -> Any:
        """Replay with other values, those of the arguments; `nodes` are the arrays among these."""
        given, numbers = values, self._fixed
        for i, dtype in self._limits:
            fitting(values[i], dtype, "compile")
        if not self._in_order:
            given = [values[x] if isinstance(x, int) else data_of(x) for x in self._arrays]
        if len(numbers) < len(self._numbers):
            numbers = [values[x] if isinstance(x, int) else x.value for x in self._numbers]
        results = self.repeated.run(given, numbers)
        leaves = results.leaves
        if leaves:
            self._remember(leaves, nodes)
        if self.tree is None:
            found: Any = Array(leaves[0])
        else:
            found = unflatten(self.tree, [Array(leaf) for leaf in leaves])
        self.repeated.keep(results)
        return found

    def _remember(self, leaves: Sequence[Node], nodes: Sequence[Node]) -> None:
        """Note what the results were made from: the arguments, and what the function reads besides.

        Results that are made again into the same memory are the same leaves.
        """
        past = leaves[0].past
        if past is None or not past.begins_with(nodes):
            read = [node for known in self._read if (node := known()) is not None]
            if past is None:
                past = Past([*nodes, *read], self._line)
                for leaf in leaves:
                    leaf.past = past
            else:
                past.again([*nodes, *read])
                return
        past.again()


def _limits(traced: Graph, position: dict[Node, int]) -> list[tuple[int, DType]]:
    """The integer types that arguments must fit which are Python's integers, by their positions:
    those of the arrays that they meet."""
    integers = {place for place in position if place.name == "parameter" and place.dtype is int64}
    limits = [(place, int64) for place in integers]
    for node in traced.nodes:
        if node.name == "astype" and node.inputs[0] in integers and node.dtype.is_integer:
            limits.append((node.inputs[0], node.dtype))
    return [(position[place], dtype) for place, dtype in limits]


def read_besides(traced: Graph, places: Collection[Node | None]) -> list[Node]:
    """What a function has read that it does not get as arguments, which are at `places`: arrays,
    and what it has made of them."""
    numbers = ("parameter", "constant")
    return [node for node in traced.nodes if node.name not in numbers and node not in places]


def _is_known(value: Any) -> bool:
    return type(value) in (Data, bool, int, float, complex)


def _like(value: Any) -> tuple[type, DType | None, Layout | None]:
    """What an argument must be like: an array of a type in a layout, or a number of a class."""
    return (Array, value.dtype, value.layout) if type(value) is Data else (type(value), None, None)


def _placeholder(value: Any) -> Node | None:
    """A leaf for an argument, which has no value while the function is traced."""
    if isinstance(value, Data):
        return input_leaf(value.shape, value.dtype, value.layout, None)
    if isinstance(value, (bool, int, float, complex)):
        return parameter(None, WIDEST[type(value)])
    return None


def _traced(place: Node | None, value: Any) -> Any:
    """What the function is called with while it is traced."""
    if place is None:
        return value
    return Array(place) if isinstance(value, Data) else WeakNumber(place, value)


def _value(argument: Any) -> Any:
    """What a program takes for an argument: the data of an array, anything else as it is."""
    if isinstance(argument, (np.ndarray, np.generic)):
        argument = as_array("compile", argument)
    return data_of(argument.evaluated()) if isinstance(argument, Array) else argument


def _signature(value: Any) -> Hashable:
    """What a program depends on of a value."""
    if isinstance(value, Data):
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
