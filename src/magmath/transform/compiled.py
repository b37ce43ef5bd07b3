"""Compiled functions: traced once for each structure and signature of arguments, then run as a
program."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, final
from weakref import ref

import numpy as np

from magmath.arrays.array import Array, as_array
from magmath.arrays.traced_scalar import TracedScalar
from magmath.arrays.tree import flatten, unflatten
from magmath.arrays.variable import Variable, overwrite
from magmath.core.dtypes import DTYPE_OF_PYTHON, DType, convert_number, int64
from magmath.core.precision_state import PRECISION
from magmath.core.promotion import DEFAULT
from magmath.engine import session, tracing
from magmath.engine.captured_arrays import Captured
from magmath.engine.engine import Engine
from magmath.engine.frozen_values import FrozenValues, Separated, separate
from magmath.engine.kept_expressions import keep_expression
from magmath.engine.pending_readers import note_reader
from magmath.engine.remote_array import RemoteArray, leaf_of, remote_array_of
from magmath.engine.replay_cache import ReplayCache
from magmath.engine.tracing import Trace
from magmath.engine.user_line import user_line
from magmath.errors import MagmathError
from magmath.graph import (
    Graph,
    Node,
    Provenance,
    WeakOperand,
    apply,
    recipe_of,
    set_provenance,
    weak_operand,
)
from magmath.graph.provenance import LeafOperand
from magmath.layout import Layout
from magmath.ops import elementwise as e
from magmath.ops.leaves import input_leaf, parameter

if TYPE_CHECKING:
    from magmath.diagnostics.explanation import Explanation


def compile(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function compiled: traced once for each combination of shapes, types and layouts,
    then replayed.

    The default type (see `set_default_dtype`) is part of that combination. Arguments may be arrays,
    NumPy arrays, Python numbers, and lists, tuples and dictionaries of them; numbers become
    parameters, so another number does not compile again. The function must return arrays (or lists,
    tuples, dictionaries of them), must not read values inside, and runs as Python only while it is
    traced.

    As without compilation, variables that it reads have their values at the time of the call,
    variables that it assigns (`v.assign(x)`, `v += x`) are assigned by the call, and each call
    draws new random numbers. An array that it reads, other than an argument, has the value that it
    has during tracing; after an in-place update (`a += 1`) the function is traced again.
    """
    if not callable(function):
        raise TypeError(f"compile: needs a function of arrays, was given {function!r}")
    return _CompiledFunction(function)


NO_DATA: Mapping[Node, RemoteArray] = {}
_Key = tuple[Engine, Hashable, Sequence[int], list[Hashable]]
"""The engine, the structure of the arguments, which of them are the same array, and their
signatures."""


