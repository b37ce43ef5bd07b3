"""Compiled functions: traced once for each structure and signature of arguments, then run as a
program."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import update_wrapper, wraps
from typing import TYPE_CHECKING, Any, final
from weakref import finalize, ref

from magmath.arrays.array import Array
from magmath.arrays.tree import flatten, unflatten
from magmath.arrays.variable import overwrite
from magmath.core.bounded_memo import RecentlyUsed
from magmath.core.dtypes import convert_number
from magmath.core.precision_state import PRECISION
from magmath.core.promotion import DEFAULT
from magmath.engine import session, tracing
from magmath.engine.captured_arrays import Captured
from magmath.engine.engine import Engine
from magmath.engine.hoisted_values import HoistedValues, Separated, separate
from magmath.engine.pending_readers import note_reader
from magmath.engine.remote_array import RemoteArray, leaf_of, remote_array_of
from magmath.engine.replay_cache import ReplayCache
from magmath.engine.user_line import user_line
from magmath.errors import MagmathError
from magmath.graph import Graph, Node
from magmath.transform.call_arguments import (
    argument_signature,
    argument_value,
    first_occurrences,
    integer_limits,
    is_array_or_number,
    required_properties,
    with_arrays,
    with_known_numbers,
    write_back,
)
from magmath.transform.call_provenance import ProvenanceTemplate, Repetition
from magmath.transform.divided_specialization import DividedSpecialization
from magmath.transform.function_argument import require_function
from magmath.transform.subgraphs import contains_loop
from magmath.transform.traced_call import TracedCall

if TYPE_CHECKING:
    from magmath.diagnostics.explanation import Explanation


def compile(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function compiled: traced once for each combination of shapes, types and layouts,
    then replayed.

    The default type (see `set_default_dtype`) is part of that combination. Arguments may be arrays,
    NumPy arrays, tensors of PyTorch, Python numbers, and lists, tuples and dictionaries of them;
    NumPy arrays and tensors that the function updates in place are updated. Numbers become
    parameters, so another number does not compile again, unless the function needs its value (in a
    shape, an axis, a range, an `if`): then it is traced for each value. The function must return
    arrays or numbers, lists, tuples or dictionaries of them, or None, must not read values of
    arrays inside, and runs as Python only while it is traced. A method is traced for each of its
    instances.

    As without compilation, variables that it reads have their values at the time of the call,
    variables that it assigns (`v.assign(x)`, `v += x`) are assigned by the call, and each call
    draws new random numbers. An array that it reads, other than an argument, has the value that it
    has during tracing; after an in-place update (`a += 1`) the function is traced again.
    """
    require_function("compile: needs a function of arrays", function)
    return _CompiledFunction(function)


MANY_KNOWN_NUMBERS = 32
"""Traces for values of numbers from which a function warns."""
MAX_TRACES = 256
"""Specializations of a function: those used least recently are traced again."""
NO_DATA: Mapping[Node, RemoteArray] = {}
NO_NUMBERS: Mapping[Node, float] = {}


