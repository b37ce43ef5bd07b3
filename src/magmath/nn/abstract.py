"""Calls of modules with abstract inputs, which have a shape and a type but no values.

Such a call makes the parameters of a module and determines the shapes of its outputs, from its
`__call__` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, final

from magmath.arrays.array import Array
from magmath.arrays.tree import flatten, unflatten
from magmath.arrays.variables.variable import Variable
from magmath.core.dtypes import DType, as_dtype
from magmath.core.promotion import get_default_dtype
from magmath.engine import session
from magmath.engine.traces import tracing
from magmath.engine.traces.tracing import Trace
from magmath.errors import ShapeError
from magmath.graph import topological
from magmath.ops.leaves import input_leaf

if TYPE_CHECKING:
    from magmath.api.creation import DTypeLike
    from magmath.graph import Node, Shape


@final
class AbstractArray:
    """The shape and element type of an array."""

    def __init__(self, shape: Shape, dtype: DType) -> None:
        self.shape = shape
        self.dtype = dtype

    def __repr__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


_depth = 0
"""The number of abstract calls in progress."""


def is_abstract_call() -> bool:
    """Return True within `trace_call`, where inputs have a shape but no values."""
    return _depth > 0


def inputs_of(operation: str, shapes: Sequence[Any], dtype: DTypeLike) -> tuple[Any, ...]:
    """Return abstract arrays of these shapes. Raises ShapeError for other objects."""
    element = get_default_dtype() if dtype is None else as_dtype(dtype)
    for shape in shapes:
        sizes = isinstance(shape, (tuple, list)) and all(hasattr(n, "__index__") for n in shape)
        if not sizes:
            raise ShapeError(
                f"{operation}: needs the shape of each input, batch included, such as (1, 784); "
                f"was given {shape!r}"
                "; pass such as build((1, 784))"
            )
    return tuple([AbstractArray(tuple(map(int, shape)), element) for shape in shapes])


def call(module: Callable[..., Any], inputs: Any) -> Any:
    """Call a module with one input, a tuple of arguments, or a dictionary of keyword arguments."""
    if isinstance(inputs, dict):
        return module(**inputs)
    return module(*inputs) if isinstance(inputs, tuple) else module(inputs)


def trace_call(module: Callable[..., Any], inputs: Any) -> Any:
    """Call a module with abstract arrays; return abstract outputs, nested as the outputs are.

    Computes and draws only the initial values of parameters; assigns no variables.
    """
    _, outputs, nested = _traced(module, inputs)
    return unflatten(nested, [AbstractArray(x.shape, x.dtype) for x in outputs])


def trace_nodes(module: Callable[..., Any], inputs: Any) -> tuple[list[Node], list[Node]]:
    """Return the leaves of the inputs, and the nodes of the outputs, of a call with abstract
    arrays. See `trace_call`."""
    given, outputs, _ = _traced(module, inputs)
    return [x.node for x in given], [x.node for x in outputs]


def _traced(module: Callable[..., Any], inputs: Any) -> tuple[list[Array], list[Any], Any]:
    global _depth
    environment = session.engine().environment
    leaves, tree = flatten(inputs)
    with tracing.tracing(Trace()), _attributes_restored(module):
        given = [
            Array(input_leaf(x.shape, x.dtype, environment.whole(x.shape), None)) for x in leaves
        ]
        _depth += 1
        try:
            outputs, nested = flatten(call(module, unflatten(tree, given)))
        finally:
            _depth -= 1
    return given, outputs, nested


@contextmanager
def _attributes_restored(module: Any) -> Iterator[None]:
    """Restore after this block the attributes, and the lists and dictionaries in attributes, in
    which the module and its parts have kept arrays: states, and what has no value, such as their
    last output."""
    former = {id(one): (one, dict(vars(one)), _contents(one)) for one in _parts(module)}
    try:
        yield
    finally:
        for part in _parts(module):
            _, before, contents = former.get(id(part), (part, {}, []))
            for name, value in [*vars(part).items()]:
                was_array = _is_array(value) and _is_array(before.get(name))
                if value is not before.get(name) and (was_array or _has_traced(value)):
                    vars(part).pop(name)
                    vars(part).update({name: before[name]} if name in before else {})
            for container, items in contents:
                if _has_traced(container):
                    container.clear()
                    (container.update if isinstance(container, dict) else container.extend)(items)


def _parts(module: Any) -> list[Any]:
    """Return a module and the modules in it; none for other functions."""
    return module.modules() if hasattr(type(module), "named_parameters") else []


def _contents(module: Any) -> list[tuple[Any, Any]]:
    """Return the lists and dictionaries in a module's attributes, with copies of them."""
    found = [value for value in vars(module).values() if type(value) in (list, dict)]
    return [(value, value.copy()) for value in found]


def _has_traced(value: Any) -> bool:
    """Return True for an array that is no variable and was made while a function was traced, and
    for lists, tuples and dictionaries that have such ones."""
    return any(
        _is_array(one)
        and any(x.is_leaf and x.value is None for x in topological((one.node,), cut=True))
        for one in flatten(value)[0]
    )


def _is_array(value: Any) -> bool:
    return isinstance(value, Array) and not isinstance(value, Variable)