class _CompiledFunction:
    """A function and its specializations."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._traces: dict[Hashable, _Specialization] = {}
        self._last: _Specialization | None = None
        update_wrapper(self, function, updated=())  # the attributes of a module are its own

    def __reduce__(self) -> str:
        """Return the name of the function, for pickle and copy, as for Python functions."""
        return str(self._function.__qualname__)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if tracing.current() is not None:
            return self._function(*args, **kwargs)
        engine, last = session.engine(), self._last
        types = DEFAULT.floating, PRECISION.key
        if last is not None and last.engine is engine and last.types == types and not kwargs:
            known = last.accepted(args)
            if known is not None:
                return last.run(*known)
        leaves, tree = flatten((args, kwargs))
        leaves = [as_array("compile", x) if isinstance(x, _NUMPY) else x for x in leaves]
        values = [_value(leaf) for leaf in leaves]
        signatures = [_signature(value) for value in values]
        same = _same_arrays(leaves)
        self._last = self._trace((engine, tree, same, signatures), values)
        return self._last.run(values, leaves)

    def _trace(self, key: _Key, values: Sequence[Any]) -> _Specialization:
        """Return the specialization for an engine and arguments of this structure.

        Traces the function if there is none, or if an array that it captures was updated.
        """
        engine, tree, same, signatures = key
        place = id(engine), DEFAULT.floating, PRECISION.key, tree, same, tuple(signatures)
        trace = self._traces.get(place)
        if trace is None or not trace.captured.is_current:
            trace = self._traces[place] = _Specialization(key, self._function, values)
        return trace

    def explain(self) -> Explanation:
        """Return the explanation of the program for arguments like those of the last call.

        Raises MagmathError before the first call.
        """
        from magmath.diagnostics.explain import explain_run

        last = None if self._last is None else self._last.repeated.last
        if last is None:
            raise MagmathError(
                "explain: call the compiled function first; its program depends on its arguments"
            )
        return explain_run(last)


class _Specialization:
    """The program of a function for certain shapes, types and layouts."""

    def __init__(self, key: _Key, function: Callable[..., Any], values: Sequence[Any]) -> None:
        self.engine, tree, same, _ = key
        self.types = DEFAULT.floating, PRECISION.key
        places = [_placeholder(value) for value in values]
        trace = Trace()
        with tracing.tracing(trace):
            given = _arguments(places, values, same)
            nodes, self.tree, self._updated = _traced(function, unflatten(tree, given), given)
        del given
        trace.check_updates("compile")
        self._assigned = [trace.read[leaf] for leaf in trace.assigned]
        self._reads_variables = bool(trace.read)
        self._trace = trace
        self._same = trace.is_same_in_each_run
        traced = _graph(nodes, trace)
        self._results = len(nodes) - len(self._updated)
        graph = self.engine.cut(traced)
        position = {place: i for i, place in enumerate(places) if place}
        self._frozen: FrozenValues | None = None
        self._versions: Mapping[Node, Node] = {}
        separated = self._separated(graph, position)
        if separated is not None:
            graph, self._frozen = separated.graph, separated.frozen
            self._versions = separated.versions
        compiled = self.engine.compile(graph)
        leaves = graph.leaves
        self._arrays = [position.get(leaves[i], leaves[i]) for i in compiled.inputs]
        self._numbers = [position.get(leaves[i], leaves[i]) for i in compiled.parameters]
        self._in_order = self._arrays == list(range(len(values)))
        self._limits = _limits(traced, position)
        self._fixed = [x.value for x in self._numbers if isinstance(x, Node)]
        plain = tree == flatten((tuple(values), {}))[1] and all(map(_is_known, values))
        plain = plain and self._same and not (same or self._updated or self._assigned)
        self._likes = [_like(value) for value in values] if plain else None
        self.repeated = ReplayCache(self.engine, compiled)
        self.captured = Captured(traced, places)
        for owner in trace.states:
            self.captured.add(owner)
        self._history = _ProvenanceTemplate(traced, position, user_line())

    def _separated(self, graph: Graph, position: Mapping[Node, int]) -> Separated | None:
        """Return the graph without the values that are the same in each call.

        None for a function that assigns variables, or draws random numbers.
        """
        if self._assigned or self._updated or not self._same:
            return None
        return separate(self.engine, graph, position)

    def accepted(self, args: tuple[Any, ...]) -> tuple[list[Any], Sequence[Any]] | None:
        """Return the arguments of `run` if `args` are evaluated arrays and numbers like the traced
        ones, otherwise None.

        This is the fast path, which does not flatten the arguments.
        """
        likes = self._likes
        if likes is None or len(args) != len(likes) or not self.captured.is_current:
            return None
        values: list[Any] = []
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
            values.append(value)
        return values, args

    def run(self, values: Sequence[Any], arguments: Sequence[Any]) -> Any:
        """Run the program with the values of other arguments; return the function's result."""
        numbers: Sequence[Any] = self._fixed
        drawn = NO_NUMBERS
        for i, dtype in self._limits:
            convert_number(values[i], dtype, "compile")
        if not self._same:
            drawn = self._trace.numbers_of_run()
        if not self._same or len(numbers) < len(self._numbers):
            numbers = [
                values[x] if isinstance(x, int) else drawn.get(x, x.value) for x in self._numbers
            ]
        frozen: Mapping[Node, RemoteArray] = {}
        if self._frozen is not None:
            frozen = self._frozen.data()
            numbers = self._with_versions(numbers, frozen)
        operands = self._history.operands(arguments)
        if self._assigned:
            made, self.repeated.last = overwrite(
                self._assigned,
                lambda: self.engine.start(self.repeated.compiled, self._given(values), numbers),
            )
            leaves = [leaf_of(data) for data in made]
            self._history.note(leaves, operands, arguments, drawn)
            return self._found(leaves, arguments)
        given = values if self._in_order else self._given(values, frozen)
        results = self.repeated.run(given, numbers)
        self._history.note(results.leaves, operands, arguments, drawn)
        found = self._found(results.leaves, arguments)
        self.repeated.keep(results)
        return found

    def _given(
        self, values: Sequence[Any], frozen: Mapping[Node, RemoteArray] = NO_DATA
    ) -> list[RemoteArray]:
        """Return the input arrays of the program, in order."""
        return [
            values[x] if isinstance(x, int) else frozen.get(x) or remote_array_of(x)
            for x in self._arrays
        ]

    def _with_versions(
        self, numbers: Sequence[Any], frozen: Mapping[Node, RemoteArray]
    ) -> Sequence[Any]:
        """Return the numbers of a call with the versions of the arrays that it reads: their
        handles, after interrupted runs were repeated."""
        if not self._versions:
            return numbers
        leaves = list(self._versions.values())
        data = [frozen.get(leaf) or remote_array_of(leaf) for leaf in leaves]
        handles = dict(zip(self._versions, self.engine.handles(data), strict=True))
        return [
            handles.get(x, number) if isinstance(x, Node) else number
            for x, number in zip(self._numbers, numbers, strict=True)
        ]

    def _found(self, leaves: Sequence[Node], arguments: Sequence[Any]) -> Any:
        """Return the function's result, and update the arguments that it updates in place."""
        if self._updated:
            for i, leaf in zip(self._updated, leaves[self._results :], strict=True):
                if isinstance(arguments[i], Array):
                    arguments[i]._updated(leaf)
        if self.tree is None:
            return self._array(leaves[0])
        return unflatten(self.tree, [self._array(leaf) for leaf in leaves[: self._results]])

    def _array(self, leaf: Node) -> Array:
        array = Array(leaf)
        if self._reads_variables:
            array.keep_operands(leaf)
            note_reader(array)
        return array


