"""Compiled functions: traced once for each structure and signature of arguments, then run as a
program."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import update_wrapper, wraps
from typing import TYPE_CHECKING, Any, Protocol, final
from weakref import finalize, ref

from magmath.arrays.array import Array
from magmath.arrays.tree import Tree, flatten, unflatten
from magmath.core.bounded_memo import RecentlyUsed
from magmath.core.precision_state import PRECISION
from magmath.core.promotion import DEFAULT
from magmath.engine import session
from magmath.engine.engine import Engine
from magmath.engine.traces import tracing
from magmath.engine.traces.captured_arrays import Captures, watching_updates
from magmath.engine.user_line import warn_user
from magmath.errors import StateError
from magmath.transform.call_arguments import (
    argument_signature,
    argument_value,
    check_updatable,
    first_occurrences,
    has_repeated_arrays,
    is_update_shared,
    number_of_run,
    with_arrays,
    with_known_numbers,
    write_back,
)
from magmath.transform.divided_specialization import DividedSpecialization, is_divided
from magmath.transform.function_argument import require_function
from magmath.transform.python_effects import uncompared_warning
from magmath.transform.rebound_items import (
    ReboundItems,
    has_repeated_containers,
    write_items,
)
from magmath.transform.specialization import Specialization
from magmath.transform.subgraph_programs import RepeatedProgram
from magmath.transform.traced_call import TracedCall, result_array

if TYPE_CHECKING:
    from magmath.diagnostics.explanation import Explanation


def compile(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function compiled: traced once for each combination of shapes, types and layouts,
    then run as a program.

    The default type (see `set_default_dtype`) is part of that combination. Arguments may be arrays,
    NumPy arrays, tensors of PyTorch, Python numbers, and lists, tuples and dictionaries of them;
    NumPy arrays and tensors that the function updates in place are updated, and so are lists and
    dictionaries of which it binds or removes items. Numbers become scalars of the program, so
    another number does not compile again, unless the function needs its value (in a shape, an axis,
    a range, an `if`): then it is traced for each value. The function must return arrays or numbers,
    lists, tuples or dictionaries of them, or None, must not read values of arrays inside, and runs
    as Python only while it is traced. A method is traced for each of its instances.

    As without compilation, variables that it reads have their values at the time of the call,
    variables that it assigns (`v.assign(x)`, `v += x`) are assigned by the call, and each call
    draws new random numbers. An array that it reads, other than an argument, has the value that it
    has during tracing; after an in-place update (`a += 1`) the function is traced again, and so it
    is after a change of any other object that it reads from outside, such as a dictionary. Raises
    TracingError for a function that reads an array from an object and binds another one there,
    such as `self.h = self.h + x`: make it a variable or a buffer.
    """
    require_function("compile: needs a function of arrays", function)
    return _CompiledFunction(function)


MANY_TRACES = 32
"""Traces for values of numbers, and for names bound to other objects, from which a function
warns."""
MAX_SPECIALIZATIONS = 256
"""Specializations of a function: those used least recently are traced again."""


class AnySpecialization(Protocol):
    """What a compiled function runs for arguments of certain shapes, types and layouts: one program
    (`Specialization`) or several (`DividedSpecialization`)."""

    captures: Captures
    """What the function reads from outside."""

    @property
    def updated(self) -> Sequence[int]:
        """The positions of the arguments that the function updates in place."""

    @property
    def rebound(self) -> Sequence[ReboundItems]:
        """The items of arguments that the function binds to other objects; if there are any, `run`
        returns the result and a list of the new items."""

    @property
    def fast_path(self) -> Specialization | None:
        """What runs calls with arguments like the last ones without flattening them; None if
        nothing does."""

    def run(self, values: Sequence[Any], arguments: Sequence[Any]) -> Any:
        """Run the programs with the values of these arguments; return the function's result."""

    def explain(self) -> Explanation:
        """Return the explanation of the programs of the last call."""

    def programs(self) -> list[RepeatedProgram]:
        """Return the programs of the last call, in order."""


