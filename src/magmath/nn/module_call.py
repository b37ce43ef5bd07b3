"""The call of a module: what happens around the `__call__` that its class defines."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from types import NoneType
from typing import Any, ClassVar, Protocol

from magmath.api.creation import asarray
from magmath.arrays.array import Array
from magmath.arrays.inputs.number_list import is_number_table
from magmath.core.precision_state import PRECISION
from magmath.engine.traces import tracing
from magmath.engine.traces.captured_arrays import invalidate_captures
from magmath.engine.traces.tracing import TraceScope
from magmath.errors import DTypeError, ShapeError
from magmath.nn.call_state import CALLS
from magmath.nn.inventory import Inventory, invalidate_inventories
from magmath.nn.mixed_precision import call_in_half_type

CallMethod = Callable[..., Any]


class CalledModule(Protocol):
    """A module, as far as its call needs it."""

    keeps_float32: ClassVar[bool]

    def _current_inventory(self) -> Inventory[Any]:
        """Return the parts, whether or not all are built."""

    def _name_new_variables(self) -> None:
        """Name the variables that were made since the parts were found last."""


def wrapped_call(call: CallMethod, converts_lists: bool) -> CallMethod:
    """Return a module's `__call__`, wrapped so that arguments are converted, traces depend on the
    state of the module, and hooks run after it.

    Layers convert lists of numbers too. Modules of users receive them, as they may mean something
    else.
    """
    has_array_input = converts_lists and _has_array_input(call)

    @wraps(call)
    def wrapped(self: CalledModule, *args: Any, **kwargs: Any) -> Any:
        trace = tracing.current()
        if trace is not None:
            _depend_on_module(trace, self)
        if converts_lists and args and isinstance(args[0], _CONVERTED_INPUTS):
            args = (_first_input(self, args[0], has_array_input), *args[1:])
        args = tuple(
            [x if isinstance(x, Array) else converted_argument(x, converts_lists) for x in args]
        )
        if kwargs:
            kwargs = {name: converted_argument(x) for name, x in kwargs.items()}
        callers = CALLS.modules
        CALLS.modules = (*callers, self)
        try:
            if PRECISION.value.compute is None:
                outputs = call(self, *args, **kwargs)
            else:
                outputs = call_in_half_type(partial(call, self), self.keeps_float32, args, kwargs)
        except (ShapeError, DTypeError):
            if not callers:
                _undo_materialization()
            raise
        finally:
            CALLS.modules = callers
            if not callers:
                CALLS.materialized.clear()
        if not callers:
            self._name_new_variables()
        for hook in CALLS.hooks.value:
            hook(self, outputs)
        return outputs

    return wrapped


def _undo_materialization() -> None:
    """Defer again the variables that a call with an input of a wrong shape or type has made."""
    for made in reversed(CALLS.materialized):
        vars(made.module)[made.name] = made.deferred
        if not made.was_made:  # by an earlier call, as an attribute that shares the variable
            made.deferred.forget()
        invalidate_captures(made.module)
    if CALLS.materialized:
        invalidate_inventories()


_CONVERTED_INPUTS = (NoneType, str, int, float, list, tuple)


def _has_array_input(call: CallMethod) -> bool:
    """Return True if the first argument of a layer's `__call__` is one array, by its annotation."""
    names = call.__code__.co_varnames[1 : call.__code__.co_argcount]
    return bool(names) and call.__annotations__.get(names[0]) == "Array"


def _first_input(layer: CalledModule, x: Any, has_array_input: bool) -> Any:
    """Return a number, or nested lists of numbers, that a layer receives as an array.

    Raises TypeError for None and texts, and for other lists unless the layer takes such.
    """
    if isinstance(x, (list, tuple)):
        if is_number_table(x):
            return asarray(x)
        if has_array_input:
            items = ", ".join(dict.fromkeys([type(item).__name__ for item in x])) or "nothing"
            raise TypeError(
                f"{type(layer).__name__}: takes one array, was given a {type(x).__name__} with "
                f"{items}; join arrays of one shape along a new first axis with mm.stack(arrays), "
                f"and call the layer for each of others"
            )
        return x  # several inputs
    if isinstance(x, (NoneType, str)):
        remedy = "return the output of the layer before" if x is None else "give an array"
        raise TypeError(f"{type(layer).__name__}: needs an array, was given {x!r}; {remedy}")
    return asarray(x)


def _depend_on_module(trace: TraceScope, module: CalledModule) -> None:
    """Record that a traced function depends on the state of a module that it calls."""
    if CALLS.modules:
        trace.depend_on_state(module)
    else:
        inventory = module._current_inventory()
        trace.depend_on_observed_state(inventory.structure)
        for part in inventory.modules.values():
            trace.depend_on_state(part)  # it may read attributes of parts that it does not call
    if id(module) not in CALLS.forced_modes.value:
        trace.depend_on_state(vars(module).setdefault("_mode", object()))


def converted_argument(argument: Any, converts_lists: bool = False) -> Any:
    """Return an argument of a module, converted if it is an array of NumPy or PyTorch, or nested
    lists of numbers for a layer. Lists and tuples of arrays are several inputs."""
    if isinstance(argument, (list, tuple)):
        return asarray(argument) if converts_lists and is_number_table(argument) else argument
    foreign = hasattr(argument, "__dlpack__") and not isinstance(argument, Array)
    return asarray(argument) if foreign else argument