class _CompiledFunction:
    """A function and its specializations."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._traces: RecentlyUsed[Hashable, _Specialization | DividedSpecialization]
        self._traces = RecentlyUsed(MAX_TRACES)
        self._needed: dict[Hashable, set[int]] = {}
        """By the structure of the arguments, the positions of numbers that tracing needs."""
        self._known_numbers = 0  # traces for values of such numbers
        self._last_undivided: _Specialization | None = None
        self._last_used: _Specialization | DividedSpecialization | None = None
        self._methods: dict[int, _CompiledFunction] = {}  # by the instances' identities
        update_wrapper(self, function, updated=())  # the attributes of a module are its own

    def __reduce__(self) -> str:
        """Return the name of the function, for pickle and copy, as for Python functions."""
        return str(self._function.__qualname__)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Return the method of an instance, which is traced for this instance alone."""
        return self if instance is None else _CompiledMethod(instance, self._of(instance))

    def _of(self, instance: Any) -> _CompiledFunction:
        """Return the compiled method of an instance, which holds no reference to it."""
        number = id(instance)
        if number not in self._methods:
            function, kind = self._function, type(instance)
            if not kind.__weakrefoffset__:
                raise TypeError(
                    f"compile: a method needs instances with weak references, {kind.__name__} has "
                    f'none; add "__weakref__" to its __slots__'
                )
            owner = ref(instance)
            finalize(instance, self._methods.pop, number, None)

            @wraps(function)
            def method(*args: Any, **kwargs: Any) -> Any:
                return function(owner(), *args, **kwargs)

            self._methods[number] = _CompiledFunction(method)
        return self._methods[number]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if tracing.current() is not None:
            return self._function(*args, **kwargs)
        engine, last = session.engine(), self._last_undivided
        if (
            last is not None
            and last.engine is engine
            and last.floating is DEFAULT.floating
            and last.precision == PRECISION.key
            and not kwargs
        ):
            history = last.history
            if history.repetitions and last.captured.is_current:
                repetition = history.continued(args)
                if repetition is not None:
                    return last.run_again(repetition, args)
            known = last.accepted(args)
            if known is not None:
                return last.run(*known)
        originals, tree = flatten((args, kwargs))
        leaves = with_arrays(originals)
        values = [argument_value(leaf) for leaf in leaves]
        same = first_occurrences(leaves)
        found, values = self._trace(engine, tree, same, values)
        self._last_undivided = found if isinstance(found, _Specialization) else None
        self._last_used = found
        result = found.run(values, leaves)
        for i in found.updated:
            write_back(leaves[i], originals[i])
        return result

    def _trace(
        self, engine: Engine, tree: Hashable, same: Sequence[int], values: Sequence[Any]
    ) -> tuple[_Specialization | DividedSpecialization, list[Any]]:
        """Return the specialization for an engine and arguments of this structure, and the
        arguments for it.

        Traces the function if there is none, or if an array that it captures was updated; once
        more if it needs the values of numbers among its arguments.
        """
        while True:
            given = with_known_numbers(values, self._needed.get(tree, ()))
            signatures = tuple([argument_signature(value) for value in given])
            form = id(engine), DEFAULT.floating, PRECISION.key, tree, same, signatures
            trace = self._traces.find(form)
            if trace is not None and trace.captured.is_current:
                return trace, given
            call = TracedCall(self._function, tree, same, given)
            if call.needed:
                self._needed.setdefault(tree, set()).update(call.needed)
                continue
            if tree in self._needed:
                self._note_known_number()
            if contains_loop(call.outputs):
                trace = DividedSpecialization(call, compile)
            else:
                trace = _Specialization(engine, call, tree, same, given)
            self._traces.store(form, trace)
            return trace, given

    def _note_known_number(self) -> None:
        """Count a trace for values of numbers; warn if there are many."""
        self._known_numbers += 1
        if self._known_numbers == MANY_KNOWN_NUMBERS:
            warnings.warn(
                f"compile: {self._function!r} was traced {MANY_KNOWN_NUMBERS} times because it "
                f"needs the value of a number among its arguments (in a shape, an axis, a range, "
                f"an if), which takes a trace for each value; choose with mm.where or mm.cond, "
                f"repeat with mm.fori_loop, or pass few different values",
                stacklevel=4,
            )

    def explain(self) -> Explanation:
        """Return the explanation of the program for arguments like those of the last call.

        For a function that contains loops it lists the programs in order, each loop with one step.
        Raises MagmathError before the first call.
        """
        if self._last_used is None:
            raise MagmathError(
                "explain: call the compiled function first; its program depends on its arguments"
            )
        return self._last_used.explain()


@final
class _CompiledMethod:
    """A compiled method and its instance."""

    __slots__ = ("__self__", "_method")

    def __init__(self, instance: Any, method: _CompiledFunction) -> None:
        self.__self__, self._method = instance, method

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._method(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._method, name)