@final
class _CompiledFunction:
    """A function and its specializations."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._attribute: str = getattr(function, "__name__", "")
        self._specializations: RecentlyUsed[Hashable, AnySpecialization]
        self._specializations = RecentlyUsed(MAX_SPECIALIZATIONS)
        self._needed_numbers: dict[Hashable, set[int]] = {}
        """By the structure of the arguments, the positions of numbers that tracing needs."""
        self._traces_for_numbers = 0
        """Traces for values of such numbers."""
        self._traces_after_rebinding = 0
        """Traces because a name was bound to another object."""
        self._has_uncompared = False
        self._last_used: AnySpecialization | None = None
        self._fast_path: Specialization | None = None
        self._methods: dict[int, _CompiledFunction] = {}  # by the instances' identities
        update_wrapper(self, function, updated=())  # the attributes of a module are its own

    def __reduce__(self) -> str:
        """Return the name of the function, for pickle and copy, as for Python functions."""
        return str(self._function.__qualname__)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Return the method of an instance, which is traced for this instance alone."""
        if instance is None:
            return self
        return _CompiledMethod(instance, self._of(instance), self._attribute)

    def __set_name__(self, owner: type, name: str) -> None:
        """Store the name of the class's attribute, which may be another one than the function's."""
        self._attribute = name

    def _of(self, instance: Any) -> _CompiledFunction:
        """Return the compiled method of an instance, which holds no reference to it."""
        identity = id(instance)
        if identity not in self._methods:
            self._methods[identity] = _CompiledFunction(_method_of(instance, self._function))
            finalize(instance, self._methods.pop, identity, None)
        return self._methods[identity]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if tracing.current() is not None:
            return self._function(*args, **kwargs)
        engine, last = session.engine(), self._fast_path
        if (
            last is not None
            and last.engine is engine
            and last.floating is DEFAULT.floating
            and last.precision == PRECISION.value
            and not kwargs
            and not (last.takes_several_arrays and has_repeated_arrays(args))
        ):
            provenance = last.provenance
            if provenance.chains and last.captures.is_current:
                chain = provenance.take_continued(args)
                if chain is not None:
                    return last.run_again(chain, args)
            accepted = last.accepted_values(args)
            if accepted is not None:
                return last.run(accepted, args)
        originals, tree = flatten((args, kwargs))
        leaves = with_arrays(originals)
        values = [argument_value(leaf) for leaf in leaves]
        same = first_occurrences(leaves)
        specialization, values = self._specialization_for(engine, tree, same, values)
        self._last_used, self._fast_path = specialization, specialization.fast_path
        if (
            specialization.updated
            and is_update_shared(specialization.updated, leaves, originals, specialization.captures)
        ) or (specialization.rebound and has_repeated_containers((args, kwargs))):
            return self._run_uncompiled(args, kwargs)
        for i in specialization.updated:
            check_updatable(leaves[i], originals[i])
        result = specialization.run([*map(number_of_run, values)], leaves)
        for i in specialization.updated:
            write_back(leaves[i], originals[i])
        if specialization.rebound:
            result, new_items = result
            with engine.pool.defer_interrupts():  # all of them change, or none
                write_items(specialization.rebound, (args, kwargs), originals, new_items)
        return result

    def _run_uncompiled(self, args: Any, kwargs: Any) -> Any:
        """Run the function as Python; return its result as a compiled function does."""
        returned, tree = flatten(self._function(*args, **kwargs))
        results = [result_array(self._function, x) for x in with_arrays(returned)]
        # each is an array of its own, not a view of an argument
        return unflatten(tree, [x if x.is_weak else Array(x.node) for x in results])

    def _specialization_for(
        self, engine: Engine, tree: Tree, same: Sequence[int], values: Sequence[Any]
    ) -> tuple[AnySpecialization, list[Any]]:
        """Return the specialization for an engine and arguments of this structure, and the
        arguments for it.

        Traces the function if there is none, or if an array that it captures was updated; once
        more if it needs the values of numbers among its arguments, or if it has replaced variables
        that it uses.
        """
        is_repeated = False
        while True:
            known_values = with_known_numbers(values, self._needed_numbers.get(tree, ()))
            signatures = tuple([argument_signature(value) for value in known_values])
            key = engine, DEFAULT.floating, PRECISION.value, tree, same, signatures
            specialization = self._specializations.find(key)
            if specialization is not None:
                if specialization.captures.is_current:
                    return specialization, known_values
                self._count_trace_after_rebinding(specialization.captures)
            with watching_updates():
                call = TracedCall(self._function, tree, same, known_values)
                if call.needed:
                    self._needed_numbers.setdefault(tree, set()).update(call.needed)
                    continue
                if call.trace.is_outdated and not is_repeated:
                    is_repeated = True  # not for ever: each trace may make variables of its own
                    continue
                self._warn_of_uncompared(call.uncompared)
                if tree in self._needed_numbers:
                    self._count_trace_for_number()
                new: AnySpecialization
                if is_divided(call.trace, call.outputs):
                    new = DividedSpecialization(call, compile)
                else:
                    new = Specialization(engine, call, tree, same, known_values)
            self._specializations.store(key, new)
            return new, known_values

    def _count_trace_for_number(self) -> None:
        """Count a trace for values of numbers; warn if there are many."""
        self._traces_for_numbers += 1
        if self._traces_for_numbers == MANY_TRACES:
            warn_user(
                f"compile: {self._function!r} was traced {MANY_TRACES} times because it "
                f"needs the value of a number among its arguments (in a shape, an axis, a range, "
                f"an if), which takes a trace for each value; choose with mm.where or mm.cond, "
                f"repeat with mm.fori_loop, or pass few different values"
            )

    def _count_trace_after_rebinding(self, captures: Captures) -> None:
        """Count a trace because a name is bound to another object; warn if there are many."""
        name = captures.changed_name()
        if name is None:
            return
        self._traces_after_rebinding += 1
        if self._traces_after_rebinding == MANY_TRACES:
            warn_user(
                f"compile: {self._function!r} was traced {MANY_TRACES} times because "
                f"{name!r}, which it reads from outside, was bound to another object between its "
                f"calls, which takes a trace each time; pass it as an argument"
            )

    def _warn_of_uncompared(self, labels: Sequence[str]) -> None:
        """Warn once of objects that are too large to be compared at each call."""
        if labels and not self._has_uncompared:
            self._has_uncompared = True
            warn_user(uncompared_warning(f"compile: {self._function!r}", labels))

    def explain(self) -> Explanation:
        """Return the explanation of the program for arguments like those of the last call.

        For a function that contains loops it lists the programs in order, each loop with one step.
        Raises StateError before the first call.
        """
        if self._last_used is None:
            raise StateError(
                "explain: call the compiled function first; its program depends on its arguments"
            )
        return self._last_used.explain()

    def programs(self) -> list[RepeatedProgram]:
        """Return the programs of the last call, in order; none before the first call."""
        return [] if self._last_used is None else self._last_used.programs()


def _method_of(instance: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of an instance, of which it holds a weak reference, `method_of`."""
    kind = type(instance)
    if not kind.__weakrefoffset__:
        raise TypeError(
            f"compile: a method needs instances with weak references, {kind.__name__} has "
            f'none; add "__weakref__" to its __slots__'
        )
    owner = ref(instance)

    @wraps(function)
    def method(*args: Any, **kwargs: Any) -> Any:
        return function(owner(), *args, **kwargs)

    method.method_of = owner  # type: ignore[attr-defined]
    return method


@final
class _CompiledMethod:
    """A compiled method and its instance."""

    __slots__ = ("__self__", "_attribute", "_method")

    def __init__(self, instance: Any, method: _CompiledFunction, attribute: str) -> None:
        self.__self__, self._method, self._attribute = instance, method, attribute

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._method(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._method, name)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, str]]:
        """Return how pickle and copy find the method, as for methods of Python."""
        return getattr, (self.__self__, self._attribute)