def _same_arrays(leaves: Sequence[Any]) -> Sequence[int]:
    """Return for each argument the position of the first equal one; empty if all differ.

    Only arrays are compared, by identity.
    """
    first = {id(x): i for i, x in reversed(list(enumerate(leaves))) if isinstance(x, Array)}
    same = tuple([first.get(id(x), i) for i, x in enumerate(leaves)])
    return () if same == tuple(range(len(leaves))) else same


def _arguments(
    places: Sequence[Node | None], values: Sequence[Any], same: Sequence[int]
) -> list[Any]:
    """Return the arguments of a function for its trace."""
    given = [_argument(p, v) for p, v in zip(places, values, strict=True)]
    return [given[i] for i in same] if same else given


def _traced(
    function: Callable[..., Any], arguments: Any, given: Sequence[Any]
) -> tuple[list[Node], Hashable, list[int]]:
    """Trace a function; return the nodes of its results, their nesting, and updated arguments.

    The nodes of arguments that the function updates in place follow those of the results; the last
    value lists the positions of these arguments.
    """
    before = [x.node if type(x) is Array else None for x in given]
    args, kwargs = arguments
    outputs, returned = flatten(function(*args, **kwargs))
    for output in outputs:
        if not isinstance(output, Array):
            raise MagmathError(
                f"compile: {function!r} must return arrays, it returned a {type(output).__name__}"
            )
    updated = [i for i, x in enumerate(given) if type(x) is Array and x.node is not before[i]]
    nodes = [x.node for x in (*outputs, *[given[i] for i in updated])]
    return nodes, returned, updated


def _graph(nodes: Sequence[Node], trace: Trace) -> Graph:
    """Return the graph of a function's results and of the values that it assigns to variables."""
    targets = tuple(trace.assigned)
    results = [
        apply(e.ASTYPE, node, dtype=node.dtype) if node in targets else node for node in nodes
    ]
    return Graph(
        (*results, *trace.assigned.values()),
        (*[None for _ in nodes], *targets) if targets else (),
    )


NO_NUMBERS: Mapping[Node, float] = {}
_NUMPY = (np.ndarray, np.generic)