class _Specialization:
    """The program of a function for certain shapes, types and layouts."""

    def __init__(
        self,
        engine: Engine,
        call: TracedCall,
        tree: Hashable,
        same: Sequence[int],
        values: Sequence[Any],
    ) -> None:
        self.engine = engine
        self.floating, self.precision = DEFAULT.floating, PRECISION.key
        trace, placeholders, position = call.trace, call.placeholders, call.position
        self.tree, self.updated = call.tree, call.updated
        self._assigned = [trace.read[leaf] for leaf in trace.assigned]
        self._reads_variables = bool(trace.read)
        self._returns_one_array = self.tree is None and not (self._reads_variables or self.updated)
        """True if the result is one array, and nothing else is to be done."""
        self._trace = trace
        self._is_same_in_each_run = trace.is_same_in_each_run
        traced = call.graph()
        self._results = len(call.nodes) - len(self.updated)
        graph = self.engine.cut(traced)
        self._hoisted: HoistedValues | None = None
        self._versions: Mapping[Node, Node] = {}
        separated = self._separated(graph, position)
        if separated is not None:
            graph, self._hoisted = separated.graph, separated.hoisted
            self._versions = separated.versions
        compiled = self.engine.compile(graph)
        leaves = graph.leaves
        self._arrays = [position.get(leaves[i], leaves[i]) for i in compiled.inputs]
        self._numbers = [position.get(leaves[i], leaves[i]) for i in compiled.parameters]
        self._in_order = self._arrays == list(range(len(values)))
        self._limits = integer_limits(traced, position)
        self._fixed = [x.value for x in self._numbers if isinstance(x, Node)]
        plain = tree == flatten((tuple(values), {}))[1] and all(map(is_array_or_number, values))
        plain = plain and self._is_same_in_each_run and not (same or self.updated or self._assigned)
        self._likes = [required_properties(value) for value in values] if plain else None
        fixed = (
            self._is_same_in_each_run
            and len(self._fixed) == len(self._numbers)
            and not self._limits
        )
        self._takes_arrays = self._in_order and fixed and self._hoisted is None
        self.repeated = ReplayCache(
            self.engine, compiled, graph, draws=not self._is_same_in_each_run
        )
        self.captured = Captured(traced, placeholders)
        self.captured.add_state(trace)
        kinds = None if self._likes is None or any(graph.targets) else [x[0] for x in self._likes]
        self.history = ProvenanceTemplate(traced, position, call.outside, user_line(), kinds)

    def explain(self) -> Explanation:
        """Return the explanation of the last run."""
        from magmath.diagnostics.explain import explain_program, explain_run

        cache = self.repeated
        if cache.last is not None:
            return explain_run(cache.last)
        heading = "small, so computed in this process; larger arrays would be computed by"
        return explain_program(cache.compiled.program, self.engine.environment, heading=heading)

    def _separated(self, graph: Graph, position: Mapping[Node, int]) -> Separated | None:
        """Return the graph without the values that are the same in each call.

        None for a function that assigns variables, or draws random numbers.
        """
        if self._assigned or self.updated or not self._is_same_in_each_run:
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
                if dtype is not None and repr(argument) != dtype:
                    return None
                values.append(argument)
                continue
            leaf = argument._leaf
            if leaf is not argument._node:  # an expression
                return None
            value = leaf.value
            if type(value) is not RemoteArray:  # it was made while a function was traced
                return None
            if (value.layout is not layout and value.layout != layout) or value.dtype is not dtype:
                return None
            values.append(value)
        return values, args

    def run_again(self, repetition: Repetition, arguments: Sequence[Any]) -> Any:
        """Run the program for a call that continues the last one; return the function's result."""
        given: Sequence[RemoteArray] = repetition.values
        repetition.values = []  # which would keep the arrays
        numbers: Sequence[Any] = self._fixed
        if not self._takes_arrays:
            self._check_limits(given)
            numbers, hoisted = self._numbers_of(given, NO_NUMBERS)
            given = self._given(given, hoisted)
        results = self.repeated.run(given, numbers)
        self.history.note_continued(results.leaves, repetition, arguments)
        found = (
            Array(results.leaves[0])
            if self._returns_one_array
            else self._deliver(results.leaves, arguments)
        )
        self.repeated.keep(results)
        return found

    def run(self, values: Sequence[Any], arguments: Sequence[Any]) -> Any:
        """Run the program with the values of other arguments; return the function's result."""
        self._check_limits(values)  # an error must not take random numbers
        drawn = NO_NUMBERS if self._is_same_in_each_run else self._trace.numbers_of_run()
        numbers: Sequence[Any] = self._fixed
        hoisted = NO_DATA
        if not self._takes_arrays:
            numbers, hoisted = self._numbers_of(values, drawn)
        operands = self.history.operands(arguments)
        if self._assigned:
            made, self.repeated.last = overwrite(
                self._assigned,
                lambda: self.engine.start(self.repeated.compiled, self._given(values), numbers),
                can_fail=self.repeated.compiled.can_fail,
            )
            leaves = [leaf_of(data) for data in made]
            self.history.note(leaves, operands, arguments, drawn)
            return self._deliver(leaves, arguments)
        if self.updated:
            self.engine.settle()
        given = values if self._in_order else self._given(values, hoisted)
        results = self.repeated.run(given, numbers)
        if self.updated:
            self.engine.settle()
        self.history.note(results.leaves, operands, arguments, drawn)
        found = self._deliver(results.leaves, arguments)
        self.repeated.keep(results)
        return found

    def _check_limits(self, values: Sequence[Any]) -> None:
        """Raise RangeError if an integer does not fit the type of its operation."""
        for i, dtype in self._limits:
            convert_number(values[i], dtype, "compile")

    def _numbers_of(
        self, values: Sequence[Any], drawn: Mapping[Node, float]
    ) -> tuple[Sequence[Any], Mapping[Node, RemoteArray]]:
        """Return the numbers of a call, and the arrays that are the same in each call."""
        numbers: Sequence[Any] = self._fixed
        if drawn or len(numbers) < len(self._numbers):
            numbers = [
                values[x] if isinstance(x, int) else drawn.get(x, x.value) for x in self._numbers
            ]
        hoisted: Mapping[Node, RemoteArray] = {}
        if self._hoisted is not None:
            hoisted = self._hoisted.data()
            numbers = self._with_versions(numbers, hoisted)
        return numbers, hoisted

    def _given(
        self, values: Sequence[Any], hoisted: Mapping[Node, RemoteArray] = NO_DATA
    ) -> list[RemoteArray]:
        """Return the input arrays of the program, in order."""
        return [
            values[x] if isinstance(x, int) else hoisted.get(x) or remote_array_of(x)
            for x in self._arrays
        ]

    def _with_versions(
        self, numbers: Sequence[Any], hoisted: Mapping[Node, RemoteArray]
    ) -> Sequence[Any]:
        """Return the numbers of a call with the versions of the arrays that it reads: their
        handles, after interrupted runs were repeated."""
        if not self._versions:
            return numbers
        leaves = list(self._versions.values())
        data = [hoisted.get(leaf) or remote_array_of(leaf) for leaf in leaves]
        handles = dict(zip(self._versions, self.engine.handles(data), strict=True))
        return [
            handles.get(x, number) if isinstance(x, Node) else number
            for x, number in zip(self._numbers, numbers, strict=True)
        ]

    def _deliver(self, leaves: Sequence[Node], arguments: Sequence[Any]) -> Any:
        """Update the arguments that the function updates in place; return its result."""
        if self.updated:
            for i, leaf in zip(self.updated, leaves[self._results :], strict=True):
                if isinstance(arguments[i], Array):
                    arguments[i]._updated(leaf)
        if self.tree is None:
            return self._array(leaves[0]) if self._reads_variables else Array(leaves[0])
        return unflatten(self.tree, [self._array(leaf) for leaf in leaves[: self._results]])

    def _array(self, leaf: Node) -> Array:
        array = Array(leaf)
        if self._reads_variables:
            array.keep_operands(leaf)
            note_reader(array)
        return array