@final
class _ProvenanceTemplate:
    """The part of the provenance of a compiled function's results that all calls share."""

    def __init__(self, traced: Graph, position: Mapping[Node, int], line: Any) -> None:
        order = traced.nodes
        self._recipe, captured, places = recipe_of(order, ())
        self._outputs = [places[node] for node in traced.outputs]
        self._line = line
        self._operands: list[int | Node | WeakOperand] = [
            position.get(node, node if node.name == "variable" else known)
            for node, known in zip([order[i] for i in self._recipe.operands], captured, strict=True)
        ]  # the position of an argument, a variable, or a captured array
        given = [n for n in order if n.name == "parameter" and n.value is None]
        self._recipe.numbers = [places[node] for node in given]
        self._numbers = [position.get(node, node) for node in given]

    def operands(self, arguments: Sequence[Any]) -> list[WeakOperand]:
        """Return the operands of a call; they must be recorded before it assigns variables."""
        operands: list[WeakOperand] = []
        for source in self._operands:
            if type(source) is int:
                argument = arguments[source]
                leaf = argument._leaf or argument.evaluated()
                keep_expression(leaf)
                operands.append(LeafOperand(ref(leaf), leaf.provenance))
            elif isinstance(source, Node):
                operands.append(weak_operand(source.value().node))
            else:
                operands.append(source)  # type: ignore[arg-type]
        return operands

    def note(
        self,
        leaves: Sequence[Node],
        operands: list[WeakOperand],
        arguments: Sequence[Any],
        drawn: Mapping[Node, float],
    ) -> None:
        """Store the provenance in the leaves of the results of a call."""
        numbers: Sequence[Any] = ()
        if self._numbers:
            numbers = [drawn[x] if isinstance(x, Node) else arguments[x] for x in self._numbers]
        for leaf, output in zip(leaves, self._outputs):  # noqa: B905  assigned variables follow
            known = Provenance.of(self._recipe, output, operands, self._line, numbers)
            set_provenance(leaf, known)


def _limits(traced: Graph, position: Mapping[Node, int]) -> list[tuple[int, DType]]:
    """Return the integer types that Python integers among the arguments must fit.

    These are int64 and the types of arrays with which they are combined, by argument position.
    """
    integers = {place for place in position if place.name == "parameter" and place.dtype is int64}
    limits = [(place, int64) for place in integers]
    for node in traced.nodes:
        if node.name == "astype" and node.inputs[0] in integers and node.dtype.is_integer:
            limits.append((node.inputs[0], node.dtype))
    return [(position[place], dtype) for place, dtype in limits]


def _is_known(value: Any) -> bool:
    return type(value) in (RemoteArray, bool, int, float, complex)


def _like(value: Any) -> tuple[type, DType | None, Layout | None]:
    """Return the properties that an argument must match: class, element type and layout.

    Type and layout are None for numbers.
    """
    return (
        (Array, value.dtype, value.layout)
        if type(value) is RemoteArray
        else (type(value), None, None)
    )


def _placeholder(value: Any) -> Node | None:
    """Return a leaf without a value for an array or number argument, None for other arguments."""
    if isinstance(value, RemoteArray):
        return input_leaf(value.shape, value.dtype, value.layout, None)
    if isinstance(value, (bool, int, float, complex)):
        return parameter(None, DTYPE_OF_PYTHON[type(value)])
    return None


def _argument(place: Node | None, value: Any) -> Any:
    """Return an argument of the function for its trace."""
    if place is None:
        return value
    return Array(place) if isinstance(value, RemoteArray) else TracedScalar(place, value)


def _value(argument: Any) -> Any:
    """Return the data of an array argument, other arguments and variables unchanged."""
    if isinstance(argument, Variable) or not isinstance(argument, Array):
        return argument
    return remote_array_of(argument.evaluated())


def _signature(value: Any) -> Hashable:
    """Return the properties of an argument that its program depends on."""
    if isinstance(value, RemoteArray):
        return value.shape, value.dtype, value.layout
    if isinstance(value, (bool, int, float, complex)):
        return "number", type(value).__name__
    if isinstance(value, Variable):
        return "variable", id(value)
    hashable: Hashable = value
    try:
        hash(hashable)
    except TypeError:
        raise MagmathError(
            f"compile: an argument of type {type(value).__name__} is neither an array, a number, "
            f"nor hashable"
        ) from None
    return hashable
